"""Muon's Newton-Schulz iteration, whose products of a matrix with its transpose are symmetric.

    python examples/newton_schulz.py                                   # a GPU where there is one
    python examples/newton_schulz.py --device cpu --shape 256x1024 --dtype float32
    python examples/newton_schulz.py --json newton_schulz.json

Five steps bring the singular values of a gradient near 1 (Jordan and others, "Muon: an optimizer for hidden layers
in neural networks", 2024). A step has three products. Two of them are symmetric, and fastgemm computes only half
of each. torch, torch.compile and fastgemm are timed in turn, and each result is compared with that of the same
steps in float64.

Exit codes: 0 fine, 1 the error of fastgemm is more than 1.5 times that of torch, 2 usage.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import fastgemm
import repository  # noqa: F401
import torch
from comparing import give, options_of_ways
from fastgemm.bench.cuda_timing import CudaTimer
from fastgemm.bench.timing import CpuTimer, interleave
from fastgemm.cli import options
from rich.table import Table
from torch import Tensor

SHAPES = {  # weights of a transformer, of a size that suits the device
    "cuda": ((2048, 2048), (2048, 5632), (4096, 4096), (4096, 11008)),
    "cpu": ((256, 1024), (768, 768), (768, 3072)),
}
STEPS = 5
A, B, C = 3.4445, -4.7750, 2.0315  # a quintic whose steps are steep at 0

Iteration = Callable[[Tensor], Tensor]


def by_torch(gradient: Tensor) -> Tensor:
    """gradient: (M, N) with M <= N."""
    x = gradient / (gradient.norm() + 1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x


def by_fastgemm(gradient: Tensor) -> Tensor:
    """The same, where fastgemm is told which results are symmetric."""
    x = gradient / (gradient.norm() + 1e-7)
    for _ in range(STEPS):
        gram = fastgemm.gemm(x, x, trans_b=True, symmetric=True)
        polynomial = fastgemm.gemm(gram, gram, gram, alpha=C, beta=B, symmetric=True)
        x = fastgemm.gemm(polynomial, x, x, beta=A)
    return x


def errors(results: dict[str, Tensor], exact: Tensor) -> dict[str, dict[str, float]]:
    """How far each result is from the exact one, relative to the exact one's norm, and how far its singular values
    are."""
    values = torch.linalg.svdvals(exact)  # once: it takes longer than all else here

    def values_off_by(result: Tensor) -> float:
        if not result.isfinite().all():  # svdvals raises
            return float("nan")
        return float((torch.linalg.svdvals(result.double()) - values).abs().max())

    return {
        name: {
            "error": float((result.double() - exact).norm() / exact.norm()),
            "singular_values": values_off_by(result),
        }
        for name, result in results.items()
    }


def measured(
    shape: tuple[int, int], dtype: torch.dtype, device: str, budget: float, compiles: bool
) -> dict[str, Any]:
    gradient = torch.randn(shape, dtype=dtype, device=device)
    ways: dict[str, Iteration] = {"torch": by_torch, "fastgemm": by_fastgemm}
    if compiles:
        ways["torch.compile"] = torch.compile(by_torch)
    found = errors({name: run(gradient) for name, run in ways.items()}, by_torch(gradient.double()))
    calls = {name: (lambda run=run: run(gradient)) for name, run in ways.items()}
    samples = interleave(calls, budget=budget, timer=CudaTimer() if device == "cuda" else CpuTimer())
    return {
        "shape": list(shape),
        "dtype": str(dtype).removeprefix("torch."),
        "ways": {
            name: found[name]
            | {
                "microseconds": samples.seconds(name).median * 1e6,
                "of_torch": samples.speedup(name, "torch").median,
            }
            for name in ways
        },
    }


def table_of(rows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"Newton-Schulz, {STEPS} steps")
    for head in ("layer", "type", "by", "us", "of torch", "error", "singular values off by"):
        table.add_column(head, justify="left" if head in ("type", "by") else "right")
    for row in rows:
        for name, way in row["ways"].items():
            table.add_row(
                *("x".join(map(str, row["shape"])), row["dtype"], name),
                *(f"{way['microseconds']:.0f}", f"{way['of_torch']:.2f}"),
                *(f"{way['error']:.1e}", f"{way['singular_values']:.1e}"),
            )
    return table


def layer(shape: tuple[int, ...]) -> tuple[int, int]:
    """(M, N) with M <= N; a single size stands for both. Raises click.BadParameter."""
    if len(shape) > 2:
        told = f"a layer has two sizes, got {len(shape)}: write 4096x11008"
        raise click.BadParameter(told, param_hint=options.SHAPE)
    return min(shape), max(shape)


@click.command(cls=options.CommandWithShapes, help=__doc__)
@click.option("--dtype", type=click.Choice(["bfloat16", "float16", "float32"]), multiple=True)
@click.option(options.SHAPE, "shapes", multiple=True, type=options.Shape(), metavar="MxN", help="Of a layer.")
@click.option("--compile/--no-compile", "compiles", default=True, help="Beside torch.compile as well.")
@options_of_ways
def main(
    device: str | None,
    dtype: tuple[str, ...],
    shapes: tuple[tuple[int, ...], ...],
    budget: float,
    compiles: bool,
    json: Path | None,
) -> None:
    torch.manual_seed(0)
    device = options.chosen_device(device)
    layers = [layer(shape) for shape in shapes] or SHAPES[device]
    rows = [
        measured(shape, getattr(torch, name), device, budget, compiles)
        for name in dtype or (("bfloat16", "float32") if device == "cuda" else ("float32",))
        for shape in layers
    ]
    give(table_of(rows), rows, device, json, command="python examples/newton_schulz.py")
    found = [(row["shape"], *(row["ways"][way]["error"] for way in ("fastgemm", "torch"))) for row in rows]
    worse = [shape for shape, ours, torchs in found if not ours <= 1.5 * torchs]  # NaN, too
    if worse:
        raise click.ClickException(f"fastgemm errs more than torch: {worse}")


if __name__ == "__main__":
    main()
