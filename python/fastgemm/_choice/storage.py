"""The folder of measurements on disk, the versions that they depend on, and how their files are written."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
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
    """The versions that all measurements depend on."""
    info = _introspect.build_info()
    return f"torch {torch.__version__}|cublas {info['cublas']}|table {info['table_hash']}"


@contextlib.contextmanager
def locked_sets(path: Path, read: Callable[[Path], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields the data of a file; the ``with`` block replaces the file.

    Concurrent writers wait for each other and lose nothing. A damaged file, for which ``read`` raises ValueError,
    counts as empty. Raises OSError or filelock.Timeout."""
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(str(path) + ".lock", timeout=10):
        try:
            sets = read(path)
        except ValueError:
            sets = {}
        yield sets


def replace_file(path: Path, data: dict[str, Any]) -> None:
    """Writes JSON in one step, so that a reader finds the old file or the new one. Raises OSError."""
    scratch = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        scratch.write_text(json.dumps(data), encoding="utf-8")
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)
