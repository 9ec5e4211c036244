"""The measurements of autotune and of first calls, and the file that stores them.

The file holds one set per environment (GPU or processor, versions of torch and cuBLAS, kernel table). It is
written as a whole under a lock and renamed into place. Sets of other environments pass through as they are. If the
file cannot be read or written, it is ignored with one warning."""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .. import _introspect
from . import storage
from .cpu_predictions import Key, learn
from .storage import versions

FORMATS = (1, 2, 3)  # read; the last is written
OF_AUTOTUNE = 13  # values in a key of autotune; a key of a first call has one more, and holds for fewer calls
# Of each set the newest entries: each first call writes the whole file, and each import reads it. Either takes
# 10 to 35 ms with so many first calls, and 35 to 125 ms with so many results of autotune, which hold times.
KEPT = 5000
LEARNED = 300  # of autotune's times on this processor the newest: each takes 0.1 ms of every import
Seconds = dict[str, float]  # by kernel


class Known(NamedTuple):
    """A measurement."""

    kernel: str  # the fastest
    seconds: Seconds  # on a CPU, where they correct predictions of products nearby


Set = dict[Key, Known]  # the newest last


class Contents(NamedTuple):
    """What the file holds."""

    used: dict[str, Set]  # by environment: of these versions, for this processor and for all GPUs
    others: dict[str, Any]  # unchecked
    dropped: list[Any]  # entries of used sets that are no measurements


NONE = Contents({}, {}, [])
_last: tuple[storage.Stamp | None, Contents] = (None, NONE)  # what was read or written last


def file() -> Path:
    """The path of the file."""
    return storage.folder() / storage.AUTOTUNED


def environment(device: torch.device | str = "cpu") -> str:
    """The conditions of a measurement, besides the problem and the thread count, which are part of its key."""
    device = torch.device(device)
    if device.type != "cuda":
        return f"cpu {_introspect.build_info()['cpu_model']}|{versions()}"
    with torch.cuda.device(device):
        return f"gpu {_introspect.gpu()}|{versions()}"


def _gpu_of(where: str) -> str:
    """The GPU of an environment; empty for a processor."""
    device = where.partition("|")[0]
    return device.removeprefix("gpu ") if device.startswith("gpu ") else ""


@storage.uncollected()
def read(path: Path) -> Contents:
    """The file's measurements; none if there is no file. Raises OSError or ValueError."""
    sets = storage.read_sets(path, FORMATS, "fastgemm autotune file")
    found, valid, here = Contents({}, {}, []), f"|{versions()}", environment()
    for where, entries in sets.items():
        if where == here or (where.startswith("gpu ") and where.endswith(valid)):
            found.used[where] = _parsed(entries, where, found.dropped)
        else:
            found.others[where] = entries
    return found


def _read_changes(path: Path) -> Contents:
    """The same, but reads the file only if it is not what this process read or wrote last."""
    global _last
    stamp = storage.stamp(path)  # before the contents: if they are newer, they are read again the next time
    before, found = _last
    if stamp is None or stamp != before:
        found = read(path)
        _last = stamp, found
    return found


def _parsed(entries: Any, where: str, dropped: list[Any]) -> Set:
    """The newest entries of a set from JSON, without those that are no measurements."""
    found, gpu = Set(), _gpu_of(where)
    if not isinstance(entries, list):
        dropped.append(entries)
        return found
    for entry in entries[-KEPT:]:
        try:
            values, *known = entry
            key = tuple(values)
            if None in key:
                raise TypeError("a key holds no null")
            # Checks the key, and stores nothing: no kernel has an empty name.
            _introspect.remember(key[:OF_AUTOTUNE], "", gpu, *key[OF_AUTOTUNE:])
            found[key] = _known(*known)
        except storage.DAMAGE:
            dropped.append(entry)
    return found


def _name(value: Any) -> str:
    """A name from JSON, where a string may not be valid text. Raises TypeError or ValueError for anything
    else."""
    if not isinstance(value, str):
        raise TypeError(f"expected a name, got {value!r}")
    value.encode()  # a lone surrogate has no bytes to give to the op library
    return value


def _known(kernel: Any, seconds: Any = None) -> Known:
    """A measurement from JSON. Raises AttributeError, TypeError or ValueError for other data."""
    times = {_name(name): float(spent) for name, spent in (seconds or {}).items()}
    if not all(0 < spent < math.inf for spent in times.values()):
        raise ValueError(f"not measured times: {seconds!r}")
    return Known(_name(kernel), times)


def remember(key: Key, kernel: str, where: str = "", seconds: Seconds | None = None) -> None:
    """Makes this process use a measurement."""
    _introspect.remember(tuple(key[:OF_AUTOTUNE]), kernel, _gpu_of(where), *key[OF_AUTOTUNE:])
    if seconds and len(key) == OF_AUTOTUNE:
        learn(key, seconds)


def load() -> int:
    """Makes this process use the file's measurements for these versions; returns how many problems are known.

    It loads those of every GPU, so that an import need not find out which GPU is here: the GPU is part of the key.
    """
    global _last
    path = file()
    try:
        _last = None, NONE  # a process that loads the file reads it
        found = _read_changes(path)
    except (OSError, ValueError) as error:
        storage.warn(f"ignoring the autotune cache {path}: {error}")
        return _introspect.remembered_count()
    if found.dropped:
        count = len(found.dropped)
        what = f"{count} damaged entr{'y' if count == 1 else 'ies'} of the autotune cache {path}"
        storage.warn(f"ignoring {what}: {found.dropped[0]!r:.200}")
    for where, known in found.used.items():
        for key, entry in known.items():
            remember(key, entry.kernel, where)
        newest = (
            (key, e.seconds) for key, e in reversed(known.items()) if e.seconds and len(key) == OF_AUTOTUNE
        )
        for key, seconds in reversed(list(islice(newest, LEARNED))):
            learn(key, seconds)
    return _introspect.remembered_count()


def kept(device: torch.device | str = "cpu") -> Set:
    """The measurements of this device in the file; none if the file cannot be read."""
    try:
        return _read_changes(file()).used.get(environment(device), {})
    except (OSError, ValueError):
        return {}


def kept_kernel(key: Key, device: torch.device | str = "cpu") -> str | None:
    """The file's kernel for a problem on this device; None if there is none, or if the file cannot be read."""
    known = kept(device).get(tuple(key))
    return known.kernel if known else None


def save(new: dict[Key, str], where: str | None = None, seconds: Seconds | None = None) -> bool:
    """Merges measurements into the file; else there was a warning."""
    global _last
    path, where = file(), where or environment()
    added = {tuple(key): Known(kernel, seconds or {}) for key, kernel in new.items()}
    merged = NONE

    def edited(found: Contents) -> dict[str, Any]:
        nonlocal merged
        known = [item for item in found.used.get(where, {}).items() if item[0] not in added]
        merged = Contents({**found.used, where: dict([*known, *added.items()][-KEPT:])}, found.others, [])
        return found.others | {
            of: [[list(key), *filter(None, e)] for key, e in known.items()]
            for of, known in merged.used.items()
        }

    try:
        stamp = storage.change(path, FORMATS[-1], _read_changes, edited, NONE)
    except OSError as error:
        storage.warn(f"cannot write the autotune cache {path}: {error}")
        return False
    _last = stamp, merged
    return True
