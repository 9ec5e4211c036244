"""``fastgemm tune``: measures the GPU or the processor at hand, for choices that follow what is fast on it."""

from __future__ import annotations

import contextlib
import json as json_module
from collections.abc import Iterator
from pathlib import Path

import click
import torch
from rich.console import Group
from rich.text import Text

from .. import _tune
from .._choice import predictions
from .._explain.rich_tables import ByWidth, stacked, titled
from . import options
from .console import console, failures_as_exit_code, progress_bar, say_written, write_file


def _table(found: _tune.Tuning) -> ByWidth:
    title = "time of what is chosen / of the fastest measured, geometric means"
    figures = ("problems", "level=None before", "after", "level=6 before", "after")
    wide, stack = titled(title, ["dtype"], figures), []
    for series, after in found.after.items():
        before = found.before[series]
        means = (before.free, after.free, before.level6, after.level6)
        cells = ["-" if x != x else f"{x:.3f}" for x in means]
        wide.add_row(series, str(after.points), *cells)
        lines = [[Text("level=None"), *map(Text, cells[:2])], [Text("level=6"), *map(Text, cells[2:])]]
        stack.append((Text(f"{series}, {after.points} problems"), lines))
    return ByWidth(wide, Group(Text(title, style="bold"), stacked(("", "before", "after"), stack, left=1)))


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """If something is missing here, the command ends with exit code 1 and says what to do."""
    with failures_as_exit_code():
        try:
            yield
        except ImportError as error:
            raise click.ClickException(str(error)) from error
        except _tune.NoGpu as error:
            raise click.ClickException(str(error)) from error


def _forget(device: _tune.Device | None) -> str:
    with _refusals():
        name, there = _tune.forget(device)
    return f"{name}: " + ("forgotten" if there else "nothing was tuned with these versions")


@click.command(short_help="Measure a GPU or the processor, so that choices follow what is fast on it.")
@click.option(
    "--device",
    type=click.Choice(["cuda", "cpu"]),
    help="What to measure. Default: the GPU where the kernels can use one, else the processor.",
)
@click.option(
    "--seconds",
    type=options.Seconds(),
    default=_tune.SECONDS,
    show_default=True,
    help="How long to measure; fitting takes a few more.",
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    type=options.DType(),
    help="Only these types; may be repeated. float32 includes tf32. The others stay as they are.",
)
@click.option("--forget", is_flag=True, help="Take back what was tuned on this device, and measure nothing.")
@click.option(
    "--json",
    type=options.OutputPath(dash=True),
    metavar="PATH",
    help="Write what was measured and fitted; - is stdout.",
)
def tune(
    device: _tune.Device | None,
    seconds: float,
    dtypes: tuple[torch.dtype, ...],
    forget: bool,
    json: Path | None,
) -> None:
    """Measure the GPU or the processor at hand, so that level=None and each level choose by what is fast on it.

    Kernels are chosen by predicted times. This times the kernels and the library on random products of all
    shapes and layouts, on a CPU on one thread and on all, fits the predictions to that, and keeps them on disk for
    later processes. Nothing else should run on the device meanwhile.
    """
    for dtype in dtypes:
        options.check_dtype("gemm", dtype)
    if forget and (dtypes or json):
        raise click.UsageError("--forget goes alone")
    if forget:
        console().print(_forget(device), markup=False)
        return
    with _refusals(), progress_bar() as progress:
        found = _tune.tune(seconds=seconds, dtypes=dtypes or None, progress=progress, device=device)
    if json:
        write_file(json, lambda file: json_module.dump(found.as_json(), file))
    if str(json) != "-":
        out = console()
        out.print(_table(found))
        out.print(
            f"{found.gpu}: {len(found.points)} problems in {found.seconds:.0f} s", style="dim", markup=False
        )
    if found.saved:
        say_written([predictions.file()])
    say_written([json])
