"""Sets of problems for a GPU: what its published figures are measured on."""

from __future__ import annotations

import math
import random

import torch

from .presets import Case, Choice
from .problems import LAYOUTS, Add, Gemm, Transpose

LEVELS = (1, 2, 3, 4, 5)
FP32, FP64, FP16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
BY_BYTES = {1: torch.int8, 2: BF16, 4: FP32, 8: FP64, 16: torch.complex128}
ODD = (4095, 4097, 4093)
SIZES = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)


def levels(*wanted: int) -> tuple[Choice, ...]:
    return tuple((("level", level),) for level in wanted)


def kernel(name: str) -> Choice:
    return (("kernel", name),)


def _square(n: int, dtype: torch.dtype = FP32, layout: str = "NN") -> Gemm:
    return Gemm(n, n, n, dtype, layout)


def reference() -> list[Case]:
    """Every rung at 4096, level 5 against cuBLAS from 1024 to 16384 and in all layouts, the other types,
    transposes of all widths, and the sum."""
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


def random_shapes(count: int, seed: int) -> list[Case]:
    """Shapes log-uniform in 1..8192, every combination of type and layout equally often, against torch.matmul."""
    draw = random.Random(seed)
    kinds = [(dtype, layout) for dtype in (FP64, FP32, FP16, BF16) for layout in LAYOUTS]
    cases = []
    for i in range(count):
        sizes = [round(math.exp(draw.uniform(0, math.log(8192)))) for _ in range(3)]
        dtype, layout = kinds[i % len(kinds)]
        name = str(dtype).removeprefix("torch.")
        cases.append(Case(Gemm(*sizes, dtype, layout), f"random {name}", settle_outliers=True))
    return cases


def sizes(dtype: torch.dtype = FP32) -> list[Case]:
    """Every level over the sizes, smallest first, so that a slow rung is left out once it takes too long."""
    name = str(dtype).removeprefix("torch.")
    return [Case(_square(n, dtype), f"sizes {name}", (*levels(*LEVELS), ())) for n in SIZES]


def sweep(step: int, dtype: torch.dtype = FP32) -> list[Case]:
    """Level 5 from 1024 to 12800."""
    name = str(dtype).removeprefix("torch.")
    return [Case(_square(n, dtype), f"sweep {name}", levels(5)) for n in range(1024, 12801, step)]
