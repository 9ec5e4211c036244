"""States the purpose of every CUDA row of the kernel table in counters. test_counters.py checks TABLE.

A new kernel needs an entry with its intended memory accesses. The entries of GEMM are in
counter_table_gemm.py.
"""

from collections.abc import Callable
from fractions import Fraction

from counter_model import BF16, C128, F32, F64, I8, TYPES, Access, Row
from counter_table_gemm import GEMM

# --- transpose

# By element size: how many lanes along a column of 32-element rows access the same bank.
COLUMN_CONFLICT = {1: 8, 2: 16, 4: 32, 8: 16, 16: 8}


def moved(read: float, written: float) -> list[Access]:
    return [
        Access("global load a", requests=1, sectors=read),
        Access("global store out", requests=1, sectors=written),
    ]


def through_tile(conflict: Callable[[int], float]) -> Callable[[int], list[Access]]:
    return lambda s: [
        *moved(s, s),
        Access("shared store", s, requests=1, conflict=1),
        Access("shared load", s, requests=1, conflict=conflict(s)),
    ]


def by_vectors(s: int) -> list[Access]:
    return [
        Access("global load a", 16, requests=Fraction(s, 16), sectors=16),
        Access("shared store", 16, requests=Fraction(s, 16), conflict=1),
        Access("shared load", 16, requests=Fraction(s, 16), conflict=1),
        Access("global store out", 16, requests=Fraction(s, 16), sectors=16),
    ]


def pipelined(s: int) -> list[Access]:
    """One more pass through shared memory: the tile is transposed in place.

    Here the tiles are few. So for elements of up to 4 bytes they are small and transposed word by word. Elements
    smaller than a word are combined with those of the next word.
    """
    words = 0 if s > 4 else 1 if s == 4 else 2
    turned = Access("shared load", 16, requests=Fraction(s, 16), conflict=1, code="[k] = ")
    if words:
        turned = Access("shared load", 4, requests=words * Fraction(s, 4), conflict=1, code="from[")
    return [
        Access("global cp.async a", 16, requests=Fraction(s, 16), sectors=16),
        Access("shared cp.async", 16, requests=Fraction(s, 16), conflict=1),
        turned,
        Access("shared load", 16, requests=Fraction(s, 16), conflict=1, code="store_vector"),
        Access("shared store", 16, requests=Fraction(s, 16), conflict=1),
        Access("global store out", 16, requests=Fraction(s, 16), sectors=16),
    ]


SQUARE = (512, 512)
WIDTHS = (F32, BF16, I8, F64, C128)
TRANSPOSE = {
    "naive": Row("coalesced reads, one written sector for each lane", lambda s: moved(s, 32), SQUARE, WIDTHS),
    "naive_strided_read": Row("strided reads, coalesced writes", lambda s: moved(32, s), SQUARE, WIDTHS),
    "shared": Row(
        "coalesced global accesses, bank conflicts", through_tile(COLUMN_CONFLICT.__getitem__), SQUARE, WIDTHS
    ),
    "padded": Row("no conflicts", through_tile(lambda s: 1), SQUARE, WIDTHS),
    "vectorized": Row("16 bytes in each access to global and shared memory", by_vectors, SQUARE, WIDTHS),
    "saturating": Row("the same with larger tiles", by_vectors, SQUARE, WIDTHS),
    "pipelined": Row(
        "tiles in flight, without registers", pipelined, SQUARE, WIDTHS, in_flight=lambda n: n >= 4096
    ),
}

# --- add


def added(sectors: float, staged: float | None = None) -> list[Access]:
    in_global = [
        Access(f"global {what}", requests=1, sectors=sectors) for what in ("load a", "load b", "store out")
    ]
    if staged is None:
        return in_global
    return [
        *in_global,
        *(Access(f"shared {kind}", requests=2, conflict=staged) for kind in ("store", "load")),
    ]


def added_by_vectors(s: int) -> list[Access]:
    return [
        Access(f"global {what}", 16, requests=Fraction(s, 16), sectors=16)
        for what in ("load a", "load b", "store out")
    ]


PLANE = (256, 256)
ADD = {
    "naive": Row("a line of 32 neighbours for each request", lambda s: added(s), PLANE, TYPES),
    "staged": Row("the same, with a useless detour", lambda s: added(s, staged=1), PLANE, TYPES),
    "staged_transposed": Row(
        *("strided in global and shared memory", lambda s: added(32, staged=COLUMN_CONFLICT[s]), PLANE, TYPES)
    ),
    "vectorized": Row("16 bytes in each access", added_by_vectors, PLANE, TYPES),
    "saturating": Row("the same, twice as many in flight", added_by_vectors, PLANE, TYPES),
}

TABLE = {
    (op, name): row
    for op, rows in (("gemm", GEMM), ("transpose", TRANSPOSE), ("add", ADD))
    for name, row in rows.items()
}
