"""Where measurements are kept on disk."""

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
