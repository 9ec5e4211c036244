"""Options that the measuring commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch

from ..bench.devices import DEVICES, best_device, cuda_obstacle
from ..bench.problems import ARITHMETIC, MOVABLE

ALIASES = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "i8": "int8",
    "i32": "int32",
}


class DType(click.ParamType):
    name = "dtype"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> torch.dtype:
        if isinstance(value, torch.dtype):
            return value
        name = ALIASES.get(value, value)
        if name not in MOVABLE:
            self.fail(f"{value!r} is none of {', '.join(MOVABLE)} (or {', '.join(ALIASES)})", param, ctx)
        return MOVABLE[name]


class Shape(click.ParamType):
    """Sizes joined by x: 1024x1024x1024."""

    name = "shape"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            sizes = tuple(int(part) for part in value.lower().split("x"))
        except ValueError:
            sizes = ()
        if not sizes or min(sizes) < 1:
            self.fail(f"{value!r} is no list of positive sizes such as 1000x777x3001", param, ctx)
        return sizes


class OutputPath(click.Path):
    """A file to write. That it can be written is checked before anything is measured."""

    def __init__(self, *, dash: bool) -> None:
        super().__init__(dir_okay=False, writable=True, allow_dash=dash, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = super().convert(value, param, ctx)
        if str(path) != "-" and not path.absolute().parent.is_dir():
            self.fail(f"the folder {str(path.absolute().parent)!r} does not exist", param, ctx)
        return path


def check_dtype(op: str, dtype: torch.dtype) -> None:
    if op != "transpose" and dtype not in ARITHMETIC.values():
        raise click.UsageError(f"{op} takes {', '.join(ARITHMETIC)}, got {str(dtype).removeprefix('torch.')}")


def outputs(function: Callable[..., Any]) -> Callable[..., Any]:
    """--json, --csv and --plot."""
    for option in (
        click.option(
            "--plot",
            type=OutputPath(dash=False),
            metavar="PATH",
            help="Write the plot: .png, .svg or .pdf; without one of these endings both PATH.png and PATH.svg.",
        ),
        click.option(
            "--csv", type=OutputPath(dash=True), metavar="PATH", help="Write the rows as CSV; - is stdout."
        ),
        click.option("--json", type=OutputPath(dash=True), metavar="PATH", help="Write JSON; - is stdout."),
    ):
        function = option(function)
    return function


def chosen_device(name: str | None) -> str:
    """The device to measure on. Raises click.UsageError where it cannot be used."""
    if name == "cuda" and (obstacle := cuda_obstacle()):
        raise click.UsageError(f"--device cuda: {obstacle}")
    return name or best_device()


device = click.option(
    "--device",
    type=click.Choice(DEVICES),
    help="Default: cuda where a kernel can use a GPU here, else cpu.",
)
threads = click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="CPU threads; default: as many as torch takes (OMP_NUM_THREADS).",
)
budget = click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds to time each kernel of a problem for.",
)
