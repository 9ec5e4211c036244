"""Tables of reports for the terminal."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from .._explain.rich_tables import ByWidth, stacked, titled
from ..bench.formatting import percent, rate, ratio
from ..bench.load import Load
from ..bench.records import Measurement, Report, select

BESIDE = 110  # from this width on, a kernel's summary is shown beside its figures


def spread(row: Measurement) -> str:
    """Half the distance of the quartiles of the ratio, or of the time where there is no ratio."""
    summary = row.speedup or row.seconds
    return "-" if summary is None else f"{100 * summary.spread:.0f} %"


def over_torch(row: Measurement) -> str:
    return ratio(row.speedup.median if row.speedup else None)


def error(row: Measurement) -> str:
    if not row.right:
        return "[bold red]FAILED[/]" if row.failed else "[bold red]WRONG[/]"
    if row.role in ("baseline", "limit"):
        return ""
    return "exact" if row.worst_error == 0 else ratio(row.worst_error)


def limit_name(rows: list[Measurement]) -> str:
    return next((row.limit_name for row in rows if row.limit_name), "limit")


def peak_line(rows: list[Measurement]) -> str | None:
    """The highest possible rate of products on the device, if it is known."""
    limited = next((row for row in rows if row.limit and row.limit_name != "copy_"), None)
    if limited is None:
        return None
    threads = limited.threads
    on = f" on {threads} thread{'s' if threads > 1 else ''}, measured" if threads else ""
    return f"{limited.limit_name}{on}: {rate(limited.limit)} {limited.unit}"


def print_busy(out: Console, report: Report) -> None:
    """Reports other load on the machine while the rows of a report were measured."""
    env = report.environment
    busy = Load(**env["load"]).busy(env["threads"] if env["device_type"] == "cpu" else 1)
    if busy:
        out.print(f"note: the machine was busy, so that figures are rough: {busy}", style="yellow")


def ladder_table(rows: list[Measurement], device: str) -> ByWidth:
    """The rungs of one op, then torch and the limit; in a narrow terminal without lines between them, and with a
    line for each word of a heading; in a narrower one with figures below the name of their kernel."""
    first = rows[0]
    where = device if not first.threads else f"{first.threads} thread{'s' if first.threads > 1 else ''}"
    title = f"{first.op} {first.type_name} {first.label}, {where}"
    before = (first.unit, f"of {limit_name(rows)}", f"of {first.baseline or 'torch'}")
    names = (*before, "over level below", "spread", "error / bound")
    narrow = _ladder_table(title, names, rows, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in narrow.columns:
        column.header = str(column.header).replace(" / ", " ").replace(" ", "\n")
    stack = [
        (Text(f"{row.level} {row.kernel}" if row.role == "rung" else row.kernel), [_ladder_figures(row)])
        for row in _of_ladder(rows)
    ]
    narrowest = Group(Text(title, style="bold"), stacked((*before, "gain", "spread", "error"), stack))
    return ByWidth(_ladder_table(title, names, rows), ByWidth(narrow, narrowest))


def _ladder_table(title: str, names: tuple[str, ...], rows: list[Measurement], **style: Any) -> Table:
    table = titled(title, ("level", "kernel"), names, **style)
    rungs = select(rows, role="rung")
    for row in _of_ladder(rows):
        level = str(row.level) if row in rungs else ""
        weight = "bold" if level == "7" else None
        table.add_row(level, row.kernel, *_ladder_figures(row), style=weight, end_section=row in rungs[-1:])
    return table


def _of_ladder(rows: list[Measurement]) -> list[Measurement]:
    return [row for role in ("rung", "baseline", "limit") for row in select(rows, role=role)]


def _ladder_figures(row: Measurement) -> list[Text]:
    rung = row.role == "rung"
    figures = (
        rate(row.rate),
        percent(row.share_of_limit),
        "1.00" if row.role == "baseline" else over_torch(row),
        (f"{ratio(row.gain)}x" if row.gain else "-") if rung else "",
        spread(row),
        error(row) if rung else "",
    )
    return [Text.from_markup(figure) for figure in figures]


def beside_table(rows: list[Measurement], summaries: dict[str, str]) -> ByWidth | None:
    """Companions, pitfalls, second rungs of a level and libraries; None where there are none."""
    beside = [row for row in rows if row.role in ("companion", "pitfall", "alternative", "library")]
    if not beside:
        return None
    title = f"beside the ladder of {rows[0].op}"
    figures = (rows[0].unit, "of torch", "error / bound")
    wide = titled(title, ("level", "kernel", "role"), figures)
    wide.add_column("what it shows", overflow="fold")
    stack: list[tuple[RenderableType, list[list[Text]]]] = []
    for row in beside:
        faster = over_torch(row)
        cells, shown = (rate(row.rate), faster, error(row)), summaries.get(row.kernel, "")
        wide.add_row(str(row.level), row.kernel, row.role, *cells, escape(shown))
        above = f"{row.level} {row.kernel}, {row.role}{': ' if shown else ''}{shown}"
        stack.append((Text(above), [[Text.from_markup(cell) for cell in cells]]))
    return ByWidth(wide, Group(Text(title, style="bold"), stacked(figures, stack)), BESIDE)


FIGURES = ("rate", "of limit", "torch", "ratio", "spread", "error")


def bench_table(rows: list[Measurement]) -> ByWidth:
    """One group after another, with a row for each problem and choice of a kernel. In a narrow terminal this
    is two rows, and the figures are in the second."""
    ours = [row for row in rows if row.role not in ("baseline", "limit")]
    chosen = any(row.choice != "fastest" for row in ours)
    with_threads = any(row.threads for row in rows)
    names = ("problem", *(["threads"] if with_threads else []), *(["asked for"] if chosen else []), "kernel")
    wide = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for name in names:
        wide.add_column(name, no_wrap=True)
    for name in FIGURES:
        wide.add_column(name, justify="right", no_wrap=True)
    stack: list[tuple[RenderableType, list[list[Text]]]] = []
    torch_rates = {(r.group, r.dtype, r.label, r.threads): r.rate for r in select(rows, role="baseline")}
    for group in dict.fromkeys(row.group for row in rows):
        wide.add_row(f"[bold]{group}[/]")
        stack.append((Text(group, style="bold"), []))
        for row in select(ours, group=group):
            threads = [str(row.threads)] if with_threads else []
            asked = [row.choice] if chosen else []
            figures = _figures(row, torch_rates.get((group, row.dtype, row.label, row.threads)))
            wide.add_row(f"  {row.label}", *threads, *asked, row.kernel, *figures)
            kernel = [row.kernel] if row.choice != f"kernel {row.kernel}" else []
            above = ", ".join([row.label, *(f"threads {n}" for n in threads), *asked, *kernel])
            stack.append((Text(f"  {above}"), [[Text.from_markup(cell) for cell in figures]]))
    return ByWidth(wide, stacked(FIGURES, stack))


def _figures(row: Measurement, torch_rate: float | None) -> list[str]:
    faster = over_torch(row)
    return [
        f"{rate(row.rate)} {row.unit}",
        percent(row.share_of_limit),
        rate(torch_rate),
        faster if not row.speedup or row.speedup.median >= 1 else f"[red]{faster}[/]",
        spread(row),
        error(row),
    ]


def means_table(report: Report) -> ByWidth:
    title, figures = "geometric means against torch", ("problems", "ratio", "least")
    wide, stack = titled(title, ["group"], figures), []
    for name, mean in report.summary["geometric_means"].items():
        cells = (str(mean["problems"]), ratio(mean["speedup"]), ratio(mean["least"]))
        wide.add_row(name, *cells)
        stack.append((Text(name), [[Text(cell) for cell in cells]]))
    return ByWidth(wide, Group(Text(title, style="bold"), stacked(figures, stack)))


def untimed_lines(rows: list[Measurement]) -> list[str]:
    return [f"{row.op} {row.label}, {row.kernel}: {row.message}" for row in rows if row.right and row.message]


def failures(report: Report) -> str:
    """The failures of a report: kernels that returned wrong results, and calls that raised."""

    def listed(heading: str, rows: list[Measurement]) -> list[str]:
        lines = [f"{row.op} {row.type_name} {row.label}, {of_kernel(row)}{row.message}" for row in rows]
        return [f"{heading}:", *lines] if rows else []

    def of_kernel(row: Measurement) -> str:
        return f"kernel {row.kernel}: " if row.kernel else ""

    not_right = [row for row in report.results if not row.right]
    wrong = listed("wrong results", [row for row in not_right if not row.failed])
    return "\n".join([*wrong, *listed("failed", [row for row in not_right if row.failed])])
