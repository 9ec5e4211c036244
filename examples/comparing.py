"""Code that examples/models.py and examples/transformer.py share: options, rows, and the output of a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
from fastgemm.bench.problems import dtype_name
from fastgemm.bench.records import Measurement, Report
from fastgemm.bench.session import Session
from fastgemm.cli import options
from fastgemm.cli.console import write_outputs

BASELINE = "torch"


def common_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options level, device, threads, budget, json, csv and plot."""
    for option in (options.outputs, options.budget, options.threads, options.device):
        command = option(command)
    told = "Of the products; default: the fastest kernel known."
    return click.option("--level", type=click.IntRange(1, 7), help=told)(command)


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
    plot: Path | None,
) -> None:
    """Shows a report, unless one is written to the output, and writes it.

    Raises:
        click.ClickException: a row is wrong: the complaint, and a line for each.
    """
    if str(json) != "-" and str(csv) != "-":
        show(report)
    write_outputs(report, json=json, csv=csv, plot=plot)
    if not report.right:
        wrong = [
            f"{r.label}, {r.type_name}, {r.group}, {r.kernel}: {r.message}"
            for r in report.results
            if not r.right
        ]
        raise click.ClickException(f"{complaint}:\n" + "\n".join(wrong))
