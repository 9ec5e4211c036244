"""Reading what is kept on disk, at import, where there is any.

The modules that read it, :mod:`fastgemm.tuning` and two of ``_choice``, take 10 ms to import, a third of
what the package took; most processes have no such file, and never tune.
"""

from __future__ import annotations

import os
from pathlib import Path

from ._choice import storage


def _may_hold(path: Path) -> bool:
    """Whether there is something to read: also where only reading it will tell why not."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        pass
    return True


def load() -> None:
    """Makes choices in this process follow what is kept."""
    where = storage.folder()
    if _may_hold(where / storage.PREDICTIONS):
        from ._choice import cpu_predictions, predictions

        predictions.load()
        cpu_predictions.load()
    if _may_hold(where / storage.AUTOTUNED):  # after the constants, beside which its times are seen
        from .tuning import load_cache

        load_cache()
