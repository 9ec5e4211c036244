"""Sets of problems for the published figures of a processor."""

from __future__ import annotations

import torch
from fastgemm.bench.presets import Case
from fastgemm.bench.problems import Gemm, Transpose


def reference() -> list[Case]:
    """The problems of the published figures. Each group's geometric mean is one row of docs and README."""
    cases: list[Case] = []
    level6 = ((("level", 6),),)

    def squares(dtype: torch.dtype, sizes: tuple[int, ...], group: str, **more: object) -> None:
        cases.extend(Case(Gemm(n, n, n, dtype), group, **more) for n in sizes)

    squares(torch.float32, (512, 1024, 2048, 4096), "fp32 512..4096")
    squares(torch.float32, (512, 1024, 2048, 4096), "fp32 512..4096, 1 thread", threads=1)
    squares(torch.float64, (512, 1024, 2048), "fp64 512..2048")
    squares(torch.bfloat16, (512, 1024, 2048), "bf16 512..2048")
    squares(torch.bfloat16, (512, 1024, 2048), "bf16 512..2048, level 6", choices=level6)
    squares(torch.int8, (1024, 2048), "int8 1024, 2048")
    squares(torch.int8, (1024, 2048), "int8 1024, 2048, level 6", choices=level6)
    squares(torch.float16, (512, 1024), "fp16 512, 1024")
    squares(torch.int32, (512, 1024), "int32 512, 1024")
    squares(torch.int64, (512,), "int64 512")
    squares(torch.float32, (64, 128, 256), "fp32 64, 128, 256", allocate=True)
    squares(torch.float32, (32,), "fp32 32", allocate=True)
    skinny = [(1, 4096, 4096), (8, 4096, 4096), (1000, 777, 3001), (4096, 64, 4096), (64, 64, 65536)]
    cases.extend(Case(Gemm(*shape), "fp32 skinny and odd") for shape in skinny)
    for n in (6144, 6145):
        for dtype in (torch.int8, torch.bfloat16, torch.float32, torch.float64, torch.complex128):
            cases.append(Case(Transpose(n, n, dtype), f"transpose {n}, {dtype.itemsize}-byte elements"))
    return cases
