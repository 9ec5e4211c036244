"""Stores the active patches: in torch's thread-local state, and for the whole process.

The innermost entry of a thread is in a slot of torch's own, which autograd copies to its threads for a backward
pass. An entry never changes. If a patch is left before the patches inside it, its entry is removed, and the inner
entries are created again."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import torch

from .. import _override_library
from .._introspect import PATCH_SLOT, Counts, patch_frame
from .._introspect import measure_first_calls as set_measure


class Choice(NamedTuple):
    """How a patch computes products. With ``counts=None``, nothing is counted."""

    level: int | None
    kernel: str | None
    precision: str | None
    counts: Counts | None
    tune: bool = False
    extend: bool = False

    def frame(self, outer: Any = None) -> Any:
        level, kernel = self.level or 0, self.kernel or ""
        return patch_frame(level, kernel, self.precision, self.counts, outer, self.tune, self.extend)


def measure_first_calls() -> None:
    """Sets the function that measures, whose modules take 10 ms to import."""
    from .first_calls import measure

    set_measure(measure)


class Entry:
    """One ``with`` of a patch."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice


class _Entries(threading.local):
    """The entries of this thread, innermost last; ``outside``: the content of the slot before the first entry."""

    def __init__(self) -> None:
        self.inside: list[Entry] = []
        self.outside: Any = None


_entries = _Entries()


def innermost() -> Any:
    """The capsule of the active entry of this thread. In a thread of autograd, torch has copied it from the
    thread that started the backward pass."""
    return torch._C._get_obj_in_tls(PATCH_SLOT) if torch._C._is_key_in_tls(PATCH_SLOT) else None


def _set_innermost(frame: Any) -> None:
    library, _ = _override_library.load()
    assert library is not None  # or there are no entries
    library.enter(frame)


def depth() -> int:
    """How many patches this thread is in."""
    return len(_entries.inside)


def enter(choice: Choice) -> Entry:
    """Changes nothing if it raises, as Ctrl-C or a lack of memory may make it."""
    outer = innermost()
    frame = choice.frame(outer)
    entry = Entry(choice)
    if not _entries.inside:
        _entries.outside = outer
    _set_innermost(frame)
    _entries.inside.append(entry)
    return entry


def leave(entry: Entry) -> None:
    inside = [other for other in _entries.inside if other is not entry]
    frame = _entries.outside
    for left in inside:
        frame = left.choice.frame(frame)
    _set_innermost(frame)
    _entries.inside = inside
