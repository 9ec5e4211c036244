"""Sets of problems for the published figures of a GPU."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from fastgemm.bench.presets import Case, Choice
from fastgemm.bench.problems import LAYOUTS, Add, Gemm, Library, Transpose

from .cublas import gemm_ex_int8
from .sweep import StudyCase

LEVELS = (1, 2, 3, 4, 5)
FP32, FP64, FP16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
BY_BYTES = {1: torch.int8, 2: BF16, 4: FP32, 8: FP64, 16: torch.complex128}
ODD = (4095, 4097, 4093)
SQUARES = (2048, 4096, 8192, 16384)
TENSOR_CORE_RUNGS = (  # in reading order
    "wmma",
    "mma_sync",
    "wgmma",
    "wgmma_ring",
    "wgmma_persistent",
    "wgmma_overlapped",
    "wgmma_specialized",
)
STEPS = {  # steps of levels 5 and 6, in reading order; the last one is the row that the level chooses
    FP32: ("cp_async", "producer_warp", "producer_warp_wide", "warp_specialized"),
    BF16: (
        *("wmma", "mma_ldmatrix", "wgmma", "wgmma_ring", "wgmma_persistent", "wgmma_boxes"),
        *("wgmma_wide", "wgmma_deep", "wgmma_overlapped", "wgmma_setmaxnreg", "wgmma_specialized"),
    ),
}
CUBLAS = Library("cublasGemmEx", gemm_ex_int8)
RUNGS_GROUP = "bfloat16 8192, rungs of level 6"
SIZES = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)


def levels(*wanted: int) -> tuple[Choice, ...]:
    return tuple((("level", level),) for level in wanted)


def kernel(name: str) -> Choice:
    return (("kernel", name),)


def _square(n: int, dtype: torch.dtype = FP32, layout: str = "NN") -> Gemm:
    return Gemm(n, n, n, dtype, layout)


def reference() -> list[Case]:
    """Every rung at 4096, level 5 against cuBLAS from 1024 to 16384 and in all layouts, other types, transposes of
    all widths, and the sum."""
    five = levels(5)
    cases = [
        Case(_square(4096, layout=layout), f"fp32 4096 {layout}", levels(*LEVELS), slow_rungs=True)
        for layout in LAYOUTS
    ]
    cases += [Case(_square(n), "fp32 1024..16384", five) for n in (1024, 2048, 4096, 8192, 16384)]
    cases += [Case(Gemm(*ODD), "fp32 odd", five)]
    cases += [Case(_square(8192, layout=layout), "fp32 8192, layouts", five) for layout in LAYOUTS]
    for dtype in (FP64, torch.int32, torch.int8, FP16, BF16):
        name = str(dtype).removeprefix("torch.")
        cases += [Case(_square(n, dtype), f"{name} 4096, 8192", five) for n in (4096, 8192)]
    own_and_library = (*levels(5, 6), kernel("cublas_geam"))
    for rows, cols in ((8192, 8192), (16384, 16384), (8191, 8193)):
        for width, dtype in BY_BYTES.items():
            group = f"transpose {rows}x{cols}, {width}-byte elements"
            cases.append(Case(Transpose(rows, cols, dtype), group, own_and_library, optional=True))
    for dtype in (FP32, BF16):
        cases.append(Case(Add(16384, 8192, dtype), "add", five))
    return cases


def tensor_cores() -> list[Case]:
    """Level 6 and level=None against torch, in every type that tensor cores multiply; int8 also against
    cublasGemmEx. Also the rungs of level 6, against each other and cuBLAS."""
    cases = []
    six_and_default = (*levels(6), ())

    def squares(group: str, sizes: tuple[int, ...], layouts: tuple[str, ...], **more: Any) -> None:
        problems = [Gemm(n, n, n, layout=layout, **more) for n in sizes for layout in layouts]
        cases.extend(Case(problem, group, six_and_default) for problem in problems)

    for dtype, name in ((BF16, "bfloat16"), (FP16, "float16")):
        squares(name, SQUARES, LAYOUTS, dtype=dtype)
    for layouts in (("NT",), ("NN", "TT"), ("TN",)):
        squares(f"tf32 {', '.join(layouts)}", SQUARES, layouts, dtype=FP32, precision="tf32")
    for layout in ("NT", "NN"):
        squares(f"int8 {layout}", (4096, 8192), (layout,), dtype=torch.int8)
    for n in SQUARES:
        squares(f"int8 NT {n}, cublasGemmEx", (n,), ("NT",), dtype=torch.int8, library=CUBLAS)
    squares("float64", (4096, 8192), LAYOUTS, dtype=FP64)
    rungs = tuple(kernel(name) for name in TENSOR_CORE_RUNGS)
    cases.append(Case(_square(8192, BF16), RUNGS_GROUP, rungs))
    return cases


def ladder_steps() -> list[Case]:
    """The steps of level 6 and of level 5's warp specialization, on operands that all of them read in place."""
    return [
        Case(
            _square(n, dtype, "NT"),
            f"steps of {str(dtype).removeprefix('torch.')}",
            tuple(map(kernel, names)),
        )
        for dtype, names in STEPS.items()
        for n in (4096, 8192)
    ]


def random_shapes(count: int, seed: int) -> list[Case]:
    """Random shapes, log-uniform in 1..8192, against torch.matmul. Types and layouts occur equally often."""
    draw = random.Random(seed)
    kinds = [(dtype, layout) for dtype in (FP64, FP32, FP16, BF16) for layout in LAYOUTS]
    cases = []
    for i in range(count):
        sizes = [round(math.exp(draw.uniform(0, math.log(8192)))) for _ in range(3)]
        dtype, layout = kinds[i % len(kinds)]
        name = str(dtype).removeprefix("torch.")
        cases.append(StudyCase(Gemm(*sizes, dtype, layout), f"random {name}", settle_outliers=True))
    return cases


def sizes(dtype: torch.dtype = FP32) -> list[Case]:
    """Every level at all sizes, smallest first. A slow rung is left out once it takes too long."""
    name = str(dtype).removeprefix("torch.")
    return [Case(_square(n, dtype), f"sizes {name}", (*levels(*LEVELS), ())) for n in SIZES]


def sweep(step: int, dtype: torch.dtype = FP32) -> list[Case]:
    """Level 5 from 1024 to 12800."""
    name = str(dtype).removeprefix("torch.")
    return [Case(_square(n, dtype), f"sweep {name}", levels(5)) for n in range(1024, 12801, step)]
