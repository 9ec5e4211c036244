"""Complex products beside torch's own (cuBLAS' CGEMM and ZGEMM, or the CPU's library), interleaved in one process.

    python tools/complex_products.py --json benchmarks/results/h200/complex_products.json

Times and ratios are taken as ``fastgemm bench`` takes them, on a GPU with a cold L2 cache. An error is the largest
of some elements of the result, in units of those of |a| |b|, against sums in numpy's extended precision.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import fastgemm
import numpy as np
import torch
from fastgemm.bench import describe
from fastgemm.bench.cuda_timing import CudaTimer
from fastgemm.bench.devices import best_device
from fastgemm.bench.timing import CpuTimer, interleave
from torch import Tensor

SIZES = {"cuda": (256, 1024, 2048, 4096, 8192), "cpu": (256, 1024)}
DTYPES = (torch.complex64, torch.complex128)
LAYOUTS = {
    "NN": (lambda a: a, lambda b: b),
    "NT": (lambda a: a, lambda b: b.mT),
    "NC": (lambda a: a, lambda b: b.mH),
    "TN": (lambda a: a.mT, lambda b: b),
}
WAYS = {
    "torch": torch.matmul,
    "fastgemm": fastgemm.matmul,
    "level 6": lambda a, b: fastgemm.matmul(a, b, level=6),
}


def largest_error(result: Tensor, a: Tensor, b: Tensor) -> float:
    """Of 8 rows and 64 columns."""
    rows = torch.linspace(0, a.shape[0] - 1, 8, device=a.device).long()
    columns = torch.linspace(0, b.shape[1] - 1, 64, device=a.device).long()
    x, y, found = (
        t.resolve_conj().cpu().numpy().astype(np.clongdouble)
        for t in (a[rows], b[:, columns], result[rows][:, columns])
    )
    return float((abs(found - x @ y) / (abs(x) @ abs(y))).max())


def measured(dtype: torch.dtype, size: int, layout: str, device: str, budget: float) -> dict[str, Any]:
    a, b = (view(torch.randn(size, size, dtype=dtype, device=device)) for view in LAYOUTS[layout])
    calls = {name: (lambda product=product: product(a, b)) for name, product in WAYS.items()}
    timer = CudaTimer() if device == "cuda" else CpuTimer()
    samples = interleave(calls, budget=budget, timer=timer)
    return {
        "dtype": str(dtype).removeprefix("torch."),
        "size": size,
        "layout": layout,
        "microseconds": {name: samples.seconds(name).median * 1e6 for name in WAYS},
        "of_torch": {name: samples.speedup(name, "torch").median for name in WAYS},
        "error": {name: largest_error(call(), a, b) for name, call in calls.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default=best_device())
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--budget", type=float, default=0.3, help="seconds for each way of a product")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    for dtype in DTYPES:
        for size in options.sizes or SIZES[options.device]:
            for layout in LAYOUTS:
                row = measured(dtype, size, layout, options.device, options.budget)
                rows.append(row)
                ratios = "  ".join(f"{name} {ratio:.3f}" for name, ratio in row["of_torch"].items())
                print(f"{row['dtype']} {size} {layout}  of torch: {ratios}", flush=True)
    if options.json:
        head = {"environment": describe(options.device), "command": "python tools/complex_products.py"}
        options.json.write_text(json.dumps(head | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
