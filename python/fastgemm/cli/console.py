"""What the commands print: tables on stdout, progress on stderr."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ..bench.plots import save
from ..bench.records import Report

MIN_WIDTH = 120  # of a table written to a file or a pipe


def console(*, stderr: bool = False) -> Console:
    found = Console(stderr=stderr, highlight=False)
    return (
        found
        if found.is_terminal
        else Console(stderr=stderr, highlight=False, width=max(MIN_WIDTH, found.width))
    )


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


def _write(path: Path, write: Callable[..., None]) -> None:
    if str(path) == "-":
        write(sys.stdout)
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        write(file)


def write_outputs(report: Report, *, json: Path | None, csv: Path | None, plot: Path | None) -> None:
    """Writes what was asked for and says where it went. Raises click.ClickException (exit code 1)."""
    written: list[Path] = []
    try:
        if json:
            _write(json, lambda file: file.write(report.to_json()))
        if csv:
            _write(csv, report.write_csv)
        written += [path for path in (json, csv) if path and str(path) != "-"]
        if plot and report.drawable:
            written += save(report, plot)
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename}: {error.strerror}") from error
    if written:
        console(stderr=True).print("written: " + ", ".join(map(str, written)), soft_wrap=True)


@contextlib.contextmanager
def failures_as_exit_code() -> Iterator[None]:
    """What a kernel or torch raises while measuring ends the command with exit code 1 and its message."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        raise click.ClickException(f"{type(error).__name__}: {error}") from error
