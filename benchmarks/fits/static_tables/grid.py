"""The problems whose fastest kernels the static tables hold."""

from __future__ import annotations

import itertools
import math
import random

import torch
from fastgemm.bench.problems import ARITHMETIC, LAYOUTS, Add, Gemm, Problem, Transpose

from .generate import BY_WIDTH

# Measured problems as (batch, m, n, k): squares, few rows or columns, short and long K, odd sizes, batches.
SQUARES = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
GEMM_GRID = [
    *((1, n, n, n) for n in SQUARES),
    *((1, m, n, n) for m in (1, 4, 16, 64) for n in (256, 1024, 4096)),
    *((1, n, m, n) for m in (1, 4, 16, 64) for n in (256, 1024, 4096)),
    *((1, n, n, k) for n, k in ((512, 1), (1024, 16), (1024, 64), (4096, 16), (4096, 64))),
    *((1, n, n, k) for n, k in ((1, 16384), (16, 4096), (16, 65536), (64, 4096), (64, 65536), (256, 16384))),
    *((1, *sizes) for sizes in ((63, 65, 127), (257, 255, 259), (1000, 777, 3001), (513, 1025, 2049))),
    *((b, n, n, n) for b, n in ((256, 16), (64, 64), (16, 256), (8, 512))),
]
TRANSPOSE_GRID = [
    *((1, n, n, 0) for n in (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3001, 4096, 6144)),
    *((1, *s, 0) for s in ((3, 1 << 20), (16, 65536), (64, 65536), (1 << 20, 3), (65536, 16), (65536, 64))),
    *((1, *s, 0) for s in ((1, 4096), (1000, 3001), (4097, 1023))),
    *((b, n, n, 0) for b, n in ((256, 32), (64, 128))),
]
ADD_GRID = [(1, 1, n, 0) for n in (64, 1024, 16384, 1 << 18, 1 << 22, 1 << 25)] + [(1, 1000, 3001, 0)]
GRIDS = {"gemm": GEMM_GRID, "transpose": TRANSPOSE_GRID, "add": ADD_GRID}

# On a GPU: a fine lattice of tiny sizes, where the launch dominates the time; a coarse lattice of all others; and
# random sizes. Most random sizes are odd, which costs libraries more than this package.
TINY = tuple(
    (1, m, n, k)
    for m in (1, 4, 16, 32, 64, 128)
    for n in (1, 4, 16, 32, 64, 128)
    for k in (4, 16, 32, 64, 128)
)
COARSE = (16, 128, 1024, 4096)
CHANCE = random.Random(0)


def log_uniform(largest: int) -> int:
    return round(2 ** CHANCE.uniform(0, math.log2(largest)))


GENERAL = [
    *(s for s in itertools.product((1,), COARSE, COARSE, COARSE) if s not in TINY),
    *((1, n, n, n) for n in (192, 256, 384, 512, 768, 1536, 2048, 3072, 6144, 8192, 16384)),
    *((1, *s) for s in ((257, 129, 511), (513, 1025, 2049), (1000, 777, 3001), (4095, 4097, 4093))),
    *((1, *s) for s in ((1, 4096, 4096), (4096, 1, 4096), (4096, 4096, 1), (1, 1, 4096), (256, 256, 65536))),
    *((b, n, n, n) for b, n in ((256, 16), (64, 64), (64, 128), (16, 256), (8, 512), (8, 1024))),
    *((1, log_uniform(8192), log_uniform(8192), log_uniform(8192)) for _ in range(150)),
]
CHANCES = [(1, log_uniform(8192), log_uniform(8192), log_uniform(8192)) for _ in range(900)]

Sizes = tuple[int, int, int, int]

# Weights of a network, as (rows, columns). They are the right operand of few rows or the left one of few columns.
FEW = (1, 2, 4, 8, 16, 32, 64)
WEIGHTS = ((1024, 1024), (4096, 4096), (8192, 8192), (11008, 4096), (4096, 11008), (8192, 28672))
SKINNY = [
    *(((1, m, n, k), layout) for m in FEW for k, n in WEIGHTS for layout in ("NN", "NT")),
    *(((1, m, n, m), layout) for m, n in ((8, 4096),) for layout in ("NN", "NT")),
    *(((1, n, m, k), layout) for m in (1, 8, 64) for n, k in WEIGHTS[:3] for layout in ("NN", "TN")),
    *(
        ((1, m, n, k), layout)
        for m in (1, 8, 64)
        for k, n in ((4095, 4097), (2500, 1003))
        for layout in ("NN", "NT")
    ),
]
# Small results with long sums.
LONG_K = [
    ((1, m, n, k), layout)
    for m, n, k in (
        *((n, n, k) for n in (1, 16, 64, 128, 256) for k in (16384, 65536)),
        *((512, 512, 16384), (64, 256, 65536), (129, 127, 32771), (33, 7, 20001)),
    )
    for layout in ("NN", "NT")
]
BATCHES = [
    ((b, n, n, n), layout)
    for b, n in (
        *((1024, 16), (256, 32), (64, 64), (512, 64), (64, 128), (256, 128), (32, 256), (16, 512)),
        *((512, 17), (128, 33), (64, 65), (64, 127), (32, 255)),
    )
    for layout in ("NN", "NT")
]


def rectangles(count: int) -> list[tuple[Sizes, str]]:
    """Batches of matrices of any proportions. Half of them have sides that are multiples of 32, as in networks."""
    chance, turns = random.Random(1), itertools.cycle(LAYOUTS)
    found = []
    while len(found) < count:
        step = 32 if len(found) // len(LAYOUTS) % 2 else 1
        batch, m, n, k = (
            round(2 ** chance.uniform(*range_)) for range_ in ((1, 9), (5, 11), (5, 11), (5, 11))
        )
        m, n, k = (-(-side // step) * step for side in (m, n, k))
        if batch * m * n * k <= 1 << 34 and batch * max(m * n, m * k, k * n) <= 1 << 27:
            found.append(((batch, m, n, k), next(turns)))
    return found


# Rows of A, of B, of the result, or of all of them do not start at multiples of 16 bytes.
ODD = [
    ((1, *sizes), layout)
    for n in (256, 512, 1024, 2048, 4096)
    for sizes in ((n - 1, n + 1, n - 3), (n, n + 1, n), (n, n, n + 1))
    for layout in ("NN", "NT", "TN")
] + [((1, 1000, 3000, 777), layout) for layout in LAYOUTS]


def in_turns(grid: list[Sizes]) -> list[tuple[Sizes, str]]:
    """Squares from 256 up in every layout. Other sizes have one layout; layouts alternate in the order of work."""
    turns = itertools.cycle(LAYOUTS)
    found = []
    for sizes in sorted(grid, key=lambda sizes: work_of("gemm", sizes)):
        square = sizes[0] == 1 and len(set(sizes[1:])) == 1 and sizes[1] >= 256
        found += [(sizes, layout) for layout in (LAYOUTS if square else (next(turns),))]
    return found


def gpu_parts() -> dict[str, list[tuple[Sizes, str]]]:
    """The products to measure on a GPU, by the part of the grid that ``--part`` names."""
    lattice = in_turns([*TINY, *GENERAL])
    return {
        "tiny": [point for point in lattice if point[0] in TINY],
        "general": [point for point in lattice if point[0] not in TINY],
        "chance": in_turns(CHANCES),
        "skinny": SKINNY,
        "long_k": LONG_K,
        "batches": BATCHES,
        "rectangles": rectangles(72),
        "odd": ODD,
    }


PARTS = ("tiny", "general", "chance", "skinny", "long_k", "batches", "rectangles", "odd")
GPU_GRIDS = {
    "transpose": [
        *((1, n, n, 0) for n in (16, 64, 128, 256, 512, 1024, 2048, 4096, 8191, 8192, 16384)),
        *(
            (1, *s, 0)
            for s in ((3, 1 << 20), (16, 65536), (64, 65536), (1 << 20, 3), (65536, 16), (65536, 64))
        ),
        *((1, *s, 0) for s in ((1, 4096), (1000, 3001), (4097, 1023))),
        *((b, n, n, 0) for b, n in ((256, 32), (64, 128), (16, 1024))),
    ],
    "add": [(1, 1, n, 0) for n in (64, 4096, 1 << 18, 1 << 22, 1 << 25, 1 << 27)] + [(1, 1000, 3001, 0)],
}


def dtypes_of(op: str) -> dict[str, torch.dtype]:
    return BY_WIDTH if op == "transpose" else ARITHMETIC


def grid_of(op: str, device: str, parts: list[str] | None = None) -> list[tuple[Sizes, str]]:
    """The sizes and layouts to measure, from little work to much."""
    if (op, device) == ("gemm", "cuda"):
        named = gpu_parts()
        grid = list(dict.fromkeys(point for part in parts or PARTS for point in named[part]))
    else:
        grid = [(sizes, "NN") for sizes in (GPU_GRIDS if device == "cuda" else GRIDS)[op]]
    return sorted(grid, key=lambda point: work_of(op, point[0]))


def problem_at(op: str, sizes: Sizes, layout: str, dtype: torch.dtype, precision: str | None) -> Problem:
    batch, m, n, k = sizes
    if op == "gemm":
        return Gemm(m, n, k, dtype, layout, batch, precision)
    return Transpose(m, n, dtype, batch) if op == "transpose" else Add(m, n, dtype)


def work_of(op: str, sizes: Sizes) -> float:
    batch, m, n, k = sizes
    return batch * m * n * max(k, 1)
