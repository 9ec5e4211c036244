"""The command line: ``fastgemm ladder``, ``fastgemm bench``, ``fastgemm explain``,
``fastgemm tune`` and ``fastgemm info``.

Exit codes: 0 fine, 1 a result was wrong or the run failed, 2 usage.
"""

from .app import main

__all__ = ["main"]
