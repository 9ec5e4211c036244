"""``FASTGEMM_PATCH=report``: a process prints what it has routed when it ends.

A forked process starts from zero, since its parent reports its own counts. A process that multiprocessing has
forked ends without Python's atexit, but runs multiprocessing's own finalizers."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.util import Finalize, register_after_fork

from .._introspect import Counts
from .routed import Routed

MEANING = {
    "torch": "torch's own kernel, called by fastgemm",
    "none: nothing was multiplied": "nothing: the result is empty",
}


class _Report:
    def __init__(self, count_in: Callable[[Counts], None]) -> None:
        self._count_in = count_in
        self.begin()

    def begin(self) -> None:
        self._routed = Routed()
        self._told = False
        self._count_in(self._routed._counts)

    def tell(self) -> None:
        """Prints once. A worker process of multiprocessing that multiplied nothing prints nothing."""
        text = text_of(self._routed)
        if self._told or sys.stderr is None or (text is None and parent_process() is not None):
            return
        self._told = True
        found = ": no product was routed" if text is None else f"\n{text}"
        with contextlib.suppress(OSError, ValueError):  # stderr is closed
            # One write: print's own newline would let another process's line in between.
            sys.stderr.write(f"fastgemm: FASTGEMM_PATCH=report, process {os.getpid()}{found}\n")
            sys.stderr.flush()


def report(count_in: Callable[[Counts], None]) -> None:
    """Calls ``count_in`` with the counts that this process prints at its end; again in a forked process."""
    told = _Report(count_in)
    atexit.register(told.tell)
    os.register_at_fork(after_in_child=told.begin)
    register_after_fork(told, lambda told: Finalize(None, told.tell, exitpriority=0))


def text_of(routed: Routed) -> str | None:
    """A table of calls, the most frequent first; None if there were no products."""
    counted = [(calls, op, MEANING.get(by, by)) for (op, by), calls in routed._counts.rows(True).items()]
    counted += [(calls, op, f"passed on to torch: {why}") for (op, why), calls in routed.passed_on.items()]
    if not counted:
        return None
    counted.sort(key=lambda row: (-row[0], *row[1:]))
    rows = [("calls", "op", "computed by"), *((f"{calls:,}", op, by) for calls, op, by in counted)]
    calls, ops = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "\n".join(f"  {row[0]:>{calls}}  {row[1]:{ops}}  {row[2]}" for row in rows)
