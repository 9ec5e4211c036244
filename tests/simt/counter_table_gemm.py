"""The rows of GEMM in counter_table.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import torch
from counter_model import BF16, F32, F64, I8, TYPES, Access, Row
from counter_table_wgmma import BOX_OF_A, BOXES_OF_B, WGMMA


def sum_of(size: int) -> int:
    """Bytes of the accumulator: what shared tiles of levels 2 to 4 hold, and int8's results."""
    return max(size, 4)


def out_of(size: int) -> int:
    return 4 if size == 1 else size


def naive(strided: bool) -> Callable[[int], list[Access]]:
    """Lanes along a row of C share the element of A, those down a column share that of B."""
    return lambda s: [
        Access("global load a", s, requests=1, sectors=32 if strided else 1),
        Access("global load b", s, requests=1, sectors=1 if strided else s),
        Access("global store out", out_of(s), requests=1, sectors=32 if strided else out_of(s)),
    ]


def tiled(s: int) -> list[Access]:
    """In a tile 32 wide, an element read once from global memory serves 32 multiply-adds. Each multiply-add
    still reads two elements from the tile."""
    return [
        Access("global load a", s, requests=Fraction(1, 32), sectors=s),
        Access("global load b", s, requests=Fraction(1, 32), sectors=s),
        Access("shared store", sum_of(s), requests=Fraction(2, 32), conflict=1),
        Access("shared load", sum_of(s), requests=2, conflict=1),
        Access("global store out", out_of(s), requests=1, sectors=out_of(s)),
    ]


def thread_tile(padded: bool) -> Callable[[int], list[Access]]:
    """4 + 4 values serve 16 multiply-adds. Lanes read 4 rows of A, which share a bank unless padded."""
    return lambda s: [
        Access("global load a", s, requests=Fraction(1, 64), sectors=s),
        Access("global load b", s, requests=Fraction(1, 64), sectors=s),
        Access("shared store", sum_of(s), requests=Fraction(2, 64), conflict=1),
        Access(
            "shared load", sum_of(s), requests=Fraction(4, 16), conflict=1 if padded else 4, code="a[i] = "
        ),
        Access("shared load", sum_of(s), requests=Fraction(4, 16), conflict=1, code="b[j] = "),
        Access("global store out", out_of(s), requests=1, sectors=max(4, out_of(s))),  # 4 rows of 8
    ]


def wide(s: int) -> list[Access]:
    """16 bytes an access: 8 + 8 values serve 64 multiply-adds.

    B is widened on its way to shared memory, so one lane writes several vectors. Adjacent lanes write their
    first vectors together.
    """
    widened = sum_of(s) // s
    return [
        Access("global load a", 16, requests=Fraction(s, 16 * 128), sectors=16),
        Access("global load b", 16, requests=Fraction(s, 16 * 128), sectors=16),
        Access(
            "shared store", 16, requests=Fraction(sum_of(s), 16 * 128), code="store_vector", conflict=widened
        ),
        Access("shared store", sum_of(s), requests=Fraction(1, 128), code="to[e * kPitch]"),
        Access("shared load", 16, requests=Fraction(16, 64) * sum_of(s) / 16, conflict=1),
        Access("global store out", None, code="store_vector", sectors=4 * out_of(s) if s != 8 else 16),
    ]


def small_tiles(side: int) -> Callable[[int], list[Access]]:
    """Level 4's accesses, each element once for a block tile; a thread has 4 + 4 values for 16 multiply-adds.

    An operand that is widened on its way to shared memory takes twice as many wavefronts as its bytes.
    """
    return lambda s: [
        Access("global load a", 16, requests=Fraction(s, 16 * side), sectors=16),
        Access("global load b", 16, requests=Fraction(s, 16 * side), sectors=16),
        Access("shared store", sum_of(s), requests=Fraction(1, side), conflict=1 + (s < 4), code="to["),
        Access(
            *("shared store", 16),
            requests=Fraction(sum_of(s), 16 * side),
            conflict=1 + (s < 4),
            code="store_vector",
        ),
        Access("shared load", 16, requests=Fraction(8, 16) * sum_of(s) / 16, conflict=1),
        Access("global store out", None, code="store_vector"),
    ]


def float4(whole: bool) -> Callable[[int], list[Access]]:
    """4 + 4 values for 16 multiply-adds, as 2 vectors or as 8 words (of which nvcc joins some)."""
    return lambda s: [
        Access("global load a", 4, requests=Fraction(1, 64), sectors=4),
        Access("global load b", 4, requests=Fraction(1, 64), sectors=4),
        # A is transposed on its way: rows of 68 words share 4 banks.
        Access("shared store", 4, requests=Fraction(2, 64), conflict=(4 + 1) / 2 if whole else 1),
        Access("shared load", 16 if whole else 4, requests=Fraction(2 if whole else 8, 16), conflict=1),
        Access("global store out", 4, requests=1, sectors=16),
    ]


def cp_async(s: int) -> list[Access]:
    """Level 4's ratio, but panels come past the registers."""
    return [
        Access("global cp.async workspace", 16, requests=Fraction(s, 16 * 128), sectors=16),
        Access("global cp.async b", 16, requests=Fraction(s, 16 * 128), sectors=16),
        Access("shared cp.async", 16, requests=Fraction(2 * s, 16 * 128), conflict=1),
        Access("shared load", 16, requests=Fraction(16, 64) * s / 16, conflict=1, code="load_vector"),
    ]


def by_roles(values: int, sums: int) -> Callable[[int], list[Access]]:
    """So many loaded values for so many multiply-adds. A warp asks for boxes of panels; no other reads A or B."""
    return lambda s: [
        Access("global tma load workspace"),
        Access("global tma load b"),
        Access("shared load", 16, requests=Fraction(values, sums) * s / 16, conflict=1, code="load_vector"),
    ]


def skinny(s: int) -> list[Access]:
    """As wgmma_specialized for the columns of C; 16 neighbours of C leave together, in two rows by turns."""
    return [
        Access("global tma load a", 2048, requests=Fraction(32, 16 * 64 * 64), sectors=64),
        Access("global tma load b", 8192, requests=Fraction(32, 16 * 64 * 64), sectors=256),
        Access("none mma"),
        Access("shared store", 4, conflict=1),
        Access("shared load", 4, conflict=1),
        Access("global store out", s, requests=1, sectors=s),
    ]


def narrow(s: int) -> list[Access]:
    """B in whole lines straight to registers, each element once for four rows of A; one round of sums."""
    return [
        Access("global load b", 16, requests=Fraction(s, 16) / 4, sectors=16),
        Access("shared store", s, conflict=1),
        Access("shared load", s, conflict=1),
        Access("global store out", s),
    ]


def images(sectors: int) -> Callable[[int], list[Access]]:
    """Whole images come past the threads; four lanes store 8 or 16 neighbours of C, in two rows by turns."""

    def accesses(s: int) -> list[Access]:
        stores = Access("global store out", sectors=sectors)
        return [Access("global tma load workspace"), Access("none mma"), stores]

    return accesses


def residues(s: int) -> list[Access]:
    """Sums leave as bytes, 16 of a thread's at a time, in whole lines; in fours they would not."""
    return [
        Access("global tma load workspace"),
        Access("none mma"),
        Access("global store workspace", 16, sectors=16),
    ]


def by_warps(tile: tuple[int, int], fragments: Access) -> Callable[[int], list[Access]]:
    """Operands of a block tile come past the registers, without conflicts like the fragments of a warp tile.

    Sums go through shared memory, so that results leave in whole lines.
    """

    def accesses(s: int) -> list[Access]:
        (bm, bn), units = tile, Fraction(s, 16)
        return [
            Access("global cp.async a", 16, requests=units / bn, sectors=16),
            Access("global cp.async b", 16, requests=units / bm, sectors=16),
            # A stage more than there are is asked for, and one step more is read.
            Access("shared cp.async", 16, conflict=1),
            fragments,
            Access("none mma"),
            Access("global store out", 16, requests=Fraction(s, 16), sectors=16),
        ]

    return accesses


# wmma leaves it to the compiler how a fragment is loaded; the simulator does it element by element.
WMMA = by_warps((128, 128), Access("shared load", 2, conflict=1, code="wmma_load_shared"))
# 8 loads for 64 x 64 sums and 16 of k.
MMA_SYNC = by_warps(
    (128, 256), Access("shared ldmatrix", 16, requests=Fraction(8, 64 * 64 * 16 // 32), conflict=1)
)


def mma_ldmatrix(s: int) -> list[Access]:
    """8 loads for 64 x 64 sums and 16 steps of k. B, which runs along n, is copied first."""
    units = Fraction(s, 16) / 128
    return [
        Access("global cp.async a", 16, requests=units, sectors=16),
        Access("global cp.async workspace", 16, requests=units, sectors=16),
        Access("shared cp.async", 16, requests=2 * units, conflict=1),
        Access("shared ldmatrix", 16, requests=Fraction(8, 64 * 64 * 16 // 32), conflict=1),
        Access("none mma"),
        Access("global store out", s, requests=1, sectors=8),
    ]


# No fragments: wgmma reads the tiles itself. Each request for sums brings 4 per lane.
SMALL_TILE = by_warps((64, 64), Access("shared load", 16, conflict=1))


def direct(s: int) -> list[Access]:
    """Each element is read once for a tile of 32 x 32: four adjacent ones of 8 rows of A, eight of 4 rows of
    B.

    Only sums pass through shared memory.
    """
    return [
        Access("global load a", s, requests=Fraction(1, 32), sectors=8),
        Access("global load b", s, requests=Fraction(1, 32), sectors=s),
        Access("shared store", 16, conflict=1),
        Access("shared load", 8, conflict=1),
        Access("none mma"),
        Access("global store out", s, requests=1, sectors=s),
    ]


def split_k(s: int) -> list[Access]:
    """Operands as in wgmma; the sums, in whole sectors, are for the kernel that adds them."""
    return [BOX_OF_A, BOXES_OF_B, Access("none mma"), Access("global store workspace", 8, sectors=8)]


# 16 loads for 32 x 32 sums and 8 of k.
DMMA = Row(
    "the same of doubles, which come element by element",
    by_warps(
        (128, 64),
        Access("shared load", 8, requests=Fraction(16, 32 * 32 * 8 // 32), conflict=1, code="const double*"),
    ),
    (256, 256, 256),
    (F64,),
    all_accesses=False,
    tolerance=0.04,  # one step more is read than multiplied
    in_flight=lambda n: n == 3 * 24 * 1024,
)


def raw_tiles(bm: int, bn: int, more: tuple[Access, ...]) -> Callable[[int], list[Access]]:
    """Operands that lie in shared memory as in global memory, each element read once a block tile."""
    return lambda s: [
        Access("global cp.async a", 16, requests=Fraction(s, 16) / bn, sectors=16),
        Access("global cp.async b", 16, requests=Fraction(s, 16) / bm, sectors=16),
        *(Access(f"shared {kind}", conflict=1) for kind in ("cp.async", "load", "store")),
        *more,
    ]


SMALL, LEVEL_5 = (128, 128, 64), (640, 640, 640)
GEMM = {
    "naive": Row("coalesced: B in whole sectors, A by broadcast", naive(strided=False), SMALL, TYPES),
    "naive_uncoalesced": Row("its opposite: a sector for each lane", naive(strided=True), SMALL, TYPES),
    "tiled": Row("a 32nd of the global reads; shared ones instead", tiled, SMALL, TYPES),
    "thread_tile": Row(
        "a quarter of the shared reads, no conflicts", thread_tile(padded=True), SMALL, (F32, BF16, I8)
    ),
    "thread_tile_unpadded": Row(
        "the same with 4-way conflicts", thread_tile(padded=False), SMALL, (F32, BF16, I8)
    ),
    "vectorized": Row("16 bytes an access on all ways", wide, SMALL, TYPES),
    "float4_padded68": Row("vectors from rows that keep them aligned", float4(whole=True), SMALL, (F32,)),
    "float4_padded65": Row("rows that do not: four words for a vector", float4(whole=False), SMALL, (F32,)),
    "double_buffer_sync": Row("as vectorized; nothing flies but through registers", wide, SMALL, (F32,)),
    "small": Row("the next panels come into registers meanwhile", small_tiles(64), SMALL, TYPES),
    "cp_async": Row(
        *("two stages of 16 KB on their way while one is multiplied", cp_async, LEVEL_5, (F32,), False),
        in_flight=lambda n: n == 2 * 16 * 1024,
    ),
    "warp_specialized": Row(
        *(
            "the fewest shared reads, the most bytes in flight",
            by_roles(24, 128),
            (1024, 768, 272),
            (F32,),
            False,
        ),
        in_flight=lambda n: n >= 3 * 32 * 1024,
        tolerance=0.03,  # stream-K: blocks begin and end in the middle of tiles
    ),
    **{
        name: Row(
            *(idea, by_roles(values, sums), (384, 512, 256), (F32,), False),
            in_flight=lambda n, least=least: n >= least * 1024,
        )
        for name, idea, values, sums, least in (
            ("producer_warp", "cp_async's reads; a warp asks for four stages of 16 KB", 16, 64, 3 * 16),
            ("producer_warp_wide", "a quarter fewer shared reads", 24, 128, 3 * 24),
        )
    },
    "mma_ldmatrix": Row(
        *(
            "swizzled tiles that ldmatrix reads, each fragment once a step",
            mma_ldmatrix,
            (256, 512, 512),
            (BF16,),
        ),
        in_flight=lambda n: n == 2 * 32 * 1024,
    ),
    "wmma": Row(
        *("four warps of 64 x 64 sums from padded tiles", WMMA, (256, 512, 512), (BF16,)),
        all_accesses=False,
        in_flight=lambda n: n == 2 * 32 * 1024,
    ),
    "mma_sync": Row(
        *("swizzled tiles that ldmatrix reads", MMA_SYNC, (256, 512, 512), (BF16,)),
        all_accesses=False,
        tolerance=0.04,  # one step more is read than multiplied
        in_flight=lambda n: n == 2 * 48 * 1024,
    ),
    "small_tile": Row(
        *("all of k on its way at once", SMALL_TILE, (128, 192, 256), (BF16,), False),
        in_flight=lambda n: n == 4 * 16 * 1024,
    ),
    "direct": Row(
        *("operands go straight to the tensor cores' registers", direct, (128, 128, 64), (F64, F32)),
    ),
    "split_k": Row(
        *("sums of many parts of k, written past each other", split_k, (256, 128, 2048), (BF16,)),
        in_flight=lambda n: n == 4 * 32 * 1024,
    ),
    "dmma": DMMA,
    "dmma_m8n8k4": replace(DMMA, idea="another instruction for the same accesses"),
    **WGMMA,
    # The sums of a part of k go to the workspace.
    "bf16x6_fused": Row(
        "float32 is read once, and cut on its way to the tensor cores",
        raw_tiles(64, 128, (Access("none mma"), Access("global store workspace", 16, sectors=16))),
        (64, 512, 4096),
        (F32,),
        in_flight=lambda n: n >= 40 * 1024,
    ),
    "crt": Row(
        *("products of bytes, reduced before they leave the chip", residues, (256, 512, 512), (F64,)),
        all_accesses=False,  # which tiles there are is read, too
        in_flight=lambda n: n == 4 * 48 * 1024,
    ),
    "batched": Row("tiles that small matrices fill", small_tiles(32), (128, 128, 128), (F32, torch.int32)),
    "skinny": Row(
        *("nothing but one operand moves, 8 boxes of it at a time", skinny, (16, 8192, 1024), (BF16,)),
        in_flight=lambda n: n == 8 * (8 + 2) * 1024,
    ),
    "narrow": Row(
        *("one operand straight to registers, four sums for each element", narrow, (8, 4096, 64), (F32, F64)),
        all_accesses=False,  # A comes from the caches
    ),
    # What blocks hand to each other goes through the workspace as well.
    **{
        name: Row(
            *("operands lie as shared memory has them", images(sectors), (256, 384, 512), (dtype,)),
            all_accesses=False,
            in_flight=lambda n, least=least: n >= least * 1024,
        )
        for name, dtype, sectors, least in (
            *(("bf16x6", F32, 8, 128), ("bf16x3", F32, 8, 128), ("fp16x3", F32, 8, 128)),
            ("int8x10", torch.int32, 8, 128),
            ("int16x4", torch.int16, 16, 64),  # a block has four stages of two planes here
        )
    },
}
