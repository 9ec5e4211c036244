"""Reads stored measurements from disk at import, if there are any.

The modules of ``_choice`` that read it are imported only then. Most processes have no such file and never tune.
"""

from __future__ import annotations

import os
from pathlib import Path

from ._choice import storage


def _may_hold(path: Path) -> bool:
    """Whether to read the file: it exists, or looking for it failed. Reading it then shows the error."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        pass
    return True


def load() -> None:
    """Makes choices in this process use the stored measurements."""
    where = storage.folder()
    if _may_hold(where / storage.PREDICTIONS):
        from ._choice import cpu_predictions, predictions

        predictions.load()
        cpu_predictions.load()
    if _may_hold(where / storage.AUTOTUNED):  # after the constants, because its times correct them
        from ._choice import autotuned

        autotuned.load()
