"""``fastgemm bench``: many problems against torch."""

from __future__ import annotations

from pathlib import Path

import click
import torch

from ..bench.presets import PRESETS, Case, from_shape, preset_cases
from ..bench.problems import LAYOUTS
from ..bench.sweep import run_sweep
from ..table import kernels
from . import options, tables
from .console import console, failures_as_exit_code, progress_bar, write_outputs


def choices_of(op: str, levels: tuple[int, ...], names: tuple[str, ...]) -> tuple:
    """What to ask for on each problem: levels, kernels, or the fastest known. Raises click.BadParameter."""
    known = [row.name for row in kernels(op, "cpu")]
    for name in names:
        if name not in known:
            raise click.BadParameter(
                f"{name!r} is no kernel of {op}; known: {', '.join(known)}", param_hint="--kernel"
            )
    return (*((("level", n),) for n in levels), *((("kernel", name),) for name in names)) or ((),)


def cases_of(
    op: str,
    presets: tuple[str, ...],
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[torch.dtype, ...],
    layouts: tuple[str, ...],
    choices: tuple,
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


@click.command()
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
    "torch.nn.Linear stores them. reference: what the published figures are measured on, with ops and dtypes "
    "of its own. Default without --shape: squares.",
)
@click.option(
    "--shape", "shapes", multiple=True, type=options.Shape(), help="[Bx]MxNxK, [Bx]RxC; may be repeated."
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
@click.option("--kernel", "names", multiple=True, help="A kernel by name; may be repeated.")
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
def bench(
    op: str,
    presets: tuple[str, ...],
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[torch.dtype, ...],
    layouts: tuple[str, ...],
    levels: tuple[int, ...],
    names: tuple[str, ...],
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
    cases = cases_of(op, presets, shapes, dtypes, layouts, choices_of(op, levels, names), threads)
    with failures_as_exit_code():
        with progress_bar() as progress:
            report = run_sweep(
                cases, threads=threads, budget=budget or 0.5, checks=checks, tune=tune, progress=progress
            )
        if str(json) != "-" and str(csv) != "-":
            out = console()
            out.print(tables.bench_table(report.results))
            out.print(tables.means_table(report))
    write_outputs(report, json=json, csv=csv, plot=plot)
    if not report.right:
        raise click.ClickException("wrong results:\n" + "\n".join(tables.wrong_rows(report)))
