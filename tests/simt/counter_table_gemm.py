"""The entries of GEMM's rows for counter_table.py."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import torch
from counter_model import BF16, F32, F64, I8, TYPES, Access, Row
from counter_table_packed import PACKED
from counter_table_wgmma import BOX_OF_A, BOXES_OF_B, WGMMA


def sum_of(size: int) -> int:
    """Bytes of the accumulator type. Shared tiles of levels 2 to 4 and results of int8 have this type."""
    return max(size, 4)


def out_of(size: int) -> int:
    return 4 if size == 1 else size


def naive(strided: bool) -> Callable[[int], list[Access]]:
    """Lanes along a row of C read the same element of A. Lanes along a column read the same element of B."""
    return lambda s: [
        Access("global load a", s, requests=1, sectors=32 if strided else 1),
        Access("global load b", s, requests=1, sectors=1 if strided else s),
        Access("global store out", out_of(s), requests=1, sectors=32 if strided else out_of(s)),
    ]


def tiled(s: int) -> list[Access]:
    """With tiles of 32 x 32, an element read once from global memory serves 32 multiply-adds. Each multiply-add
    still reads two elements from shared memory."""
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
    """Each access has 16 bytes. 8 + 8 values serve 64 multiply-adds.

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
    """As level 4. A block tile reads each element once, and a thread has 4 + 4 values for 16 multiply-adds.

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
        # A is transposed while it is stored: rows of 68 words share 4 banks.
        Access("shared store", 4, requests=Fraction(2, 64), conflict=(4 + 1) / 2 if whole else 1),
        Access("shared load", 16 if whole else 4, requests=Fraction(2 if whole else 8, 16), conflict=1),
        Access("global store out", 4, requests=1, sectors=16),
    ]


def cp_async(s: int) -> list[Access]:
    """The ratio of level 4, but panels are copied without registers."""
    return [
        Access("global cp.async workspace", 16, requests=Fraction(s, 16 * 128), sectors=16),
        Access("global cp.async b", 16, requests=Fraction(s, 16 * 128), sectors=16),
        Access("shared cp.async", 16, requests=Fraction(2 * s, 16 * 128), conflict=1),
        Access("shared load", 16, requests=Fraction(16, 64) * s / 16, conflict=1, code="load_vector"),
    ]


def by_roles(values: int, sums: int) -> Callable[[int], list[Access]]:
    """``values`` loaded values serve ``sums`` multiply-adds. Only one warp reads A and B, by boxes of panels."""
    return lambda s: [
        Access("global tma load workspace"),
        Access("global tma load b"),
        Access("shared load", 16, requests=Fraction(values, sums) * s / 16, conflict=1, code="load_vector"),
    ]


def skinny(s: int) -> list[Access]:
    """As wgmma_specialized for the columns of C. Each store writes 16 neighbours of C in each of two rows."""
    return [
        Access("global tma load a", 2048, requests=Fraction(32, 16 * 64 * 64), sectors=64),
        Access("global tma load b", 8192, requests=Fraction(32, 16 * 64 * 64), sectors=256),
        Access("none mma"),
        Access("shared store", 4, conflict=1),
        Access("shared load", 4, conflict=1),
        Access("global store out", s, requests=1, sectors=s),
    ]


def narrow(s: int) -> list[Access]:
    """Registers load B in whole lines, each element once for four rows of A. Sums are exchanged once."""
    return [
        Access("global load b", 16, requests=Fraction(s, 16) / 4, sectors=16),
        Access("shared store", s, conflict=1),
        Access("shared load", s, conflict=1),
        Access("global store out", s),
    ]


def images(sectors: int) -> Callable[[int], list[Access]]:
    """The TMA loads whole images. Four lanes store 8 or 16 neighbours of C, alternately in two rows."""

    def accesses(s: int) -> list[Access]:
        stores = Access("global store out", sectors=sectors)
        return [Access("global tma load workspace"), Access("none mma"), stores]

    return accesses


def residues(s: int) -> list[Access]:
    """A thread stores sums as 16 bytes at a time, which fill whole lines. Four bytes would not."""
    return [
        Access("global tma load workspace"),
        Access("none mma"),
        Access("global store workspace", 16, sectors=16),
    ]


def by_warps(tile: tuple[int, int], fragments: Access) -> Callable[[int], list[Access]]:
    """Operands of a block tile are copied without registers. Neither copies nor fragments have bank conflicts.

    Sums pass through shared memory, so that results are stored in whole lines.
    """

    def accesses(s: int) -> list[Access]:
        (bm, bn), units = tile, Fraction(s, 16)
        return [
            Access("global cp.async a", 16, requests=units / bn, sectors=16),
            Access("global cp.async b", 16, requests=units / bm, sectors=16),
            # One stage and one step too many are requested at the end.
            Access("shared cp.async", 16, conflict=1),
            fragments,
            Access("none mma"),
            Access("global store out", 16, requests=Fraction(s, 16), sectors=16),
        ]

    return accesses


# The compiler decides how wmma loads a fragment. The simulator does it element by element.
WMMA = by_warps((128, 128), Access("shared load", 2, conflict=1, code="wmma_load_shared"))
# 8 loads for 64 x 64 sums and 16 steps of k.
MMA_SYNC = by_warps(
    (128, 256), Access("shared ldmatrix", 16, requests=Fraction(8, 64 * 64 * 16 // 32), conflict=1)
)


def mma_ldmatrix(s: int) -> list[Access]:
    """8 loads for 64 x 64 sums and 16 steps of k. B is contiguous along n, so it is copied first."""
    units = Fraction(s, 16) / 128
    return [
        Access("global cp.async a", 16, requests=units, sectors=16),
        Access("global cp.async workspace", 16, requests=units, sectors=16),
        Access("shared cp.async", 16, requests=2 * units, conflict=1),
        Access("shared ldmatrix", 16, requests=Fraction(8, 64 * 64 * 16 // 32), conflict=1),
        Access("none mma"),
        Access("global store out", s, requests=1, sectors=8),
    ]


# There are no fragments, because wgmma reads the tiles itself. Each request loads 4 sums per lane.
SMALL_TILE = by_warps((64, 64), Access("shared load", 16, conflict=1))


def direct(s: int) -> list[Access]:
    """Each element is read once for a tile of 32 x 32. A request reads four adjacent elements of 8 rows of A, or
    eight of 4 rows of B.

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


def outer(s: int) -> list[Access]:
    """A block reads its 16 rows of A once, and its columns of B once. Rows of C are stored in whole sectors."""
    return [
        Access("global load a", s, requests=Fraction(1, 512), sectors=s),
        Access("global load b", s, requests=Fraction(1, 16), sectors=4),
        Access("shared store", s, conflict=1, code="kPitchA"),
        Access("shared store", 4, conflict=1, code="store_vector"),
        Access("shared load", 4, conflict=1, code="load_vector<Value>"),
        Access("shared load", 16, conflict=1, code="load_vector<Unit>"),
        Access("none mma"),
        Access("global store out", 16, requests=Fraction(s, 16), sectors=16),
    ]


def split_k(s: int) -> list[Access]:
    """Operands as in wgmma. Sums are stored in whole sectors, and another kernel adds them."""
    return [BOX_OF_A, BOXES_OF_B, Access("none mma"), Access("global store workspace", 8, sectors=8)]


# 16 loads for 32 x 32 sums and 8 steps of k.
DMMA = Row(
    "the same for doubles, loaded element by element",
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
    """Shared memory has the layout of global memory, and a block tile reads each element once."""
    return lambda s: [
        Access("global cp.async a", 16, requests=Fraction(s, 16) / bn, sectors=16),
        Access("global cp.async b", 16, requests=Fraction(s, 16) / bm, sectors=16),
        *(Access(f"shared {kind}", conflict=1) for kind in ("cp.async", "load", "store")),
        *more,
    ]


SMALL, LEVEL_5 = (128, 128, 64), (256, 384, 256)
GEMM = {
    "naive": Row("coalesced: B in whole sectors, A by broadcast", naive(strided=False), SMALL, TYPES),
    "naive_uncoalesced": Row("the opposite: a sector for each lane", naive(strided=True), SMALL, TYPES),
    "tiled": Row("a 32nd of the global reads, and shared reads instead", tiled, SMALL, TYPES),
    "thread_tile": Row(
        "a quarter of the shared reads, no conflicts", thread_tile(padded=True), SMALL, (F32, BF16, I8)
    ),
    "thread_tile_unpadded": Row(
        "the same with 4-way conflicts", thread_tile(padded=False), SMALL, (F32, BF16, I8)
    ),
    "vectorized": Row("16 bytes in each access", wide, SMALL, TYPES),
    "float4_padded68": Row("vectors from rows that keep them aligned", float4(whole=True), SMALL, (F32,)),
    "float4_padded65": Row("unaligned rows: four words for a vector", float4(whole=False), SMALL, (F32,)),
    "double_buffer_sync": Row("as vectorized; only registers hold data in flight", wide, SMALL, (F32,)),
    "small": Row("registers load the next panels during the products", small_tiles(64), SMALL, TYPES),
    "cp_async": Row(
        *("two stages of 16 KB in flight while one is multiplied", cp_async, LEVEL_5, (F32,), False),
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
            ("producer_warp", "the reads of cp_async; a warp requests four stages of 16 KB", 16, 64, 3 * 16),
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
        *("all of k in flight at once", SMALL_TILE, (128, 192, 256), (BF16,), False),
        in_flight=lambda n: n == 4 * 16 * 1024,
    ),
    "direct": Row(
        *("operands are loaded directly into registers", direct, (128, 128, 64), (F64, F32)),
    ),
    "outer": Row(*("a result that is stored in whole sectors", outer, (64, 1024, 16), (BF16,))),
    "split_k": Row(
        *("sums of many parts of k, stored separately", split_k, (256, 128, 2048), (BF16,)),
        in_flight=lambda n: n == 4 * 32 * 1024,
    ),
    "dmma": DMMA,
    "dmma_m8n8k4": replace(DMMA, idea="another instruction for the same accesses"),
    **WGMMA,
    **PACKED,
    # The sums of a part of k go to the workspace.
    "bf16x6_fused": Row(
        "float32 is read once, and split before the tensor cores",
        raw_tiles(64, 128, (Access("none mma"), Access("global store workspace", 16, sectors=16))),
        (64, 512, 2048),
        (F32,),
        in_flight=lambda n: n >= 40 * 1024,
    ),
    "crt": Row(
        *("products of bytes, reduced before they are stored", residues, (256, 512, 512), (F64,)),
        all_accesses=False,  # the list of tiles is read, too
        in_flight=lambda n: n == 4 * 48 * 1024,
    ),
    "batched": Row("tiles that small matrices fill", small_tiles(32), (128, 128, 128), (F32, torch.int32)),
    "skinny": Row(
        *("one operand dominates, 8 of its boxes in flight", skinny, (16, 8192, 1024), (BF16,)),
        in_flight=lambda n: n == 8 * (8 + 2) * 1024,
    ),
    "narrow": Row(
        *("one operand directly in registers, four sums for each element", narrow, (8, 4096, 64), (F32, F64)),
        all_accesses=False,  # A comes from the caches
    ),
    # Blocks also exchange partial sums through the workspace.
    **{
        name: Row(
            *("operands in the layout of shared memory", images(sectors), (256, 384, 512), (dtype,)),
            all_accesses=False,
            in_flight=lambda n, least=least: n >= least * 1024,
        )
        for name, dtype, sectors, least in (
            *(("bf16x6", F32, 8, 128), ("bf16x3", F32, 8, 128), ("fp16x3", F32, 8, 128)),
            ("int8x10", torch.int32, 8, 128),
            ("int16x4", torch.int16, 16, 64),  # here a block has four stages of two planes
        )
    },
}
