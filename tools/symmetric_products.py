"""Products with a symmetric result beside torch's and beside the general product, interleaved in one process.

    python tools/symmetric_products.py --json benchmarks/results/h200/symmetric_products.json

``a @ a.mT``, of complex numbers ``a @ a.mH``, of square matrices. "general" multiplies by the transpose of a copy,
which no kernel can tell from another matrix. Times and ratios are taken as ``fastgemm bench`` takes them, on a GPU
with a cold L2 cache.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import fastgemm
import torch
from fastgemm._introspect import take_last_gemm_kernel
from fastgemm.bench import describe
from fastgemm.bench.cuda_timing import CudaTimer
from fastgemm.bench.devices import best_device
from fastgemm.bench.timing import CpuTimer, interleave
from torch import Tensor

SIZES = {"cuda": (256, 512, 1024, 2048, 4096, 8192, 16384), "cpu": (128, 256, 512, 1024, 2048)}
DTYPES = {
    "cuda": ("bfloat16", "float16", "float32", "tf32", "float64", "int8", "int32", "complex64", "complex128"),
    "cpu": ("bfloat16", "float32", "float64", "int32", "complex64", "complex128"),
}
MOST_BYTES = 2 << 30  # of a matrix


def operand(dtype: torch.dtype, size: int, device: str) -> Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(size, size, dtype=dtype, device=device)
    return torch.randint(-100, 100, (size, size), dtype=dtype, device=device)


def torch_product(a: Tensor) -> Tensor | None:
    """torch's own; None where it has none on this device."""
    try:
        return torch._int_mm(a, a.mT) if a.dtype == torch.int8 else a @ a.mH
    except RuntimeError:
        return None


def measured(name: str, size: int, device: str, budget: float) -> dict[str, Any] | None:
    precision = "tf32" if name == "tf32" else None
    dtype = torch.float32 if precision else getattr(torch, name)
    if size * size * dtype.itemsize > MOST_BYTES:
        return None
    torch.backends.cuda.matmul.allow_tf32 = precision is not None
    a = operand(dtype, size, device)
    copy = a.clone().mH
    calls = {
        "fastgemm": lambda: fastgemm.matmul(a, a.mH, precision=precision),
        "general": lambda: fastgemm.matmul(a, copy, precision=precision),
        "symmetric": lambda: fastgemm.matmul(a, a.mH, kernel="symmetric", precision=precision),
    }
    if torch_product(a) is not None:
        calls["torch"] = lambda: torch_product(a)
    calls["fastgemm"]()
    chosen = take_last_gemm_kernel()
    samples = interleave(calls, budget=budget, timer=CudaTimer() if device == "cuda" else CpuTimer())
    return {
        "dtype": name,
        "size": size,
        "chosen": chosen,
        "microseconds": {way: samples.seconds(way).median * 1e6 for way in calls},
        "of_torch": {way: samples.speedup(way, "torch").median for way in calls} if "torch" in calls else {},
        "of_general": {way: samples.speedup(way, "general").median for way in calls},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default=best_device())
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--dtypes", nargs="+", metavar="DTYPE")
    parser.add_argument("--budget", type=float, default=0.3, help="seconds for each way of a product")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    for name in options.dtypes or DTYPES[options.device]:
        for size in options.sizes or SIZES[options.device]:
            row = measured(name, size, options.device, options.budget)
            if row is None:
                continue
            rows.append(row)
            ratios = "  ".join(f"{way} {ratio:.3f}" for way, ratio in row["of_torch"].items())
            print(f"{name} {size} ({row['chosen']})  of torch: {ratios}", flush=True)
    if options.json:
        head = {"environment": describe(options.device), "command": "python tools/symmetric_products.py"}
        options.json.write_text(json.dumps(head | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
