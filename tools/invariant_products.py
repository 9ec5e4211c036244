"""Products whose rows do not depend on each other (``invariant=True``) beside torch's and the general ones.

    python tools/invariant_products.py --json benchmarks/results/h200/invariant_products.json

``x @ weight.T`` of activations (M, K) and weights (N, K), interleaved in one process. Times and ratios are taken
as ``fastgemm bench`` takes them, on a GPU with a cold L2 cache. Before it is timed, every product is checked: rows
of it, computed alone, must have the same bits.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import fastgemm
import torch
from fastgemm._introspect import take_last_gemm_kernel
from fastgemm.bench import describe
from fastgemm.bench.cuda_timing import CudaTimer
from fastgemm.bench.devices import best_device
from fastgemm.bench.timing import CpuTimer, interleave

LAYERS = ((4096, 4096), (14336, 4096), (4096, 14336), (8192, 8192))  # (N, K)
PROBLEMS = {  # dtype, precision, (M, N, K)
    "cuda": [
        *(("bfloat16", None, (size, size, size)) for size in (2048, 4096, 8192)),
        ("bfloat16", None, (4096, 14336, 4096)),
        *(("bfloat16", None, (m, *layer)) for layer in LAYERS for m in (1, 8, 32, 64)),
        *(("bfloat16", None, (m, 4096, 4096)) for m in (128, 256, 512, 1024)),
        *(("bfloat16", None, (m, 2048, 2048)) for m in (1, 32)),
        ("float16", None, (8, 4096, 4096)),
        *(("float32", None, (m, 4096, 4096)) for m in (8, 512, 4096)),
        *(("float32", "tf32", (m, 4096, 4096)) for m in (8, 4096)),
        *(("float64", None, (m, 2048, 2048)) for m in (8, 2048)),
    ],
    "cpu": [
        *((dtype, None, (m, 1024, 1024)) for dtype in ("float32", "bfloat16") for m in (1, 8, 64, 1024)),
        ("float64", None, (512, 512, 512)),
    ],
}


def keeps_rows(product: Any, a: torch.Tensor, result: torch.Tensor) -> bool:
    for rows in ([0], [len(a) - 1], list(range(len(a) // 2, len(a)))):
        if not torch.equal(product(a[rows]), result[rows]):
            return False
    return True


def measured(
    name: str, precision: str | None, shape: tuple[int, int, int], device: str, budget: float
) -> dict[str, Any]:
    m, n, k = shape
    dtype = getattr(torch, name)
    torch.backends.cuda.matmul.allow_tf32 = precision is not None
    a, weight = (torch.randn(*size, dtype=dtype, device=device) for size in ((m, k), (n, k)))
    invariant = lambda x: fastgemm.gemm(x, weight, trans_b=True, precision=precision, invariant=True)  # noqa: E731
    calls = {
        "invariant": lambda: invariant(a),
        "fastgemm": lambda: fastgemm.gemm(a, weight, trans_b=True, precision=precision),
        "torch": lambda: a @ weight.mT,
    }
    kept = keeps_rows(invariant, a, calls["invariant"]())
    calls["fastgemm"]()
    chosen = take_last_gemm_kernel()
    samples = interleave(calls, budget=budget, timer=CudaTimer() if device == "cuda" else CpuTimer())
    return {
        "dtype": name,
        "precision": precision,
        "m": m,
        "n": n,
        "k": k,
        "same_bits": kept,
        "chosen": chosen,
        "microseconds": {way: samples.seconds(way).median * 1e6 for way in calls},
        "of_torch": {way: samples.speedup(way, "torch").median for way in calls},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default=best_device())
    parser.add_argument("--budget", type=float, default=0.3, help="seconds for each way of a product")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    for problem in PROBLEMS[options.device]:
        rows.append(row := measured(*problem, options.device, options.budget))
        name = row["precision"] or row["dtype"]
        ratios = "  ".join(f"{way} {ratio:.3f}" for way, ratio in row["of_torch"].items())
        bits = "" if row["same_bits"] else "  ROWS DIFFER"
        print(
            f"{name} {row['m']} x {row['n']} x {row['k']} ({row['chosen']})  of torch: {ratios}{bits}",
            flush=True,
        )
    few = [
        row["of_torch"]["invariant"]
        for row in rows
        if row["dtype"] == "bfloat16" and row["m"] <= 64 and (row["n"], row["k"]) in LAYERS
    ]
    if few:
        print(
            f"few rows of layers in bfloat16: geometric mean {geometric_mean(few):.3f}, least {min(few):.3f}"
        )
    if options.json:
        head = {"environment": describe(options.device), "command": "python tools/invariant_products.py"}
        options.json.write_text(json.dumps(head | {"rows": rows}, indent=1) + "\n")
    if not all(row["same_bits"] for row in rows):
        raise SystemExit("rows of some products depend on the other rows")


if __name__ == "__main__":
    main()
