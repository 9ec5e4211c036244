"""The entries of the kernels of packed weights, for counter_table_gemm.py: int4 with groups of 128. Codes and
scales are in one buffer, ``codes``."""

from fractions import Fraction

from counter_model import BF16, Access, Row

CODE, SCALE = "unit[at.byte]", "uint16_t*>(scales)"  # in weight_at() and scale_at()


def naive(s: int) -> list[Access]:
    """A warp has 32 rows of the weight: it reads 32 codes from 16 sectors, and their scales, for each row of x."""
    return [
        Access("global load codes", 1, requests=1, sectors=16, code=CODE),
        Access("global load codes", 2, requests=1, sectors=2, code=SCALE),
        Access("global load a", s, requests=1, sectors=1),
        Access("global store out", s, requests=1, sectors=s),
    ]


def tiled(s: int) -> list[Access]:
    """A code is read and decoded once for 32 rows of x. A warp decodes neighbours of a row."""
    return [
        Access("global load codes", 1, requests=Fraction(1, 32), sectors=2, code=CODE),
        Access("global load codes", 2, requests=Fraction(1, 32), sectors=1, code=SCALE),
        Access("global load a", s, requests=Fraction(1, 32), sectors=s),
        Access("shared store", 4, requests=Fraction(2, 32), conflict=1),
        Access("shared load", 4, requests=2, conflict=1),
        Access("global store out", s, requests=1, sectors=s),
    ]


def thread_tile(s: int) -> list[Access]:
    """A scale is read once for 8 codes. 4 + 4 numbers serve 16 multiply-adds."""
    return [
        Access("global load codes", 1, requests=Fraction(1, 64), sectors=16, code="unit.codes"),
        Access("global load codes", 2, requests=Fraction(1, 8 * 64), sectors=2, code=SCALE),
        Access("global load a", s, requests=Fraction(1, 64), sectors=s),
        Access("shared store", 4, requests=Fraction(2, 64), conflict=1),
        Access("shared load", 4, requests=Fraction(8, 16), conflict=1),
        Access("global store out", s, requests=1, sectors=4),
    ]


def vectorized(s: int) -> list[Access]:
    """A request has 512 bytes of codes, which serve 64 rows of x. Lanes store x down a column, two in a bank."""
    return [
        Access("global load codes", 16, requests=Fraction(1, 32 * 64), sectors=16, code="<Unit>(codes"),
        Access("global load codes", 2, requests=Fraction(1, 64 * 64), sectors=2, code="(scales"),
        Access("global load a", 16, requests=Fraction(s, 16 * 64), sectors=16),
        Access("shared store", 4, requests=Fraction(1, 64), conflict=1, code="w["),
        Access("shared store", 4, conflict=1, code="scale[0]"),
        Access("shared store", 4, conflict=1, code="normal_floats"),
        Access("shared store", 4, requests=Fraction(1, 64), conflict=2, code="to["),
        Access("shared load", 16, requests=Fraction(3, 32), conflict=1, code="<Vector16<float>>"),
        Access("shared load", 8, conflict=1, code="<Vector<float, 2>>"),  # scales
        Access("global store out", 8, sectors=8),
    ]


def cp_async(s: int) -> list[Access]:
    """The same bytes, by copies that need no registers. x is read along k, and so never transposed."""
    return [
        Access("global cp.async codes", 16, requests=Fraction(1, 32 * 64), sectors=16, code="codes + i"),
        Access("global cp.async codes", 16, sectors=4, code="scales + i"),
        Access("global cp.async a", 16, requests=Fraction(s, 16 * 64), sectors=16),
        Access("shared cp.async", 16, conflict=1),
        Access("shared load", conflict=1),
        Access("shared store", 4, conflict=1),
        Access("global store out", 8, sectors=8),
    ]


def mma(s: int) -> list[Access]:
    """Each code is read once for 64 rows of x, and never written: fragments are decoded in registers."""
    return [
        Access("global cp.async codes", 16),
        Access("global cp.async a", 16, sectors=16),
        Access("shared ldmatrix", 16, conflict=1),
        Access("none mma"),
        Access("global store out", 16),
    ]


def wgmma(s: int) -> list[Access]:
    """Two units of 64 x 128 codes and their scales are one request, which serves 32 rows of x. No thread
    reads x."""
    units = 2 * (64 * 128 // 2 + 64 * 2)
    return [
        Access("global tma load codes", units, requests=Fraction(32, 64 * 256 * 32), sectors=units / 32),
        Access("global tma load a", 32 * 64 * s, sectors=32 * 64 * s / 32),
        Access("none mma"),
    ]


def tiles(s: int) -> list[Access]:
    """The same, for tiles with more rows of x; results are stored in boxes."""
    return [
        Access("global tma load codes"),
        Access("global tma load a", 64 * 64 * s, sectors=64 * 64 * s / 32),
        Access("none mma"),
        Access("shared stmatrix", 16, conflict=1),
        Access("global tma store out"),
    ]


SHAPE, TYPES = (64, 256, 256), (BF16,)
SOME = {"all_accesses": False, "in_flight": lambda n: n > 0}
PACKED = {
    "packed_naive": Row("decodes as it reads", naive, SHAPE, TYPES),
    "packed_tiled": Row("decodes once for 32 rows of x", tiled, SHAPE, TYPES),
    "packed_thread_tile": Row("one scale for 8 codes, 4 x 4 results a thread", thread_tile, SHAPE, TYPES),
    "packed_vectorized": Row("16 bytes of codes a thread, as they lie", vectorized, SHAPE, TYPES),
    "packed_cp_async": Row(
        "two of three stages in flight", cp_async, SHAPE, TYPES, False, lambda n: n >= 2 * 4096
    ),
    "packed_mma": Row("fragments decoded in registers", mma, SHAPE, TYPES, **SOME),
    "packed_wgmma": Row("two whole units by one request", wgmma, SHAPE, TYPES, **SOME),
    "packed_tiles": Row("more rows of x for each decoded code", tiles, SHAPE, TYPES, **SOME),
}
