"""Stores the active patches: in torch's thread-local state, and for the whole process.

The innermost entry of a thread is in a slot of torch's own, which autograd copies to its threads for a backward
pass. A frame never changes. If a patch is left before the patches inside it, its entry is removed, and the inner
entries get new frames."""

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
    """One ``with`` of a patch. Its frame names those around it."""

    def __init__(self, choice: Choice, frame: Any) -> None:
        self.choice, self.frame = choice, frame


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
    outer, before = innermost(), _entries.inside
    entry = Entry(choice, choice.frame(outer))
    if not before:
        _entries.outside = outer
    try:
        _set_innermost(entry.frame)
        _entries.inside = [*before, entry]
    except BaseException:
        _entries.inside = before
        _set_innermost(outer)
        raise
    return entry


def leave(entry: Entry) -> None:
    """The entry is left even if this raises. Then the entries inside it that have no new frame end, too."""
    if entry not in _entries.inside:
        return
    at = _entries.inside.index(entry)
    inner = _entries.inside[at + 1 :]
    _entries.inside = _entries.inside[:at]
    try:
        for other in inner:
            other.frame = other.choice.frame(_last_frame())
            _entries.inside.append(other)
    finally:
        _set_innermost(_last_frame())


def _last_frame() -> Any:
    return _entries.inside[-1].frame if _entries.inside else _entries.outside
