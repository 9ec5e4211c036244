"""Tables of the presets' results, for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastgemm._explain.rich_tables import ByWidth, stacked, whole
from fastgemm.bench.formatting import percent, ratio
from fastgemm.bench.records import Measurement, Report, select
from fastgemm.cli.console import console
from fastgemm.cli.tables import means_table
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from . import grid_means, turns
from .accuracy import AccuracyReport
from .accuracy.table import show as show_accuracy
from .peers.table import show as show_peers


def show(report: Report) -> None:
    """Prints the tables and notes of a report. The lines of its problems are already printed."""
    out = console()
    if isinstance(report, AccuracyReport):
        show_accuracy(report)
        return
    if "peers" in report.environment:
        show_peers(report)
    elif report.command in OF_HOST:
        out.print(OF_HOST[report.command](report))
        out.print(turns_table(report))
    elif report.command == "grid":
        out.print(grid_table(report))
        out.print("\n".join(grid_means.told(report)), markup=False)
    elif report.summary.get("geometric_means"):
        out.print(means_table(report))
    for line in outlier_lines(report):
        out.print(line, markup=False)
    if state := gpu_state(report.results):
        out.print(f"{report.environment['device']}: {state}", style="dim")


def gpu_state(rows: list[Measurement]) -> str:
    """Clock, power and the reasons for throttling, over all rows; empty if no sensor was read."""
    found = [row.telemetry for row in rows if row.telemetry]
    if not found:
        return ""
    reasons = sorted({reason for reading in found for reason in reading["throttled_by"]})
    clocks = [reading["sm_clock_mhz"] for reading in found]
    power = max(reading["power_most_w"] for reading in found)
    held = f", throttled by {', '.join(reasons)}" if reasons else ""
    return f"SM clock {min(clocks):.0f} to {max(clocks):.0f} MHz, at most {power:.0f} W{held}"


def _labelled(
    title: str, labels: Sequence[str], figures: Sequence[str], rows: Iterable[Sequence[str]], section: int = 0
) -> ByWidth:
    """A table of labels and figures. In a narrow terminal the figures are below their labels. Rows with the same
    first ``section`` labels form one part of the wide table."""
    wide = Table(title=title, title_justify="left", title_style="bold")
    for name in labels:
        wide.add_column(name)
    for name in figures:
        wide.add_column(name, justify="right")
    stack: list[tuple[RenderableType, list[list[Text]]]] = []
    last: Sequence[str] = ()
    for row in rows:
        if last and last[:section] != row[:section]:
            wide.add_section()
        last = row
        wide.add_row(*row)
        stack.append((Text(", ".join(row[: len(labels)])), [[Text(cell) for cell in row[len(labels) :]]]))
    return ByWidth(whole(wide), Group(Text(title, style="bold"), stacked(figures, stack)))


def _host_time(row: Measurement) -> tuple[str, str]:
    return f"{row.seconds.median * 1e9:.0f}", f"{100 * row.seconds.spread:.0f} %"


def host_table(report: Report) -> ByWidth:
    rows, relative = report.results, report.summary["relative_to_torch_mm"]
    return _labelled(
        f"host time of a call, {rows[0].label}, {report.environment['device']}",
        ("call",),
        ("ns a call", "spread", "of torch.mm"),
        [(row.kernel, *_host_time(row), ratio(relative[row.kernel])) for row in turns.without(rows)],
    )


def overhead_table(report: Report) -> ByWidth:
    rows = report.results
    return _labelled(
        f"host time of a product, {rows[0].label}, {report.environment['device']}",
        ("call", "products"),
        ("ns a product", "spread", f"rate over {rows[0].baseline}"),
        [
            (row.kernel, row.group, *_host_time(row), ratio(row.speedup.median if row.speedup else 1.0))
            for row in turns.without(rows)
        ],
    )


def turns_table(report: Report) -> ByWidth:
    """The layers of a model, called in turn and each alone."""
    sizes = dict.fromkeys(row.shape[1:] for row in select(report.results, choice=turns.ALONE))
    layers = ", ".join(f"{n}x{k}" for n, k in sizes)
    rows = []
    for line in turns.lines(report.results):
        alone = f"{min(line.alone):.0f} to {max(line.alone):.0f}"
        figures = f"{line.in_turn:.0f}", ratio(line.speedup), alone, ratio(line.dearer)
        rows.append((line.dtype, line.rows, line.way, *figures))
    return _labelled(
        f"host time of a product among layers of {layers} weights, {report.environment['device']}",
        ("type", "rows", "call"),
        ("ns, in turn", "rate over torch", "ns, each alone", "in turn / alone"),
        rows,
        section=2,
    )


def grid_table(report: Report) -> ByWidth:
    names = list(grid_means.RATIOS)
    rows = [
        (
            *(line["type"], line["layout"], line["flop"], str(line["count"])),
            *(
                f"{ratio(found['mean'])} ({ratio(found['worst'])})"
                for found in (line[name] for name in names)
            ),
        )
        for line in report.summary["means"]
    ]
    title = f"16-bit products in graphs, geometric means (worst), {report.environment['device']}"
    return _labelled(title, ("type", "layout", "flop"), ("problems", *names), rows, section=2)


def outlier_lines(report: Report) -> list[str]:
    """Lines about the outliers that were measured again; empty if no case asked for it."""
    again = report.summary.get("measured_again")
    if again is None:
        return []
    remaining = report.summary["outliers"]
    lines = [f"{len(again)} measured again, {len(remaining)} slower than max(1.04 torch, torch + 1 us)"]
    for entry in again:
        mark = "slower" if entry in remaining else "settled"
        values = f"{ratio(entry['first'])} then {ratio(entry['settled'])}"
        lines.append(f"  {entry['problem']}, {entry['kernel']}: {values}, {mark}")
    overall = report.summary["against_torch"]
    if worst := overall.get("worst"):
        mean = f"geometric mean over torch {ratio(overall['speedup'])}, least {ratio(overall['least'])}"
        of_allowed = (
            f"{ratio(worst['speedup'])} of torch, {percent(worst['of_allowed_time'])} of the time allowed"
        )
        lines.append(
            f"{overall['problems']} problems: {mean}; worst: {worst['problem']}, {worst['kernel']}, {of_allowed}"
        )
    return lines


OF_HOST = {"host-time": host_table, "overhead": overhead_table}
