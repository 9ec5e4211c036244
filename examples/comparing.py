"""What the examples that time share: their options, and the output of what they found."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
from fastgemm.bench import describe
from fastgemm.bench.problems import dtype_name
from fastgemm.bench.records import Measurement, Report
from fastgemm.bench.session import Session
from fastgemm.cli import options
from fastgemm.cli.console import console, write_file, write_outputs
from rich.table import Table

BASELINE = "torch"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def with_options(command: Callable[..., None], *given: options.Option) -> Callable[..., None]:
    """Gives a command these options, the first one at the top of its help."""
    for option in reversed(given):
        command = option(command)
    return command


def common_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options level, device, threads, budget, json and csv."""
    told = "Of the products; default: the fastest kernel known."
    level = click.option("--level", type=click.IntRange(1, 7), help=told)
    given = (options.device, options.threads, options.budget, options.json, options.csv)
    return with_options(command, level, *given)


def options_of_ways(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command that times ways of one computation the options device, budget and json."""
    told = "Seconds for each way."
    budget = click.option("--budget", type=options.Seconds(), default=1.0, show_default=True, help=told)
    return with_options(command, options.device, budget, options.json)


def give(table: Table, rows: list[dict[str, Any]], device: str, json: Path | None, **facts: str) -> None:
    """Shows a table, unless its rows are written to the output, and writes them with the facts about them."""
    if str(json) != "-":
        console().print(table)
    if json:
        found = {"environment": describe(device), **facts, "rows": rows}
        write_file(json, lambda file: file.write(json_module.dumps(found, indent=1) + "\n"))


def row(session: Session, dtype: torch.dtype, **more: Any) -> Measurement:
    """A row of a report: a network in one type, compared with torch."""
    threads = torch.get_num_threads() if session.device == "cpu" else 0
    return Measurement(dtype=dtype_name(dtype), layout="", threads=threads, baseline=BASELINE, **more)


def hand_over(
    report: Report,
    show: Callable[[Report], None],
    complaint: str,
    *,
    json: Path | None,
    csv: Path | None,
) -> None:
    """Shows a report, unless one is written to the output, and writes it.

    Raises:
        click.ClickException: a row is wrong: the complaint, and a line for each.
    """
    if str(json) != "-" and str(csv) != "-":
        show(report)
    write_outputs(report, json=json, csv=csv, plot=None)
    if not report.right:
        wrong = [
            f"{r.label}, {r.type_name}, {r.group}, {r.kernel}: {r.message}"
            for r in report.results
            if not r.right
        ]
        raise click.ClickException(f"{complaint}:\n" + "\n".join(wrong))
