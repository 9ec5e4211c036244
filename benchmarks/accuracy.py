"""Measures the errors of float32 products against float64, for each precision and for torch, and no times.

    python benchmarks/accuracy.py                                      # as run.py accuracy, but writes no file
    python benchmarks/accuracy.py --shape 3000x500x777 --kernel tiled --plot errors.svg

Exit codes: 0 fine, 1 a result is wrong, 2 usage.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import click
import torch
from fastgemm.cli import options
from fastgemm.cli.console import failures_as_exit_code, progress_bar, write_outputs
from fastgemm.table import kernels
from studies.accuracy import run_accuracy
from studies.accuracy.contenders import Contender, contenders
from studies.accuracy.figures import FIGURES
from studies.accuracy.table import show


def _rivals(device: str, names: tuple[str, ...]) -> list[Contender]:
    """The usual contenders, and the kernels that the command line names. Raises click.BadParameter."""
    known = [row for row in kernels("gemm", device, torch.float32) if row.available and row.level < 7]
    for wanted in names:
        options.check_kernel(
            wanted,
            "gemm",
            device,
            known,
            f"is no kernel that can be compared with torch in float32 on {device}",
        )
    return contenders(device, names)


@click.command(cls=options.CommandWithShapes)
@click.option(options.SHAPE, "shapes", multiple=True, type=options.Shape(), help="M N K; may be repeated.")
@click.option("--kernel", "names", multiple=True, help="A further kernel of float32; may be repeated.")
@options.device
@options.threads
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), help="Seed of all operands. Default: a fresh one.")
@options.outputs
@options.raw
def main(
    shapes: tuple[tuple[int, ...], ...],
    names: tuple[str, ...],
    device: str | None,
    threads: int | None,
    seed: int | None,
    json: Path | None,
    csv: Path | None,
    plot: Path | None,
) -> None:
    """Measure errors of float32 products by distribution of the operands and K, with special values and int32."""
    sizes = [shape * 3 if len(shape) == 1 else shape for shape in shapes]
    if any(len(shape) != 3 for shape in sizes):
        raise click.UsageError("shapes are MxNxK, or N for NxNxN")
    device = options.chosen_device(device)
    rivals = _rivals(device, names)
    seed = secrets.randbits(32) if seed is None else seed
    with failures_as_exit_code(), progress_bar() as progress:
        report = run_accuracy(
            device, shapes=sizes, seed=seed, rivals=rivals, threads=threads, progress=progress
        )
    if str(json) != "-" and str(csv) != "-":
        show(report)
    write_outputs(report, json=json, csv=csv, plot=plot, make=FIGURES["normwise"])
    if not report.right:
        raise click.ClickException("wrong results:\n" + "\n".join(report.wrong_lines()))


if __name__ == "__main__":
    main()
