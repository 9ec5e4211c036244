"""The table of the peers' results."""

from __future__ import annotations

from fastgemm._explain.rich_tables import ByWidth, stacked
from fastgemm.bench.formatting import rate, ratio
from fastgemm.bench.records import Measurement, Report, select
from fastgemm.cli.console import console
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

STYLES = {"rung": "bold"}


FIGURES = ("cold L2", "back to back", "of torch", "error", "set-up, s")


def peers_table(report: Report) -> ByWidth:
    """For each group, a row for every contender on every problem. In a narrow terminal there are two rows, with
    the figures in the second."""
    wide = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for title in ("product", "asked for"):
        wide.add_column(title, no_wrap=True)
    for title in FIGURES:
        wide.add_column(title, justify="right", no_wrap=True)
    stack: list[tuple[RenderableType, list[list[Text]]]] = []
    for group, label in dict.fromkeys((row.group, row.label) for row in report.results):
        rows = select(report.results, group=group, label=label)
        title = f"[bold]{rows[0].dtype} {label}[/], {rows[0].unit}"
        wide.add_row(title)
        stack.append((Text.from_markup(title), []))
        for row in rows:
            figures, style = _figures(row), STYLES.get(row.role)
            wide.add_row(f"  {row.kernel}", row.choice, *figures, style=style)
            above = ", ".join(filter(None, (row.kernel, row.choice)))
            cells = [Text.from_markup(cell, style=style or "") for cell in figures]
            stack.append((Text(f"  {above}", style=style or ""), [cells]))
    return ByWidth(wide, stacked(FIGURES, stack))


def _figures(row: Measurement) -> list[str]:
    faster = "1.00" if row.role == "baseline" else ratio(row.speedup and row.speedup.median)
    error = "-" if row.component_error is None else f"{row.component_error:.1e}"
    setup = "-" if row.setup_seconds is None else f"{row.setup_seconds:.1f}"
    return [rate(row.rate), rate(row.back_to_back_rate), faster, error, setup]


def show(report: Report) -> None:
    out = console()
    out.print(peers_table(report))
    for row in report.results:
        if row.message:
            what = f"{row.dtype} {row.label}, {row.kernel}, {row.choice}"
            out.print(f"{what}: {row.message}", markup=False)
    out.print("error: the largest |C - float64's| / (|A| |B|)", style="dim")
