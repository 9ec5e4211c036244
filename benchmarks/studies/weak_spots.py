"""A set of problems for a GPU that vendor libraries compute slowly or not at all."""

from __future__ import annotations

import torch
from fastgemm.bench.presets import Case, Choice
from fastgemm.bench.problems import LAYOUTS, Gemm

from .gpu_presets import BF16, FP16, FP32, ODD, levels
from .sweep import StudyCase

SIX_AND_DEFAULT: tuple[Choice, ...] = (*levels(6), ())
CUBES = (1024, 2048, 4096, 8192, 16384)
ALL_LAYOUTS_AT = 4096
INTEGER_CUBES = (1024, 2048, 4096, 8192)
UNALIGNED = (1000, 3000, 777)
WEIGHTS = 8192
WIDE = 28672  # weights of 8192 x 28672, as in the gate projection of a model with 70 billion parameters
ROWS = {BF16: (1, 8, 16, 64), FP16: (1, 8, 16, 64), torch.int8: (1, 8, 16, 64), FP32: (1, 8, 64)}
LONG_SUM = (256, 256, 65536)
SMALL, BATCH = 128, 64


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _precision(dtype: torch.dtype) -> str | None:
    return "ieee" if dtype == FP32 else None


def _case(problem: Gemm, group: str, **more: bool) -> Case:
    return StudyCase(problem, group, SIX_AND_DEFAULT, **more)


def split_floats() -> list[Case]:
    """float32 on tensor cores: as accurate as float32 sums (ieee), or a few bits less accurate (fp16x3)."""
    cases = []
    for precision, group in (("ieee", "float32"), ("fp16x3", "float32 as fp16x3")):
        for n in CUBES:
            for layout in LAYOUTS if n == ALL_LAYOUTS_AT else ("NN", "NT"):
                cases.append(_case(Gemm(n, n, n, FP32, layout, precision=precision), group))
    return cases


def skinny() -> list[Case]:
    """Few rows times a large matrix, as in inference with small batches, and a large matrix times few columns."""
    cases = []
    for dtype, rows in ROWS.items():
        sizes = [(layout, m) for layout in ("NN", "NT") for m in rows]
        problems = [
            Gemm(m, WEIGHTS, WEIGHTS, dtype, layout, precision=_precision(dtype)) for layout, m in sizes
        ]
        if dtype == BF16:
            problems += [Gemm(m, WIDE, WEIGHTS, dtype, layout) for layout, m in sizes]
            problems.append(Gemm(WEIGHTS, 8, WEIGHTS, dtype))
        cases += [_case(problem, f"{_name(dtype)}, skinny", in_bytes=True) for problem in problems]
    return cases


def cases() -> list[Case]:
    """float32 at full accuracy, int32, odd sizes, skinny products, long sums and batches of small products, each
    at level 6 and level=None. Sustained rates come last, because they heat the GPU."""
    found = split_floats()
    found += [_case(Gemm(n, n, n, torch.int32), "int32") for n in INTEGER_CUBES]
    found += [
        _case(Gemm(*sizes, BF16, layout), "bfloat16, odd sizes")
        for sizes in (ODD, UNALIGNED)
        for layout in ("NN", "NT")
    ]
    found += skinny()
    for dtype in (FP32, BF16):
        precision = _precision(dtype)
        found.append(_case(Gemm(*LONG_SUM, dtype, precision=precision), f"{_name(dtype)}, long sum"))
    for dtype in (FP32, BF16):
        small = Gemm(SMALL, SMALL, SMALL, dtype, batch=BATCH, precision=_precision(dtype))
        found.append(_case(small, f"{_name(dtype)}, batch of small products"))
    sustained = Gemm(8192, 8192, 8192, FP32, precision="ieee")
    found.append(_case(sustained, "float32, back to back", sustained=True))
    return found
