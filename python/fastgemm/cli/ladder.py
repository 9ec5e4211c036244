"""``fastgemm ladder``: every level of gemm and transpose, checked and measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import torch

from .._typing import Precision
from ..bench.ladder import run_ladder
from ..bench.presets import from_shape
from ..bench.problems import Gemm, Problem
from ..bench.records import Report, select
from ..table import kernels
from . import options, tables
from .console import check_plot, console, failures_as_exit_code, progress_bar, write_outputs

DEFAULT_NAME = "fastgemm-ladder"
SIZES = {
    "cpu": {"gemm": 1024, "transpose": 4096, "add": 4096},
    "cuda": {"gemm": 4096, "transpose": 8192, "add": 8192},
}
QUICK_SIZES = {
    "cpu": {"gemm": 256, "transpose": 1024, "add": 1024},
    "cuda": {"gemm": 1024, "transpose": 4096, "add": 4096},
}
BUDGET, QUICK_BUDGET = 1.0, 0.1


def problems_of(
    device: str,
    ops: tuple[str, ...],
    size: int | None,
    shape: tuple[int, ...] | None,
    dtype: torch.dtype,
    precision: Precision | None,
    quick: bool,
) -> list[Problem]:
    """The problems that the options name. Raises click.UsageError."""
    if precision and (device, dtype, "gemm" in ops) != ("cuda", torch.float32, True):
        raise click.UsageError("--precision is for gemm in float32 on a GPU")
    if shape and size:
        raise click.UsageError("--shape and --size exclude each other")
    if shape and len(shape) > 1 and len(ops) != 1:
        raise click.UsageError("--shape needs one --op, unless it is a single size")
    found = []
    for op in ops:
        options.check_dtype(op, dtype)
        n = size or (QUICK_SIZES if quick else SIZES)[device][op]
        try:
            problem = from_shape(op, shape or (n,), dtype)
            found.append(replace(problem, precision=precision) if isinstance(problem, Gemm) else problem)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    return found


def default_file(name: str) -> Path:
    """The file in the current folder. Raises click.UsageError before the measurement if it cannot be written."""
    try:
        return options.OutputPath(dash=False).convert(name, None, None)
    except click.BadParameter as error:
        raise click.UsageError(
            f"{error.message}; --no-files writes nothing, --json and --plot name others"
        ) from error


def show(report: Report) -> None:
    out = console()
    for op in dict.fromkeys(row.op for row in report.results):
        rows = select(report.results, op=op)
        device = report.environment["device_type"]
        out.print(tables.ladder_table(rows, report.environment["device"]))
        beside = tables.beside_table(rows, {row.name: row.summary for row in kernels(op, device)})
        if beside:
            out.print(beside)
        if peak := tables.peak_line(rows):
            out.print(peak, style="dim", markup=False)
        notes = report.summary[op]
        for text in [*(f"{text} in this run" for text in notes["order_violations"]), *notes["below_torch"]]:
            out.print(f"note: {text}", style="yellow", markup=False)
        for text in [*notes["refused"], *tables.untimed_lines(rows)]:
            out.print(f"note: {text}", style="dim", markup=False)
        out.print()
    env = report.environment
    more = f" ({env['cpu_features']})" if env["device_type"] == "cpu" else ""
    out.print(f"{env['device']}{more}, torch {env['torch']}, {env['date']}", style="dim")
    if env["oversubscribed"]:
        out.print(f"note: more threads than the {env['cores']} cores of this machine", style="yellow")
    tables.print_busy(out, report)


@click.command(cls=options.CommandWithShapes, short_help="Run, check and time every level: the main job.")
@click.option(
    "--op",
    "ops",
    multiple=True,
    type=click.Choice(["gemm", "transpose", "add"]),
    help="Operation; may be repeated. Default: gemm and transpose.",
)
@click.option(
    "--size",
    type=options.Count(),
    help="Rows, columns and K. Default: gemm 1024, others 4096; on a GPU 4096 and 8192.",
)
@click.option(
    options.SHAPE,
    type=options.Shape(),
    help=f"{options.OF_SHAPES}{options.OF_BATCHES} Several sizes need one --op.",
)
@click.option("--dtype", type=options.DType(), default="float32", show_default=True, help="Element type.")
@options.precision
@options.device
@options.threads
@options.budget
@click.option("--quick", is_flag=True, help="Small sizes and short samples: a few seconds, rough figures.")
@click.option("--no-files", is_flag=True, help="Write no files by default.")
@options.outputs
@options.raw
def ladder(
    ops: tuple[str, ...],
    size: int | None,
    shape: tuple[int, ...] | None,
    dtype: torch.dtype,
    precision: Precision | None,
    device: str | None,
    threads: int | None,
    budget: float | None,
    quick: bool,
    no_files: bool,
    json: Path | None,
    csv: Path | None,
    plot: Path | None,
) -> None:
    """Run every level of gemm and transpose, check each against float64, and time it against torch.

    Without --json, --csv and --plot the results go to fastgemm-ladder.json, .png and .svg in the current folder.
    """
    device = options.chosen_device(device)
    problems = problems_of(device, ops or ("gemm", "transpose"), size, shape, dtype, precision, quick)
    if not (no_files or json or csv or plot):
        json, plot = default_file(f"{DEFAULT_NAME}.json"), default_file(DEFAULT_NAME)
    check_plot(plot)
    with failures_as_exit_code(), progress_bar() as progress:
        seconds = budget or (QUICK_BUDGET if quick else BUDGET)
        report = run_ladder(problems, device=device, threads=threads, budget=seconds, progress=progress)
    if str(json) != "-" and str(csv) != "-":
        show(report)
    write_outputs(report, json=json, csv=csv, plot=plot)
    if not report.right:
        raise click.ClickException(tables.failures(report))
