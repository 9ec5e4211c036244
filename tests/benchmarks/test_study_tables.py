"""Tests the output of presets in terminals of several widths."""

from __future__ import annotations

from pathlib import Path

import accuracy
import pytest
from click.testing import CliRunner
from rich.console import Console
from studies import tables, turns
from studies.reports import read_report

WIDTHS = (80, 100, 160)


def printed(part, width: int) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(part)
    return "".join(line.rstrip() + "\n" for line in captured.get().splitlines())


@pytest.mark.parametrize("width", (60, *WIDTHS))
def test_host_times_have_whole_names_and_figures(width):
    """Tests the table of a model's layers. The names of the ways to call them have up to 50 letters."""
    report = read_report(Path(__file__).parents[2] / "benchmarks" / "results" / "h100" / "overhead.json")
    for table in (tables.overhead_table(report), tables.turns_table(report)):
        lines = printed(table, width).splitlines()
        assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for line in turns.lines(report.results):
        together = f"{line.dtype}, {line.rows}, {line.way} {line.in_turn:.0f} {line.speedup:.2f} "
        assert width == 160 or together in text
        assert line.way in text


def test_error_tables_are_not_cut():
    result = CliRunner().invoke(accuracy.main, ["--shape", "8", "--device", "cpu"], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert "…" not in result.stdout and max(map(len, result.stdout.splitlines())) <= 80
