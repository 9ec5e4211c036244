"""Compares the code of all other GPUs with Hopper's code, on one Hopper GPU. It needs two builds.

    FASTGEMM_CUDA_ARCHS=90-real pip install .     # the portable path: has neither wgmma nor TMA
    python benchmarks/run.py portable
    FASTGEMM_CUDA_ARCHS=90a-real pip install .
    python benchmarks/run.py portable

Each run measures the kernels of its build beside torch's, and keeps the other build's results in the file.
"""

from __future__ import annotations

from functools import partial

import fastgemm
import torch
from contests import Contest, Preset, Settings, cubes, of_contests, product, torch_product
from fastgemm import _introspect
from fastgemm.bench.problems import random_matrix
from fastgemm.bench.records import Report, read_report, select
from studies.environment import folder_of

PORTABLE, HOPPER = "portable", "hopper"
LEVEL_6 = "level 6"  # the kernel that the level chooses
FP32, BF16, INT8 = torch.float32, torch.bfloat16, torch.int8
SQUARES = cubes(4096, 8192)
PROBLEMS = {  # kernel, dtype, (M, N, K), precision
    "cuda": [
        *(("bf16x6", FP32, shape) for shape in [*cubes(1024, 2048), *SQUARES]),
        ("int8x10", torch.int32, SQUARES[0]),
        (LEVEL_6, BF16, (4095, 4097, 4093)),
        *(("mma_sync", BF16, shape) for shape in SQUARES),
        *(("skinny", BF16, (m, 8192, 8192)) for m in (16, 64)),
        ("bf16x6_fused", FP32, (64, 4096, 4096)),
        ("split_k", BF16, (256, 256, 16384)),
        ("dmma", torch.float64, SQUARES[0]),
        ("wmma", BF16, SQUARES[1]),
        ("mma_sync", FP32, SQUARES[1], "tf32"),
        *((name, FP32, SQUARES[0], name) for name in ("bf16x3", "fp16x3")),
        ("mma_sync", INT8, SQUARES[1]),
        *(("crt", dtype, shape) for dtype in (torch.float64, FP32, torch.int64) for shape in SQUARES),
    ],
    "cpu": [(LEVEL_6, FP32, (256, 256, 256))],
}


def own_build() -> str:
    return HOPPER if torch.cuda.is_available() and _introspect.gpu_properties()["wgmma"] else PORTABLE


def contest(
    device: str, name: str, dtype: torch.dtype, shape: tuple[int, int, int], precision: str = ""
) -> Contest:
    m, n, k = shape
    a, b = (random_matrix(*sizes, dtype=dtype, device=device) for sizes in ((m, k), (k, n)))
    if dtype == INT8:
        b = b.mT.contiguous().mT  # the layout that torch._int_mm requires
    choice = {"level": 6} if name == LEVEL_6 else {"kernel": name}
    own = partial(fastgemm.matmul, precision=precision or None, **choice)
    return product(a, b, {own_build(): own, "torch": torch_product}, group=name, precision=precision)


def measure(settings: Settings) -> Report:
    report = of_contests("portable", PROBLEMS, contest)(settings)
    path = settings.out / folder_of(report.environment) / "portable.json"
    if path.exists():
        other, kept = read_report(path), PORTABLE if own_build() == HOPPER else HOPPER
        report.results += select(other.results, choice=kept)
        for what in ("commit", "cuda_archs"):
            was = other.environment.get(what)
            report.environment[f"{kept}_{what}"] = other.environment.get(f"{kept}_{what}", was)
    return report


PRESETS = {"portable": Preset({"cuda": 10, "cpu": 1}, measure)}
