"""The folder of measurements on disk, the versions that they depend on, and how their files are written."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch

from .. import _introspect

AUTOTUNED = "autotune.json"
PREDICTIONS = "predictions.json"
# The folder of a user without a home directory. Nothing can lie there, so that reading finds no file.
NOWHERE = Path(os.devnull) / "fastgemm"
# What data of another form causes where it is read.
DAMAGE = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
Stamp = tuple[str, int, int, int]  # another one after each change of a file


def folder() -> Path:
    """FASTGEMM_CACHE_DIR, else the user's cache folder, by the XDG base directory specification, which ignores a
    relative XDG_CACHE_HOME. NOWHERE if its ``~`` stands for no directory, as with an empty HOME."""
    of_user = os.environ.get("XDG_CACHE_HOME", "").strip()
    if not of_user.startswith(("/", "~")):
        of_user = "~/.cache"
    wanted = os.environ.get("FASTGEMM_CACHE_DIR") or os.path.join(of_user, "fastgemm")
    found = os.path.expanduser(wanted)
    no_home = wanted.split("/")[0] == "~" and not os.path.isabs(os.environ.get("HOME", "/"))
    return NOWHERE if no_home or found.startswith("~") else Path(found)


def versions() -> str:
    """The versions that all measurements depend on."""
    info = _introspect.build_info()
    return f"torch {torch.__version__}|cublas {info['cublas']}|table {info['table_hash']}"


def stamp(path: Path) -> Stamp | None:
    """The state of a file; None if it cannot be found."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return str(path), found.st_ino, found.st_size, found.st_mtime_ns


def read_sets(path: Path, formats: tuple[int, ...], what: str) -> dict[str, Any]:
    """The sets of a file by environment, unchecked; {} if there is no regular file. Raises OSError, also for a
    file of a newer format, which must not be overwritten; or ValueError."""
    if _is_special(path):
        return {}
    with damage(what):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        found = data["format"]
        if isinstance(found, int) and found > formats[-1]:
            raise OSError(
                f"a newer version of fastgemm wrote it, in format {found}; this one knows {formats[-1]}"
            )
        if found not in formats:
            raise ValueError(f"its format is {found!r}, not {formats[-1]}")
        return dict(data["sets"].items())


def _is_special(path: Path) -> bool:
    """Whether something other than a regular file is there. A cache is switched off by a link to /dev/null, which
    must not be replaced by a file; reading a pipe may take forever."""
    return path.exists() and not path.is_file()


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Makes many objects without garbage collections, which visit all objects of torch: 80 ms for a large file."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def damage(what: str) -> Iterator[None]:
    """Raises ValueError for all errors that data of another form causes."""
    try:
        yield
    except DAMAGE as error:
        raise ValueError(f"not a {what}: {error}") from error


Contents = TypeVar("Contents")


def change(
    path: Path,
    format: int,
    read: Callable[[Path], Contents],
    edit: Callable[[Contents], dict[str, Any]],
    empty: Contents,
) -> Stamp | None:
    """Replaces the sets of a file by what ``edit`` makes of its contents, in one step: a reader finds the old file
    or the new one. Returns the stamp of the new one.

    Concurrent writers wait for each other and lose nothing. A damaged file, for which ``read`` raises ValueError,
    counts as ``empty``. Raises OSError; filelock.Timeout is one."""
    from filelock import FileLock

    if path.parent == NOWHERE:
        raise OSError("there is no home directory; FASTGEMM_CACHE_DIR names another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    target = Path(os.path.realpath(path))  # a link stays one
    if _is_special(target):  # found before the lock, which makes a file beside it
        raise OSError(f"{target} is no regular file")
    with FileLock(str(target) + ".lock", timeout=10), uncollected():  # the process may wait long for the lock
        try:
            contents = read(path)
        except ValueError:
            contents = empty
        data = {"format": format, "sets": edit(contents)}
        scratch = target.with_suffix(f".{os.getpid()}.tmp")
        try:
            scratch.write_text(json.dumps(data), encoding="utf-8")
            os.replace(scratch, target)
        finally:
            scratch.unlink(missing_ok=True)
        return stamp(path)


def warn(text: str) -> None:
    """A warning of the caller's caller."""
    warnings.warn(f"fastgemm: {text}", RuntimeWarning, stacklevel=3)
