"""What every GPU but Hopper runs, beside Hopper's own code, on one Hopper GPU: a build of each after the other.

    FASTGEMM_CUDA_ARCHS=90-real pip install .     # the portable path: has neither wgmma nor TMA
    python tools/portable_products.py --json portable.json
    FASTGEMM_CUDA_ARCHS=90a-real pip install .
    python tools/portable_products.py --beside portable.json --json benchmarks/results/h200/portable.json

Times are taken as ``fastgemm bench`` takes them, with a cold L2 cache, each kernel's beside torch's; torch's are
those of the second run.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import fastgemm
import torch
from fastgemm import _introspect
from fastgemm.bench import describe
from fastgemm.bench.cuda_timing import CudaTimer
from fastgemm.bench.timing import interleave
from torch import Tensor

LEVEL_6 = "level 6"  # the kernel that the level takes
SQUARES = (4096, 8192)
Product = tuple[str, str, tuple[int, int, int]]  # kernel, dtype, (M, N, K)
PRODUCTS: tuple[Product, ...] = (
    *(("bf16x6", "float32", (n, n, n)) for n in (1024, 2048, *SQUARES)),
    ("int8x10", "int32", (4096, 4096, 4096)),
    (LEVEL_6, "bfloat16", (4095, 4097, 4093)),
    *(("mma_sync", "bfloat16", (n, n, n)) for n in SQUARES),
    ("skinny", "bfloat16", (16, 8192, 8192)),
    ("skinny", "bfloat16", (64, 8192, 8192)),
    ("bf16x6_fused", "float32", (64, 4096, 4096)),
    ("split_k", "bfloat16", (256, 256, 16384)),
    ("dmma", "float64", (4096, 4096, 4096)),
    ("wmma", "bfloat16", (8192, 8192, 8192)),
    ("mma_sync", "tf32", (8192, 8192, 8192)),
    ("bf16x3", "float32", (4096, 4096, 4096)),
    ("fp16x3", "float32", (4096, 4096, 4096)),
    ("mma_sync", "int8", (8192, 8192, 8192)),
    *(("crt", dtype, (n, n, n)) for dtype in ("float64", "float32", "int64") for n in SQUARES),
)


def drawn(rows: int, columns: int, dtype: str) -> Tensor:
    kind = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    if kind.is_floating_point:
        return torch.randn(rows, columns, device="cuda").to(kind)
    limits = torch.iinfo(kind)
    return torch.randint(limits.min, limits.max, (rows, columns), device="cuda", dtype=kind)


def torch_product(dtype: str) -> Any:
    """None where torch has no such product; its tf32 would be another setting of its flags."""
    if dtype in ("int32", "int64", "tf32"):
        return None
    return torch._int_mm if dtype == "int8" else torch.matmul


def seconds(name: str, dtype: str, shape: tuple[int, int, int], budget: float) -> dict[str, float | None]:
    m, n, k = shape
    a = drawn(m, k, dtype)
    b = drawn(n, k, dtype).mT if dtype == "int8" else drawn(k, n, dtype)  # as torch._int_mm takes it
    precision = {"tf32": "tf32"}.get(dtype) or (name if name in ("bf16x3", "fp16x3") else None)
    choice: dict[str, Any] = {"level": 6} if name == LEVEL_6 else {"kernel": name}
    calls = {"own": partial(fastgemm.matmul, a, b, precision=precision, **choice)}
    if (library := torch_product(dtype)) is not None:
        calls["torch"] = partial(library, a, b)
    samples = interleave(calls, budget=budget, timer=CudaTimer())
    return {who: samples.seconds(who).median if who in calls else None for who in ("own", "torch")}


def has_wgmma() -> bool:
    return bool(_introspect.gpu_properties()["wgmma"])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--beside", type=Path, help="what the other build wrote")
    parser.add_argument("--budget", type=float, default=0.2, help="seconds for each product")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args(arguments)
    wgmma = has_wgmma()
    if wgmma != bool(options.beside):
        parser.error(
            "the build has wgmma and lacks --beside" if wgmma else "--beside takes a build with wgmma"
        )
    environment = describe("cuda")
    before: dict[Product, float | None] = {}
    if options.beside:
        other = json.loads(options.beside.read_text())
        if other["environment"]["device"] != environment["device"]:
            parser.error(f"{options.beside} was measured on {other['environment']['device']}")
        before = {
            (row["name"], row["dtype"], tuple(row["shape"])): row["portable_seconds"]
            for row in other["results"]
        }
        if before.keys() != set(PRODUCTS):
            parser.error(f"{options.beside} is of other products")
        for what in ("cuda_archs", "commit"):
            environment[f"portable_{what}"] = other["environment"][what]
    torch.manual_seed(0)
    results = []
    for name, dtype, shape in PRODUCTS:
        taken = seconds(name, dtype, shape, options.budget)
        portable, hopper = (before[name, dtype, shape], taken["own"]) if before else (taken["own"], None)
        row = {"name": name, "dtype": dtype, "shape": list(shape), "torch_seconds": taken["torch"]}
        results.append(row | {"portable_seconds": portable, "hopper_seconds": hopper})
        print(f"{dtype} {'x'.join(map(str, shape))} {name}: {taken}", flush=True)
    found = {"environment": environment, "command": "python tools/portable_products.py", "results": results}
    options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
