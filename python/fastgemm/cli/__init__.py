"""The command line: ``fastgemm ladder``, ``fastgemm bench``, ``fastgemm explain``,
``fastgemm tune`` and ``fastgemm info``.

Exit codes: 0 fine, 1 a result was wrong or the run failed, 2 usage.
"""

import sys
from typing import Any

from .._extras import OF_CLI, needed_by

try:
    with needed_by("the command line"):
        from .app import main
except ModuleNotFoundError as _error:
    if _error.name not in OF_CLI:
        raise
    _why_not = str(_error)

    def main(*_: Any, **__: Any) -> None:  # type: ignore[misc]  # in the place of the command
        """Says which package the command line needs."""
        sys.exit(_why_not)


__all__ = ["main"]
