"""The output of the commands: tables on stdout, progress on stderr."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ..bench.drawing import pyplot
from ..bench.plots import draw, save
from ..bench.records import Report
from . import options

MIN_WIDTH = 120  # of a table written to a file or a pipe
SIZE = re.compile("0*[1-9][0-9]{0,5}")  # of a terminal


def console(*, stderr: bool = False, least: int = MIN_WIDTH) -> Console:
    """As wide as the terminal; in a file or a pipe as COLUMNS says, else ``least`` columns.

    A size that is no positive number, or has more than six digits, counts as unset: rich prints nothing in 0
    columns, and raises for a superscript digit or for very many digits."""
    unset = {name for name in ("COLUMNS", "LINES") if not SIZE.fullmatch(os.environ.get(name, ""))}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    found = Console(stderr=stderr, highlight=False, _environ=environment)
    if not found.is_terminal and "COLUMNS" in unset:
        found.width = max(least, found.width)
    return found


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[str, float], None]]:
    """A progress bar on stderr, only where that is a terminal. Yields a function of a text and a share 0..1."""
    err = console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda text, share: bar.update(task, description=text, completed=share)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """If a file cannot be written, the command ends with exit code 1 and names the file."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # the reader of a pipe has seen enough: no error
        target = error.filename or path
        raise click.ClickException(f"cannot write {target}: {error.strerror or error}") from error


def write_file(path: Path, write: Callable[[TextIO], object]) -> None:
    """Calls ``write`` with an open file; - is stdout, whose errors app.py handles. For any other file, an error
    raises click.ClickException (exit code 1)."""
    if str(path) == "-":
        write(sys.stdout)
        return
    with writing(path), path.open("w", encoding="utf-8", newline="") as file:
        write(file)


def say_written(paths: Iterable[Path | None]) -> None:
    """Names the written files on stderr; None and - are skipped."""
    written = [str(path) for path in paths if path and str(path) != "-"]
    if written:
        console(stderr=True).print("written: " + ", ".join(written), soft_wrap=True, markup=False)


def check_plot(plot: Path | None) -> None:
    """Raises click.ClickException, before a measurement, if a plot is due and a package for it is missing."""
    if plot:
        try:
            pyplot()
        except ModuleNotFoundError as error:
            raise click.ClickException(str(error)) from error


def write_outputs(
    report: Report, *, json: Path | None, csv: Path | None, plot: Path | None, make: Callable[..., Any] = draw
) -> None:
    """Writes the requested files, with the plot of ``make``, and names them. Raises click.ClickException (exit
    code 1)."""
    drawn: list[Path] = []
    raw = click.get_current_context().meta.get(options.RAW, False)
    if json:
        write_file(json, lambda file: file.write(report.to_json(raw)))
    if csv:
        write_file(csv, report.write_csv)
    if plot and report.drawable:
        with writing(plot):
            drawn = save(report, plot, make)
    elif plot:
        console(stderr=True).print("no plot: the report has no rates", style="yellow")
    say_written([json, csv, *drawn])


@contextlib.contextmanager
def failures_as_exit_code() -> Iterator[None]:
    """An error of a kernel, of torch or of the system ends the command with exit code 1 and its message."""
    try:
        yield
    except (RuntimeError, MemoryError, OSError) as error:
        raise click.ClickException(f"{type(error).__name__}: {error}") from error
