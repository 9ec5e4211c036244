"""Options that the measuring commands share."""

from __future__ import annotations

import math
import os
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
    "i64": "int64",
}


MOST_THREADS = 4096
MOST_SIZE = 2**40  # of a dimension; products of such sizes are refused by torch, where they cannot be stored


class Count(click.IntRange):
    """A whole number of something: 1 to ``most``."""

    def __init__(self, most: int = MOST_SIZE) -> None:
        super().__init__(min=1, max=most)


class Seconds(click.FloatRange):
    """More than 0, and a number: NaN is neither below nor above any bound."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return seconds


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
        if max(sizes) > MOST_SIZE:
            self.fail(f"{max(sizes)} is more than {MOST_SIZE}, the largest size", param, ctx)
        return sizes


class OutputPath(click.Path):
    """A file to write. That it can be written is checked before anything is measured."""

    def __init__(self, *, dash: bool) -> None:
        super().__init__(dir_okay=False, writable=True, allow_dash=dash, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if value in ("", b""):
            self.fail("the path is empty", param, ctx)
        try:
            path = super().convert(value, param, ctx)
            obstacle = "" if str(path) == "-" else _obstacle(path)
        except (OSError, ValueError) as error:  # too long, a link to itself, a null byte
            self.fail(f"{value!r}: {error}", param, ctx)
        if obstacle:
            self.fail(obstacle, param, ctx)
        return path


def _obstacle(path: Path) -> str:
    """What keeps a file from being made; empty where nothing does. Raises OSError for what cannot be a path."""
    folder = path.absolute().parent
    if not folder.is_dir():
        return f"the folder {str(folder)!r} does not exist"
    try:
        path.stat()
    except FileNotFoundError:
        if not os.access(folder, os.W_OK | os.X_OK):
            return f"nothing can be written to the folder {str(folder)!r}"
    return ""


def check_kernel(name: str, known: list[str], option: str, what: str) -> None:
    """Raises click.BadParameter for the name of a kernel that is none of ``known``."""
    if name not in known:
        raise click.BadParameter(f"{name!r} {what}; known: {', '.join(known)}", param_hint=option)


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
    type=Count(MOST_THREADS),
    help="CPU threads; default: as many as torch takes (OMP_NUM_THREADS).",
)
budget = click.option(
    "--budget",
    type=Seconds(),
    help="Seconds to time each kernel of a problem for.",
)
