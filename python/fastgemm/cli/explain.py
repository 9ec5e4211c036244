"""``fastgemm explain``: the memory accesses of a CUDA kernel, line by line, without a GPU."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Any

import click
import torch

from .. import _explain
from .._explain import figures, plots, serialize, text
from .._explain.report import Report
from .._gpus import GPUS
from .._quantized.formats import FORMATS
from .._typing import Op
from ..bench.plots import SUFFIXES
from ..bench.problems import dtype_name
from ..table import FLOAT64_PRECISIONS, PRECISIONS, kernels
from . import options
from .console import check_plot, console, say_written, write_file, writing

SIDE_BY_SIDE = 2 * 120  # columns of a terminal that shows two sources beside each other
DEFAULT_SHAPE = (512,)
LEVELS = [str(level) for level in range(1, 8)]


def sizes_of(op: str, shape: tuple[int, ...] | None) -> tuple[int, ...]:
    """As many sizes as the op has dimensions; a single one is used for all of them. Raises click.UsageError."""
    names = "M N K" if op == "gemm" else "R C"
    rank = len(names.split())
    sizes = shape or DEFAULT_SHAPE
    if len(sizes) == 1:
        return sizes * rank
    if len(sizes) != rank:
        raise click.UsageError(f"--shape of {op} is {names} or a single size, got {len(sizes)} sizes")
    return sizes


def _choice(text_of_it: str) -> dict[str, Any]:
    """--compare takes a level or the name of a kernel. Raises click.BadParameter."""
    if not text_of_it.isdecimal():
        return {"kernel": text_of_it}
    if text_of_it not in LEVELS:
        raise click.BadParameter(
            f"{text_of_it} is no level: {LEVELS[0]} to {LEVELS[-1]}", param_hint="--compare"
        )
    return {"level": int(text_of_it)}


def _check_kernel(op: Op, choice: dict[str, Any], option: str) -> dict[str, Any]:
    """Checks that a choice names no kernel, or one that the simulator runs. Raises click.BadParameter."""
    if "kernel" in choice:
        rows = [row for row in kernels(op, "cuda") if "none" in row.groups and not row.needs_scales]
        own = [row for row in rows if row.level < options.LIBRARY_LEVEL]
        what = "is a library's, or for groups or fp8 only, which the simulator does not run here"
        options.check_kernel(choice["kernel"], op, "cuda", own, what, option)
    return choice


def _reports(op: Op, choices: list[dict[str, Any]], problem: dict[str, Any]) -> list[Report]:
    try:
        return [_explain.explain(op, **choice, **problem) for choice in choices]
    except (ValueError, TypeError, NotImplementedError) as error:
        raise click.UsageError(_in_words(error)) from error
    except (RuntimeError, MemoryError, OSError) as error:
        raise click.ClickException(_in_words(error) or type(error).__name__) from error


def _in_words(error: Exception) -> str:
    """The error's message, without the name of the function that the command calls."""
    return str(error).removeprefix("fastgemm.explain: ")


def show(report: Report) -> None:
    out = console(least=text.WIDTH)
    for part in text.renderables(report):
        out.print(part)


def show_both(before: Report, after: Report) -> None:
    """The two sources, side by side if there is room, then one table of both and their differences."""
    out = console(least=text.WIDTH)
    out.print(
        text.side_by_side(before, after) if out.width >= SIDE_BY_SIDE else text.one_by_one(before, after)
    )
    out.print(text.LEGEND, style="dim")
    out.print("")
    out.print(text.metrics_table([before, after]))
    out.print(f"from {before.kernel} to {after.kernel}:", style="bold")
    for change in figures.largest_changes(before, after):
        out.print(f"  {change}", markup=False)
    for report in (before, after):
        for part in text.limits(report):
            out.print(part)


def write(reports: list[Report], json: Path | None, csv: Path | None, plot: Path | None) -> None:
    """Writes the requested files and names them. Raises click.ClickException (exit code 1)."""
    if json:
        found = {"command": "explain", "reports": [report.to_dict() for report in reports]}
        write_file(json, lambda file: file.write(json_module.dumps(found, indent=1) + "\n"))
    if csv:
        write_file(csv, lambda file: serialize.write_csv(reports, file))
    drawn: list[Path] = []
    if plot:
        drawn = [plot] if plot.suffix else [plot.with_name(plot.name + s) for s in SUFFIXES[:2]]
        with writing(plot):
            plots.save(plots.access_figure(reports), *drawn)
    say_written([json, csv, *drawn])


@click.command(
    cls=options.CommandWithShapes, short_help="Show the memory accesses of a CUDA kernel, without a GPU."
)
@click.argument("op", type=click.Choice(["gemm", "transpose", "add"]))
@click.option(
    "--level", type=click.IntRange(1, 7), help="A rung of the ladder on CUDA; default: the highest."
)
@click.option("--kernel", help="One kernel of the table instead (fastgemm info --kernels).")
@click.option("--compare", metavar="LEVEL|KERNEL", help="Explain this one first, then what changed from it.")
@click.option(options.SHAPE, type=options.Shape(), help=f"{options.OF_SHAPES} Default: 512.")
@click.option("--dtype", type=options.DType(), default="float32", show_default=True, help="Element type.")
@click.option("--trans-a", is_flag=True, help="A of gemm is stored transposed.")
@click.option("--trans-b", is_flag=True, help="B of gemm is stored transposed.")
@click.option(
    "--precision",
    type=click.Choice([*PRECISIONS, *FLOAT64_PRECISIONS]),
    help="Precision of a product. crt14 to crt18 are for float64, the others for float32. Default: ieee.",
)
@click.option(
    "--weight",
    type=click.Choice(list(FORMATS)),
    help="The format of a packed weight B of gemm. Default: int4 for kernels that take only these.",
)
@click.option(
    "--gpu", default="H200", show_default=True, help=f"For occupancy and roofline: {', '.join(GPUS)}."
)
@options.outputs
def explain(
    op: Op,
    level: int | None,
    kernel: str | None,
    compare: str | None,
    shape: tuple[int, ...] | None,
    dtype: torch.dtype,
    trans_a: bool,
    trans_b: bool,
    precision: str | None,
    weight: str | None,
    gpu: str,
    json: Path | None,
    csv: Path | None,
    plot: Path | None,
) -> None:
    """Show the memory accesses of a CUDA kernel, line by line, counted on a simulated GPU.

    Beside each source line that touches memory stand its warp-wide requests, the sectors each moves, and its
    bank conflicts; below them the totals, the occupancy and the roofline of a GPU. Runs without a GPU.

    \b
    fastgemm explain gemm --level 3 --shape 512 512 512
    fastgemm explain transpose --level 3 --compare 2 --shape 1024 1024 --plot banks.svg
    """
    if level is not None and kernel is not None:
        raise click.UsageError("--level and --kernel exclude each other")
    options.check_dtype(op, dtype)
    chosen = {"level": level} if kernel is None else {"kernel": kernel}
    choices = [_check_kernel(op, chosen, "--kernel")]
    if compare is not None:
        choices.insert(0, _check_kernel(op, _choice(compare), "--compare"))
    problem = {"shape": sizes_of(op, shape), "dtype": dtype, "gpu": gpu}
    if op == "gemm":
        problem |= {"trans_a": trans_a, "trans_b": trans_b, "precision": precision, "weight": weight}
    elif trans_a or trans_b or precision or weight:
        raise click.UsageError(f"--trans-a, --trans-b, --precision and --weight belong to gemm, not to {op}")
    check_plot(plot)
    reports = _reports(op, choices, problem)
    if "-" not in (str(json), str(csv)):
        show_both(*reports) if compare is not None else show(*reports)
    write(reports, json, csv, plot)
    if any(report.problems or report.error for report in reports):
        found = sum(len(report.problems) for report in reports)
        raise click.ClickException(f"{found} problems found in {op} {dtype_name(dtype)}, see above")
