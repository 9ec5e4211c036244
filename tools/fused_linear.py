"""Layers with an epilogue beside torch's, eager and compiled, interleaved in one process.

    python tools/fused_linear.py --json benchmarks/results/h200/fused_linear.json

``activation(linear(x, weight, bias))``, with a residual where the line says so: torch's functions one by one, the
same under ``torch.compile``, ``fastgemm.linear``, and "apart", which is fastgemm's layer followed by torch's
activation: what the epilogue is worth. Times and ratios are taken as ``fastgemm bench`` takes them, on a GPU with
a cold L2 cache. Each result is held against float64 before it is timed.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
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
from torch.nn import functional

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}
# M x N x K: rows of x, rows of weight, features. Decoding, then prompts and training.
SHAPES = {
    "cuda": [
        (8192, 4096, 4096),
        (8, 14336, 4096),
        (8, 4096, 14336),
        (1, 14336, 4096),
        (64, 14336, 4096),
        (512, 4096, 4096),
        (2048, 8192, 2048),
        (4096, 14336, 4096),
        (8192, 8192, 8192),
    ],
    "cpu": [(8, 4096, 1024), (128, 1024, 1024), (512, 2048, 512)],
}
DTYPES = {"cuda": ("bfloat16", "float16", "float32"), "cpu": ("bfloat16", "float32")}
TOLERANCE = {torch.float32: 2e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def check(result: Tensor, x: Tensor, w: Tensor, b: Tensor, r: Tensor | None, activation: str) -> None:
    """Some of the rows against float64."""
    some = torch.linspace(0, x.shape[0] - 1, min(16, x.shape[0])).long().to(x.device)
    expected = ACTIVATIONS[activation](functional.linear(x[some].double(), w.double(), b.double()))
    if r is not None:
        expected = expected + r[some].double()
    error = (result[some].double() - expected).abs().max().item()
    bound = TOLERANCE[x.dtype] * max(1.0, expected.abs().max().item())
    if not error <= bound:
        raise SystemExit(
            f"wrong: {activation} {tuple(x.shape)} {x.dtype} errs by {error:.2e}, at most {bound:.2e}"
        )


def measured(
    dtype: torch.dtype,
    shape: tuple[int, int, int],
    activation: str,
    residual: bool,
    device: str,
    budget: float,
    compiles: bool,
) -> dict[str, Any]:
    m, n, k = shape
    x = torch.randn(m, k, device=device).to(dtype)
    w = (torch.randn(n, k, device=device) / math.sqrt(k)).to(dtype)
    b = torch.randn(n, device=device).to(dtype)
    r = torch.randn(m, n, device=device).to(dtype) if residual else None
    function = ACTIVATIONS[activation]
    named = None if activation == "none" else activation

    def eager() -> Tensor:
        out = function(functional.linear(x, w, b))
        return out if r is None else out + r

    def apart() -> Tensor:
        out = function(fastgemm.linear(x, w, b))
        return out if r is None else out + r

    def fused() -> Tensor:
        return fastgemm.linear(x, w, b, activation=named, residual=r)

    calls = {"fastgemm": fused, "apart": apart, "eager": eager}
    if compiles:
        torch._dynamo.reset()
        calls["compiled"] = torch.compile(eager)
    with torch.no_grad():
        check(fused(), x, w, b, r, activation)
        chosen = take_last_gemm_kernel()
        for call in calls.values():
            call()
        samples = interleave(calls, budget=budget, timer=CudaTimer() if device == "cuda" else CpuTimer())
    others = [way for way in ("eager", "compiled") if way in calls]
    return {
        "dtype": str(dtype).removeprefix("torch."),
        "shape": list(shape),
        "activation": activation,
        "residual": residual,
        "chosen": chosen,
        "microseconds": {way: samples.seconds(way).median * 1e6 for way in calls},
        "speedup": {way: samples.speedup("fastgemm", way).median for way in others},
        "quartiles": {way: [(s := samples.speedup("fastgemm", way)).q1, s.q3] for way in others},
        "of_apart": samples.speedup("fastgemm", "apart").median,
    }


def cases(options: argparse.Namespace) -> list[tuple[torch.dtype, tuple[int, int, int], str, bool]]:
    found = []
    for name in options.dtypes or DTYPES[options.device]:
        shapes = [tuple(s) for s in options.shapes] if options.shapes else SHAPES[options.device]
        for shape in shapes:
            found.append((getattr(torch, name), shape, "gelu", False))
        for activation in ("relu", "gelu_tanh", "silu", "none"):
            found.append((getattr(torch, name), shapes[0], activation, False))
        found.append((getattr(torch, name), shapes[0], "gelu", True))
    return found


def shape_of(text: str) -> tuple[int, ...]:
    sizes = tuple(map(int, text.split("x")))
    if len(sizes) != 3:
        raise argparse.ArgumentTypeError(f"a shape is MxNxK, got {text!r}")
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default=best_device())
    parser.add_argument("--shapes", type=shape_of, nargs="+", metavar="MxNxK")
    parser.add_argument("--dtypes", nargs="+", metavar="DTYPE")
    parser.add_argument("--budget", type=float, default=0.3, help="seconds for each way of a layer")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    for case in cases(options):
        row = measured(*case, options.device, options.budget, not options.no_compile)
        rows.append(row)
        ratios = "  ".join(f"{way} {ratio:.3f}" for way, ratio in row["speedup"].items())
        size, added = "x".join(map(str, row["shape"])), " + residual" if row["residual"] else ""
        what = f"{row['dtype']} {size} {row['activation']}{added} ({row['chosen']})"
        print(f"{what}  times as fast as {ratios}", flush=True)
    if options.json:
        head = {"environment": describe(options.device), "command": "python tools/fused_linear.py"}
        options.json.write_text(json.dumps(head | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
