"""Where measurements are kept on disk, and reading them at import where there are any.

The modules that read them, :mod:`fastgemm.tuning` and ``_predictions``, take 10 ms to import, a quarter of what
the package took; most processes have no such file, and never tune.
"""

from __future__ import annotations

import os
from pathlib import Path

AUTOTUNED = "autotune.json"
PREDICTIONS = "predictions.json"


def folder() -> Path:
    """FASTGEMM_CACHE_DIR, else the platform's user cache folder."""
    named = os.environ.get("FASTGEMM_CACHE_DIR")
    if named:
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_cache_dir("fastgemm"))


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
    where = folder()
    if _may_hold(where / AUTOTUNED):
        from .tuning import load_cache

        load_cache()
    if _may_hold(where / PREDICTIONS):
        from ._predictions import load as load_predictions

        load_predictions()
