"""``fastgemm bench``: many problems against torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import torch

from .. import tuning
from .._typing import Op, Precision
from ..bench.presets import PRESETS, Case, Choice, from_shape, preset_cases
from ..bench.problems import LAYOUTS, Gemm
from ..bench.records import Report
from ..bench.sweep import run_sweep
from ..table import kernels
from . import options, tables
from .console import check_plot, console, failures_as_exit_code, progress_bar, say_written, write_outputs


def choices_of(device: str, op: Op, levels: tuple[int, ...], names: tuple[str, ...]) -> tuple[Choice, ...]:
    """The choices for each problem: levels, kernels, or the fastest known. Raises click.BadParameter."""
    own = [row for row in kernels(op, device) if op != "gemm" or row.takes_matrices]
    what = "takes packed weights, groups or fp8 only, which this command does not make"
    for name in names:
        options.check_kernel(name, op, device, own, what)
    return (*((("level", n),) for n in levels), *((("kernel", name),) for name in names)) or ((),)


def cases_of(
    op: str,
    presets: tuple[str, ...],
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[torch.dtype, ...],
    layouts: tuple[str, ...],
    choices: tuple[Choice, ...],
    threads: int | None,
) -> list[Case]:
    """The cases that the options name. Raises click.UsageError."""
    for dtype in dtypes:
        options.check_dtype(op, dtype)
    if op != "gemm" and layouts:
        raise click.UsageError("--layout is for gemm")
    layouts = layouts or ("NN",)
    cases: list[Case] = []
    try:
        for dtype in dtypes:
            for layout in layouts:
                group = f"{op} {str(dtype).removeprefix('torch.')}"
                cases += [
                    Case(from_shape(op, shape, dtype, layout), group, choices, threads) for shape in shapes
                ]
        for preset in presets or (() if shapes else ("squares",)):
            cases += preset_cases(preset, op, list(dtypes), list(layouts), choices, threads)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return cases


def with_precision(cases: list[Case], device: str, precision: Precision | None) -> list[Case]:
    """The cases with the precision of their float32 products. Raises click.UsageError if there are no such
    products."""
    if precision is None:
        return cases
    products = [
        case for case in cases if isinstance(case.problem, Gemm) and case.problem.dtype == torch.float32
    ]
    if device != "cuda" or not products:
        raise click.UsageError("--precision is for gemm in float32 on a GPU")
    return [
        replace(case, problem=replace(case.problem, precision=precision))
        if case in products and isinstance(case.problem, Gemm)
        else case
        for case in cases
    ]


@click.command(cls=options.CommandWithShapes, short_help="Time problems against torch.")
@click.option(
    "--op",
    type=click.Choice(["gemm", "transpose", "add"]),
    default="gemm",
    show_default=True,
    help="Operation.",
)
@click.option(
    "--preset",
    "presets",
    multiple=True,
    type=click.Choice(PRESETS),
    help="A set of shapes; may be repeated. transformers: layers of well-known models, weights stored as "
    "torch.nn.Linear stores them. Default without --shape: squares.",
)
@click.option(
    options.SHAPE,
    "shapes",
    multiple=True,
    type=options.Shape(),
    help=f"{options.OF_SHAPES}{options.OF_BATCHES} May be repeated.",
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    type=options.DType(),
    default=["float32"],
    show_default=True,
    help="May be repeated.",
)
@click.option(
    "--layout", "layouts", multiple=True, type=click.Choice(LAYOUTS), help="T: operand stored transposed."
)
@click.option(
    "--level",
    "levels",
    multiple=True,
    type=click.IntRange(1, 7),
    help="A level instead of the fastest known.",
)
@click.option(
    "--kernel", "names", multiple=True, help="A kernel by name (fastgemm info --kernels); may be repeated."
)
@options.precision
@options.device
@options.threads
@options.budget
@click.option(
    "--check/--no-check",
    "checks",
    default=True,
    show_default=True,
    help="Check each kernel before timing it.",
)
@click.option(
    "--tune", is_flag=True, help="First measure all kernels on each problem and remember the fastest on disk."
)
@options.outputs
@options.raw
def bench(
    op: Op,
    presets: tuple[str, ...],
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[torch.dtype, ...],
    layouts: tuple[str, ...],
    levels: tuple[int, ...],
    names: tuple[str, ...],
    precision: Precision | None,
    device: str | None,
    threads: int | None,
    budget: float | None,
    checks: bool,
    tune: bool,
    json: Path | None,
    csv: Path | None,
    plot: Path | None,
) -> None:
    """Time problems against torch, interleaved in one process, and name the kernel that ran.

    The baseline is torch.matmul, for int8 torch._int_mm, for transpose out.copy_(a.mT). Ratios above 1 mean
    faster than torch: the median of the ratios within a round; spread is half the distance of their quartiles.
    """
    device = options.chosen_device(device)
    if tune and op == "add":
        raise click.UsageError("--tune measures gemm and transpose, not add")
    choices = choices_of(device, op, levels, names)
    cases = cases_of(op, presets, shapes, dtypes, layouts, choices, threads)
    cases = with_precision(cases, device, precision)
    check_plot(plot)
    with failures_as_exit_code(), progress_bar() as progress:
        report = run_sweep(
            cases,
            device=device,
            threads=threads,
            budget=budget or 0.5,
            checks=checks,
            tune=tune,
            progress=progress,
        )
    report.method["presets"] = list(presets)
    if str(json) != "-" and str(csv) != "-":
        show(report)
    write_outputs(report, json=json, csv=csv, plot=plot)
    if tune:
        say_written([tuning.cache_file()] if tuning.cache_file().exists() else [])
    if not report.right:
        raise click.ClickException(tables.failures(report))


def show(report: Report) -> None:
    out = console()
    out.print(tables.bench_table(report.results))
    if report.summary["geometric_means"]:
        out.print(tables.means_table(report))
    for line in tables.untimed_lines(report.results):
        out.print(line, markup=False)
    tables.print_busy(out, report)
