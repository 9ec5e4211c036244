"""Memory that calls leave behind, to the byte."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable

CALLS = 100_000
FEWEST = CALLS // 80  # of what takes a millisecond
PYTHON_BLOCK = 32  # what a block of Python's own allocator counts; malloc's smallest takes as much
SETTLED = 1 << 14  # bytes that caches and tables may grow by, whatever the number of calls
PER_CALL = 12  # bytes: one smallest block a call is found within FEWEST calls

libc = ctypes.CDLL(None)


class Mallinfo2(ctypes.Structure):
    """What glibc's malloc says of itself: https://man7.org/linux/man-pages/man3/mallinfo.3.html"""

    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
    ]


libc.mallinfo2.restype = Mallinfo2


def held() -> int:
    """Bytes in use: those that malloc counts, to the byte, and a block of Python's own allocator as 32.

    Unlike the resident memory of the process this sees one small object a call within some hundred calls.
    """
    gc.collect()
    libc.malloc_trim(0)
    malloc = libc.mallinfo2()
    return malloc.uordblks + malloc.hblkhd + PYTHON_BLOCK * sys.getallocatedblocks()


def growth(call: Callable[[], object], calls: int) -> int:
    """Bytes more in use after ``calls`` calls than before, less what may settle once."""
    for _ in range(min(calls // 4, 2000)):
        call()
    before = held()
    for _ in range(calls):
        call()
    return held() - before - SETTLED


def keeps_nothing(call: Callable[[], object], calls: int) -> bool:
    return growth(call, calls) < PER_CALL * calls
