"""Where measurements are kept on disk, what they depend on, and how their files are written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from .. import _introspect

AUTOTUNED = "autotune.json"
PREDICTIONS = "predictions.json"


def folder() -> Path:
    """FASTGEMM_CACHE_DIR, else the user's cache folder, by the XDG base directory specification."""
    named = os.environ.get("FASTGEMM_CACHE_DIR")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME", "").strip() or "~/.cache").expanduser() / "fastgemm"


def versions() -> str:
    """What all measurements depend on."""
    info = _introspect.build_info()
    return f"torch {torch.__version__}|cublas {info['cublas']}|table {info['table_hash']}"


def replace_file(path: Path, data: dict[str, Any]) -> None:
    """Writes JSON in one step, so that a reader finds the file as it was or as it is. Raises OSError."""
    scratch = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        scratch.write_text(json.dumps(data), encoding="utf-8")
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)
