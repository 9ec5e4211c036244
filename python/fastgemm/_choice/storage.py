"""The folder of measurements on disk, the versions that they depend on, and how their files are written."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
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


def read_sets(path: Path, formats: tuple[int, ...]) -> dict[str, Any]:
    """The sets of a file by environment, unchecked; {} if there is no file. Raises what :func:`damage` turns into
    ValueError, or OSError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    if data["format"] not in formats:
        raise ValueError(f"its format is {data['format']!r}, not {formats[-1]}")
    return dict(data["sets"].items())


@contextlib.contextmanager
def damage(what: str) -> Iterator[None]:
    """Raises ValueError for all errors that data of another form causes."""
    try:
        yield
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"not a {what}: {error}") from error


def change(
    path: Path,
    format: int,
    read: Callable[[Path], dict[str, Any]],
    edit: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    """Replaces the sets of a file by what ``edit`` makes of them, in one step: a reader finds the old file or the
    new one.

    Concurrent writers wait for each other and lose nothing. A damaged file, for which ``read`` raises ValueError,
    counts as empty. Raises OSError; filelock.Timeout is one."""
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(str(path) + ".lock", timeout=10):
        try:
            sets = read(path)
        except ValueError:
            sets = {}
        data = {"format": format, "sets": edit(sets)}
        scratch = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            scratch.write_text(json.dumps(data), encoding="utf-8")
            os.replace(scratch, path)
        finally:
            scratch.unlink(missing_ok=True)


def warn(text: str) -> None:
    """A warning of the caller's caller."""
    warnings.warn(f"fastgemm: {text}", RuntimeWarning, stacklevel=3)
