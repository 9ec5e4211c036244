"""The entries of the kernels that use wgmma, for counter_table_gemm.py."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from counter_model import BF16, Access, Row

BOX_OF_A = Access("global tma load a", 16384, requests=Fraction(32, 128 * 128 * 64), sectors=512)
BOXES_OF_B = Access("global tma load b", 8192, requests=Fraction(2 * 32, 128 * 128 * 64), sectors=256)


def wgmma(s: int) -> list[Access]:
    """One box of A and two of the row-major B for 128 x 128 x 64 multiply-adds; no thread reads an operand."""
    store = Access("global store out", s, requests=1, sectors=8)  # 4 lanes in each of 8 rows
    return [BOX_OF_A, BOXES_OF_B, Access("none mma"), store]


# The tile of a block is twice as wide, so there are half as many boxes of A.
WIDE_BOXES = [replace(BOX_OF_A, requests=BOX_OF_A.requests / 2), BOXES_OF_B]


def in_boxes(operands: list[Access]) -> Callable[[int], list[Access]]:
    """The TMA stores boxes of 16 rows in whole lines. Eight rows at a time are in different banks."""
    staged = Access("shared store", 4, conflict=1)
    stored = Access("global tma store out", 2048, sectors=64)
    return lambda s: [*operands, Access("none mma"), staged, stored]


def wgmma_specialized(s: int) -> list[Access]:
    """The TMA stores boxes of 16 rows in whole lines. Threads fill the boxes without bank conflicts."""
    staged = Access("shared stmatrix", 16, conflict=1)
    return [
        BOX_OF_A,
        BOXES_OF_B,
        Access("none mma"),
        staged,
        Access("global tma store out", 2048, sectors=64),
    ]


def one_wave(s: int) -> list[Access]:
    """Tiles of 64 x 64. Shared memory rearranges results into lines without bank conflicts."""
    per_tile = Fraction(32, 64 * 64 * 64)
    return [
        Access("global tma load a", 8192, requests=per_tile, sectors=256),
        Access("global tma load b", 8192, requests=per_tile, sectors=256),
        Access("none mma"),
        Access("shared stmatrix", 16, conflict=1),
        Access("shared load", 16, conflict=1),
        Access("global store out", 16, requests=Fraction(1, 8), sectors=16),
    ]


WGMMA = {
    "one_wave": Row(
        *("a small tile for each multiprocessor, stores of lines", one_wave, (256, 512, 512), (BF16,)),
        in_flight=lambda n: n == 8 * 16 * 1024,
    ),
    "wgmma": Row(
        *("the tensor cores read shared memory, without registers", wgmma, (256, 512, 256), (BF16,)),
        in_flight=lambda n: n == 3 * 32 * 1024,
    ),
    **{
        name: Row(*(idea, wgmma, (256, 512, 512), (BF16,)), in_flight=lambda n: n == 3 * 32 * 1024)
        for name, idea in (
            ("wgmma_ring", "the same accesses, requested by a separate warp"),
            ("wgmma_persistent", "the same accesses, tile after tile"),
        )
    },
    **{
        name: Row(
            *(idea, in_boxes(operands), (256, 512, 512), (BF16,)),
            in_flight=lambda n, stages=stages, kilobytes=kilobytes: n == stages * kilobytes * 1024,
        )
        for name, operands, stages, kilobytes, idea in (
            ("wgmma_boxes", [BOX_OF_A, BOXES_OF_B], 3, 32, "the TMA stores results in whole lines"),
            ("wgmma_setmaxnreg", WIDE_BOXES, 4, 48, "the same accesses, other registers"),
            ("wgmma_wide", WIDE_BOXES, 3, 48, "half as many boxes of A"),
            ("wgmma_deep", WIDE_BOXES, 4, 48, "the same boxes, a third more of them in flight"),
            (
                "wgmma_overlapped",
                WIDE_BOXES,
                4,
                48,
                "the same accesses, stores that do not wait for the last",
            ),
            ("wgmma_fused", WIDE_BOXES, 4, 48, "the same accesses; what it saves: test_simulator_linear.py"),
        )
    },
    "wgmma_specialized": Row(
        *("results by stmatrix, and lines without the LSU", wgmma_specialized, (256, 512, 512), (BF16,)),
        in_flight=lambda n: n == 6 * 32 * 1024,
    ),
}
