"""Measures the memory that calls leak, to the byte."""

import ctypes
import gc
import sys
from collections.abc import Callable

CALLS = 100_000
FEWEST = CALLS // 80  # for calls that take a millisecond
PYTHON_BLOCK = 32  # bytes counted for a block of Python's own allocator; malloc's smallest block is as large
SETTLED = 1 << 14  # caches and tables may grow once by this many bytes, regardless of the number of calls
PER_CALL = 12  # bytes; one smallest block per call is found within FEWEST calls

libc = ctypes.CDLL(None)


class Mallinfo2(ctypes.Structure):
    """The statistics of glibc's malloc: https://man7.org/linux/man-pages/man3/mallinfo.3.html"""

    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
    ]


libc.mallinfo2.restype = Mallinfo2


def held() -> int:
    """Bytes in use: those of malloc, and 32 for each block of Python's own allocator.

    Unlike the resident memory of the process, this shows one small object per call within a few hundred
    calls.
    """
    gc.collect()
    libc.malloc_trim(0)
    malloc = libc.mallinfo2()
    return malloc.uordblks + malloc.hblkhd + PYTHON_BLOCK * sys.getallocatedblocks()


def growth(call: Callable[[], object], calls: int) -> int:
    """How many bytes are still in use after the calls, minus what caches may grow once."""
    for _ in range(min(calls // 4, 2000)):
        call()
    before = held()
    for _ in range(calls):
        call()
    return held() - before - SETTLED


def keeps_nothing(call: Callable[[], object], calls: int) -> bool:
    return growth(call, calls) < PER_CALL * calls
