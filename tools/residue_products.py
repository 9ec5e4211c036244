"""Products by residues beside torch's, interleaved in one process: float64 and float32 times and errors, int64
rates, and those of narrower integers beside int8.

    python tools/residue_products.py --json benchmarks/results/h200/residue_products.json

Times and ratios are taken as ``fastgemm bench`` takes them, on a GPU with a cold L2 cache. Errors are those of
some elements of the result against sums in twice the precision: the largest in units of those of |a| |b|, and the
root of the mean square in units of the norms of row and column, both times 2**53 (of float32, 2**24).
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fastgemm
import torch
from fastgemm.bench import describe
from fastgemm.bench.cuda_timing import CudaTimer
from fastgemm.bench.devices import best_device
from fastgemm.bench.timing import CpuTimer, interleave
from torch import Tensor

SQUARES = {"cuda": (1024, 2048, 4096, 8192, 16384), "cpu": (128,)}
OTHERS = {
    "cuda": ((256, 256, 256), (1000, 1001, 999), (16, 4096, 4096), (4096, 4096, 64), (512, 512, 65536)),
    "cpu": ((40, 50, 60),),
}
DEPTHS = {"cuda": (40, 500, 4096, 65536), "cpu": (40,)}
# Draws of float64 operands and elements of each whose errors are taken: where magnitudes differ by 2**70, few
# elements have the errors of which a norm consists.
DRAWS, ROWS, COLUMNS = {"cuda": 8, "cpu": 2}, 16, 128
INT64 = {"cuda": (1024, 2048, 4096, 8192), "cpu": (128,)}
NARROW = {"cuda": (2048, 4096, 8192), "cpu": (128,)}
FLOAT32 = {"cuda": (2048, 4096, 8192, 16384), "cpu": (128,)}
FLOAT32_DEPTHS = {"cuda": (100, 500, 4096, 65536), "cpu": (100,)}


def wide(rows: int, columns: int, device: str) -> Tensor:
    """Magnitudes over some 70 bits."""
    return torch.randn(rows, columns, dtype=torch.float64, device=device) * torch.exp(
        8 * torch.randn(rows, columns, dtype=torch.float64, device=device)
    )


def normal(rows: int, columns: int, device: str) -> Tensor:
    return torch.randn(rows, columns, dtype=torch.float64, device=device)


def operands(distribution: str, m: int, n: int, k: int, device: str) -> tuple[Tensor, Tensor]:
    if distribution == "wide":
        return wide(m, k, device), wide(k, n, device)
    a, b = normal(m, k, device), normal(k, n, device)
    if distribution == "uniform":
        a, b = torch.rand_like(a) * 2 - 1, torch.rand_like(b) * 2 - 1
    elif distribution == "positive":
        a, b = torch.rand_like(a), torch.rand_like(b)
    elif (
        distribution == "cancelling"
    ):  # the second half of k takes away what the first half gave, but for a little
        half = k // 2
        a[:, half : 2 * half] = a[:, :half]
        b[half : 2 * half] = -b[:half] * (1 + 2.0**-30 * torch.randn_like(b[:half]))
    return a, b


DISTRIBUTIONS = ("normal", "uniform", "positive", "cancelling", "wide")


def ways(device: str) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """How float64 products are computed; on a CPU, which has no kernels for residues, they are all its own."""
    residues = {"kernel": "crt"} if device == "cuda" else {}
    return {
        "torch": torch.matmul,
        "fastgemm": fastgemm.matmul,
        "dmma": lambda a, b: fastgemm.matmul(a, b, **({"kernel": "dmma"} if residues else {"level": 5})),
        "crt": lambda a, b: fastgemm.matmul(a, b, **residues),
        "crt14": lambda a, b: fastgemm.matmul(a, b, precision="crt14", **residues),
    }


def two_sum(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """x + y and its error (Knuth)."""
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


def two_product(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """x y and its error (Dekker, Veltkamp)."""

    def halves(t: Tensor) -> tuple[Tensor, Tensor]:
        scaled = t * 134217729.0
        high = scaled - (scaled - t)
        return high, t - high

    (x_high, x_low), (y_high, y_low) = halves(x), halves(y)
    product = x * y
    return product, ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low


def product_in_twice_the_precision(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """(M, K) @ (K, N) as a pair of matrices that add up to it: all products at once, summed in pairs."""
    high, low = two_product(a[:, None, :], b.mT[None])
    while high.shape[-1] > 1:
        if high.shape[-1] % 2:
            high, low = (torch.nn.functional.pad(t, (0, 1)) for t in (high, low))
        high, error = two_sum(high[..., 0::2], high[..., 1::2])
        low = low[..., 0::2] + low[..., 1::2] + error
    return high[..., 0], low[..., 0]


def errors(results: dict[str, Tensor], a: Tensor, b: Tensor) -> dict[str, list[float]]:
    """[componentwise, normwise] of ROWS rows and COLUMNS columns."""
    rows = torch.linspace(0, a.shape[0] - 1, ROWS, device=a.device).long()
    columns = torch.linspace(0, b.shape[1] - 1, COLUMNS, device=b.device).long()
    x, y = a[rows], b[:, columns]
    high, low = product_in_twice_the_precision(x, y)
    magnitudes, norms = x.abs() @ y.abs(), x.norm(dim=1)[:, None] * y.norm(dim=0)[None]
    found = {}
    for name, result in results.items():
        error = ((result[rows][:, columns] - high) - low).abs()
        found[name] = [
            float((error / magnitudes).max()) * 2**53,
            float((error / norms).square().mean().sqrt()) * 2**53,
        ]
    return found


def timed(calls: dict[str, Callable[[], Tensor]], device: str, budget: float) -> dict[str, dict[str, float]]:
    samples = interleave(calls, budget=budget, timer=CudaTimer() if device == "cuda" else CpuTimer())
    return {
        "microseconds": {name: samples.seconds(name).median * 1e6 for name in calls},
        "of_torch": {name: samples.speedup(name, "torch").median for name in calls if "torch" in calls},
    }


def float64_times(device: str, budget: float) -> list[dict[str, Any]]:
    problems = [("normal", (n, n, n)) for n in SQUARES[device]]
    problems += [("wide", (n, n, n)) for n in SQUARES[device] if n >= 4096 or device == "cpu"]
    problems += [("normal", shape) for shape in OTHERS[device]]
    rows = []
    for distribution, (m, n, k) in problems:
        a, b = operands(distribution, m, n, k, device)
        calls = {name: partial(way, a, b) for name, way in ways(device).items()}
        rows.append({"distribution": distribution, "shape": [m, n, k]} | timed(calls, device, budget))
        ratios = "  ".join(f"{name} {ratio:.3f}" for name, ratio in rows[-1]["of_torch"].items())
        print(f"float64 {distribution} {m} x {n} x {k}  of torch: {ratios}", flush=True)
    return rows


def float64_errors(device: str) -> list[dict[str, Any]]:
    rows = []
    for distribution in DISTRIBUTIONS:
        for k in DEPTHS[device]:
            draws = []
            for _ in range(DRAWS[device]):
                a, b = operands(distribution, 256, 512, k, device)
                draws.append(errors({name: way(a, b) for name, way in ways(device).items()}, a, b))
            found = {
                name: [
                    max(draw[name][0] for draw in draws),
                    statistics.fmean(draw[name][1] ** 2 for draw in draws) ** 0.5,
                ]
                for name in draws[0]
            }
            rows.append({"distribution": distribution, "k": k, "errors": found})
            shown = "  ".join(f"{name} {x[0]:.3f}" for name, x in rows[-1]["errors"].items())
            print(f"errors {distribution} {k}: {shown}", flush=True)
    return rows


def float32_operands(distribution: str, m: int, n: int, k: int, device: str) -> tuple[Tensor, Tensor]:
    """Also activations after a ReLU beside normal weights: half of a row is zeros."""
    if distribution == "relu":
        return torch.randn(m, k, device=device).relu(), torch.randn(k, n, device=device)
    a, b = operands(distribution, m, n, k, device)
    return a.float(), b.float()


def float32_ways(device: str) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    own = {"bf16x6": "bf16x6", "crt": "crt"} if device == "cuda" else {"level 5": "microkernel"}
    return {"torch": torch.matmul, "fastgemm": fastgemm.matmul} | {
        name: partial(fastgemm.matmul, kernel=kernel) for name, kernel in own.items()
    }


def float32_times(device: str, budget: float) -> list[dict[str, Any]]:
    rows = []
    for distribution in ("normal", "relu", "wide"):
        for n in FLOAT32[device]:
            a, b = float32_operands(distribution, n, n, n, device)
            calls = {name: partial(way, a, b) for name, way in float32_ways(device).items()}
            rows.append({"distribution": distribution, "shape": [n, n, n]} | timed(calls, device, budget))
            ratios = "  ".join(f"{name} {ratio:.3f}" for name, ratio in rows[-1]["of_torch"].items())
            print(f"float32 {distribution} {n}  of torch: {ratios}", flush=True)
            del a, b, calls
    return rows


def float32_errors(device: str) -> list[dict[str, Any]]:
    rows = []
    for distribution in (*DISTRIBUTIONS, "relu"):
        for k in FLOAT32_DEPTHS[device]:
            a, b = float32_operands(distribution, 2048, 2048, k, device)
            exact, magnitudes = a.double() @ b.double(), a.double().abs() @ b.double().abs()
            norms = a.double().norm(dim=1)[:, None] * b.double().norm(dim=0)[None]
            found = {}
            for name, way in float32_ways(device).items():
                error = (way(a, b).double() - exact).abs()
                found[name] = [
                    float((error / magnitudes).max()) * 2**24,
                    float((error / norms).square().mean().sqrt()) * 2**24,
                ]
            rows.append({"distribution": distribution, "k": k, "errors": found})
            shown = "  ".join(f"{name} {x[0]:.3f}" for name, x in found.items())
            print(f"float32 errors {distribution} {k}: {shown}", flush=True)
    return rows


def int64_times(device: str, budget: float) -> list[dict[str, Any]]:
    rows = []
    for n in INT64[device]:
        a, b = (
            torch.randint(-(2**63), 2**63 - 1, (n, n), dtype=torch.int64, device=device) for _ in range(2)
        )
        calls = {
            "fastgemm": partial(fastgemm.matmul, a, b),
            "level 5": partial(fastgemm.matmul, a, b, level=5),
        }
        part = a[:8].cpu().numpy() @ b.cpu().numpy()
        exact = torch.equal(calls["fastgemm"]()[:8].cpu(), torch.from_numpy(part))
        rows.append({"size": n, "exact": exact} | timed(calls, device, budget))
        rate = 2 * n**3 / rows[-1]["microseconds"]["fastgemm"] / 1e6
        print(f"int64 {n}: {rate:.1f} TOPS, exact: {exact}", flush=True)
    return rows


def whole_range(n: int, dtype: torch.dtype, device: str) -> Tensor:
    range_ = torch.iinfo(dtype)
    return torch.randint(range_.min, range_.max + 1, (n, n), device=device).to(dtype)


# Operands and result.
NARROW_TYPES = (
    (torch.int8, torch.int8, None),
    (torch.uint8, torch.uint8, None),
    (torch.uint8, torch.int8, None),
    (torch.int8, torch.uint8, None),
    (torch.int16, torch.int16, torch.int32),
    (torch.int16, torch.int16, None),
)


def narrow_times(device: str, budget: float) -> list[dict[str, Any]]:
    rows = []
    for n in NARROW[device]:
        calls, exact = {}, {}
        for type_a, type_b, result in NARROW_TYPES:
            a, b = whole_range(n, type_a, device), whole_range(n, type_b, device)
            call = partial(fastgemm.matmul, a, b, out_dtype=result)
            found = call()
            names = (str(type_).removeprefix("torch.") for type_ in (type_a, type_b, found.dtype))
            name = "{} x {} to {}".format(*names)
            part = torch.from_numpy(a[:8].cpu().long().numpy() @ b.cpu().long().numpy())
            calls[name], exact[name] = call, torch.equal(found[:8].cpu(), part.to(found.dtype))
        rows.append({"size": n, "exact": exact} | timed(calls, device, budget))
        for name, microseconds in rows[-1]["microseconds"].items():
            rate = 2 * n**3 / microseconds / 1e6
            print(f"{name} {n}: {rate:.1f} TOPS, exact: {exact[name]}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default=best_device())
    parser.add_argument("--budget", type=float, default=0.3, help="seconds for each way of a product")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    found = {
        "environment": describe(options.device),
        "command": "python tools/residue_products.py",
        "float64": float64_times(options.device, options.budget),
        "errors": float64_errors(options.device),
        "int64": int64_times(options.device, options.budget),
        "narrow_integers": narrow_times(options.device, options.budget),
        "float32": float32_times(options.device, options.budget),
        "float32_errors": float32_errors(options.device),
    }
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
