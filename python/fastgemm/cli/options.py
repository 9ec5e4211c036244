"""Options that the measuring commands share."""

from __future__ import annotations

import difflib
import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click
import torch

from ..bench.devices import DEVICES, best_device, cuda_obstacle
from ..bench.plots import SUFFIXES
from ..bench.problems import ARITHMETIC, MOVABLE
from ..table import LOWER_PRECISIONS, KernelInfo, kernels

if TYPE_CHECKING:
    _ParamOfDType = click.ParamType[torch.dtype]
    _ParamOfShape = click.ParamType[tuple[int, ...]]
else:  # older versions of click do not distinguish these
    _ParamOfDType = _ParamOfShape = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])


class Option(Protocol):
    """A decorator that adds an option to a command."""

    def __call__(self, function: F, /) -> F: ...


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
MOST_SIZE = 2**40  # of a dimension; torch refuses tensors of this size that do not fit in memory
LIBRARY_LEVEL = 7
SHAPE = "--shape"
OF_SHAPES = (
    "Sizes, as 512x512x512 or 512 512 512: M N K of gemm, R C of transpose and add. "
    "A single size stands for all of them: 1024 is 1024x1024x1024, or 1024x1024."
)
OF_BATCHES = " A batch goes in front: 8x512x512x512, 8x512x512 of transpose."


class Count(click.IntRange):
    """A whole number of something: 1 to ``most``."""

    def __init__(self, most: int = MOST_SIZE) -> None:
        super().__init__(min=1, max=most)


class Seconds(click.FloatRange):
    """A number greater than 0. NaN is refused: it is neither below nor above any bound."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return seconds


class DType(_ParamOfDType):
    name = "dtype"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> torch.dtype:
        if isinstance(value, torch.dtype):
            return value
        name = ALIASES.get(value, value)
        if name not in MOVABLE:
            self.fail(f"{value!r} is none of {', '.join(MOVABLE)} (or {', '.join(ALIASES)})", param, ctx)
        return MOVABLE[name]


class Shape(_ParamOfShape):
    """Sizes joined by x, or by spaces."""

    name = "shape"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            sizes = tuple(int(part) for part in re.split(r"x|\s+", value.strip().lower()))
        except ValueError:
            sizes = ()
        if not sizes or min(sizes) < 1:
            self.fail(
                f"{value!r} is no list of positive sizes such as 1024, 512x512x512 or 512 512 512", param, ctx
            )
        if max(sizes) > MOST_SIZE:
            self.fail(f"{max(sizes)} is more than {MOST_SIZE}, the largest size", param, ctx)
        return sizes


class CommandWithShapes(click.Command):
    """A command whose --shape also takes its sizes as several words; an option of click cannot do this."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True  # refused below, with advice about sizes
        rest = super().parse_args(ctx, joined(args))
        if ctx.args and not ctx.resilient_parsing:
            raise click.UsageError(
                f"got more than it takes: {' '.join(ctx.args)}; sizes stand behind {SHAPE}"
            )
        return rest


def joined(words: list[str]) -> list[str]:
    """Joins the sizes behind each --shape of a command line: ``512 512`` becomes ``512x512``."""
    found: list[str] = []
    in_shape = False  # whether the last of ``found`` is a shape, to which another size belongs
    for word in words:
        is_size = word.isdecimal()
        if in_shape and is_size:
            found[-1] += f"x{word}"
            continue
        in_shape = word.startswith(f"{SHAPE}=") or bool(found and found[-1] == SHAPE)
        found.append(word)
    return found


class OutputPath(click.Path):
    """A file to write. That it can be written is checked before anything is measured."""

    def __init__(self, *, dash: bool) -> None:
        super().__init__(dir_okay=False, writable=True, allow_dash=dash, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if value in ("", b""):
            self.fail("the path is empty", param, ctx)
        try:
            path = super().convert(value, param, ctx)
            assert isinstance(path, Path)  # path_type
            obstacle = _obstacle_of_stdout(param, ctx) if str(path) == "-" else _obstacle(path)
        except (OSError, ValueError) as error:  # too long, a link to itself, a null byte
            self.fail(f"{value!r}: {error}", param, ctx)
        if obstacle:
            self.fail(obstacle, param, ctx)
        return path


class PlotPath(OutputPath):
    """A picture to write: its ending says in which format."""

    def __init__(self) -> None:
        super().__init__(dash=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = super().convert(value, param, ctx)
        if path.suffix and path.suffix not in SUFFIXES:
            endings = ", ".join(SUFFIXES)
            self.fail(
                f"{path.suffix!r} cannot be written: {endings}, or no ending for .png and .svg", param, ctx
            )
        return path


STDOUT = "fastgemm.stdout"  # of a command's context: the option that writes there


def _obstacle_of_stdout(param: click.Parameter | None, ctx: click.Context | None) -> str:
    """The reason why an option cannot write to standard output, or an empty text."""
    if sys.stdout is None:
        return "standard output is closed"
    if param is None or ctx is None:
        return ""
    first = ctx.meta.setdefault(STDOUT, param)
    return "" if first is param else f"standard output is already taken by {first.opts[-1]}"


def _obstacle(path: Path) -> str:
    """The reason why a file cannot be created, or an empty text. Raises OSError for an invalid path."""
    folder = path.absolute().parent
    if not folder.is_dir():
        return f"the folder {str(folder)!r} does not exist"
    try:
        path.stat()
    except FileNotFoundError:
        if not os.access(folder, os.W_OK | os.X_OK):
            return f"nothing can be written to the folder {str(folder)!r}"
    return ""


LIST = "fastgemm info --kernels lists all"


def check_kernel(
    name: str, op: str, device: str, rows: list[KernelInfo], what: str = "", option: str = "--kernel"
) -> None:
    """Raises click.BadParameter for the name of a kernel that none of ``rows`` has. The message says where the
    name exists: in a row of this device that ``rows`` leaves out (``what`` says why), on another device, in
    another op, or nowhere."""
    known = [row.name for row in rows]
    if name in known:
        return
    named = [row for row in kernels() if row.name == name]
    of_op = [row for row in named if row.op == op]
    if any(row.device == device for row in of_op):
        text, hint = f"kernel {name!r} {what}", LIST
    elif of_op:
        text, hint = (
            f"{name!r} is a kernel of {op} on {of_op[0].device}, not on {device}",
            _command_for(of_op[0]),
        )
    elif named:
        text, hint = f"{name!r} is no kernel of {op}", f"it is one of {named[0].op}"
    else:
        near = difflib.get_close_matches(name, known)
        text, hint = f"{name!r} is no kernel of {op}", f"did you mean {' or '.join(near)}?" if near else LIST
    raise click.BadParameter(f"{text}; {hint}", param_hint=option)


def _command_for(row: KernelInfo) -> str:
    """The command that runs a kernel on this machine (without a GPU, the simulator), or why none can."""
    obstacle = cuda_obstacle() if row.device == "cuda" else None
    dtypes = [name for name in ("float32", "bfloat16", *row.dtypes) if name in MOVABLE and name in row.dtypes]
    if "none" not in row.groups or row.needs_scales:
        return "no command makes groups, or scales of fp8"
    if obstacle and (row.level == LIBRARY_LEVEL or (row.op == "gemm" and not dtypes)):
        return obstacle
    words = ["explain", row.op] if obstacle else ["bench", "--op", row.op, "--device", row.device]
    words += ["--kernel", row.name]
    if dtypes and dtypes[0] != "float32":
        words += ["--dtype", dtypes[0]]
    elif row.precision != "ieee":
        words += ["--precision", row.precision]
    return f"fastgemm {' '.join(words)} {'simulates' if obstacle else 'times'} it"


def check_dtype(op: str, dtype: torch.dtype) -> None:
    if op != "transpose" and dtype not in ARITHMETIC.values():
        raise click.UsageError(f"{op} takes {', '.join(ARITHMETIC)}, got {str(dtype).removeprefix('torch.')}")


json: Option = click.option(
    "--json", type=OutputPath(dash=True), metavar="PATH", help="Write JSON; - is stdout."
)
csv: Option = click.option(
    "--csv", type=OutputPath(dash=True), metavar="PATH", help="Write the rows as CSV; - is stdout."
)
plot: Option = click.option(
    "--plot",
    type=PlotPath(),
    metavar="PATH",
    help="Write the plot: .png, .svg or .pdf; without an ending both PATH.png and PATH.svg.",
)


def outputs(function: Callable[..., Any]) -> Callable[..., Any]:
    """--json, --csv and --plot."""
    for option in (plot, csv, json):
        function = option(function)
    return function


RAW = "fastgemm.raw"  # of a command's context
raw: Option = click.option(
    "--raw",
    is_flag=True,
    expose_value=False,
    callback=lambda context, _, value: context.meta.update({RAW: value}),
    help="JSON with all digits and samples.",
)


def chosen_device(name: str | None) -> str:
    """The device to measure on. Raises click.UsageError where it cannot be used."""
    if name == "cuda" and (obstacle := cuda_obstacle()):
        raise click.UsageError(f"--device cuda: {obstacle}; --device cpu measures here")
    return name or best_device()


precision: Option = click.option(
    "--precision",
    type=click.Choice(["ieee", *LOWER_PRECISIONS]),
    help="Of float32 products on a GPU, also torch's if it has this precision. Default: torch's setting.",
)
device: Option = click.option(
    "--device",
    type=click.Choice(DEVICES),
    help="Default: cuda where a kernel can use a GPU here, else cpu.",
)
threads: Option = click.option(
    "--threads",
    type=Count(MOST_THREADS),
    help="CPU threads; default: as many as torch takes (OMP_NUM_THREADS).",
)
budget: Option = click.option(
    "--budget",
    type=Seconds(),
    help="Seconds to time each kernel of a problem for.",
)
