"""A report as tables of rich: for the terminal, for str() and, as HTML, for notebooks."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from .counts import Launch, Site
from .figures import changes, count, metrics, number, operations, percent, rate, size, wastes
from .findings import Findings
from .rich_tables import ByWidth, stacked, titled
from .roofline import ARITHMETIC, MEMORY, SHARED
from .symbols import source_lines

CONTEXT = 2  # lines of source shown around a line with accesses
WIDTH = 184  # of text that no terminal limits: the counters and 110 columns of code
BESIDE = 140  # from this width on, the source is shown beside its counters
COUNTERS = ("access", "requests", "lanes", "sectors", "used", "conflict")
LEGEND = (
    "requests: warp-wide instructions, of so many active lanes; sectors: of 32 bytes, a request; used: bytes "
    "asked for of bytes moved; conflict: wavefronts of shared memory over the fewest possible (1.00: none)"
)


def _cells(site: Site) -> list[str]:
    sectors = number(site.sectors_per_request)
    return [
        site.what,
        count(site.requests),
        f"{site.lanes_per_request:.3g}",
        *("" if text == "-" else text for text in (sectors, percent(site.used), number(site.conflict))),
    ]


def by_file(report: Findings) -> dict[str, dict[int, list[Site]]]:
    """Sites by file and line; the file with most requests first, line 0 where no line is known."""
    files: dict[str, dict[int, list[Site]]] = {}
    for site in report.sites:
        files.setdefault(site.file, {}).setdefault(site.line, []).append(site)

    def requests(file: str) -> int:
        return sum(site.requests for sites in files[file].values() for site in sites)

    return {file: dict(sorted(files[file].items())) for file in sorted(files, key=requests, reverse=True)}


def shown_lines(lines: dict[int, list[Site]], length: int, context: int = CONTEXT) -> list[int]:
    """The numbers of the lines that have sites, and of some lines around them; 0 marks a gap."""
    near = sorted(
        {n for line in lines for n in range(line - context, line + context + 1) if 1 <= n <= length}
    )
    found: list[int] = []
    for n in near:
        if found and n != found[-1] + 1:
            found.append(0)
        found.append(n)
    return found


def _table(title: str, left: Iterable[str] = (), right: Iterable[str] = ()) -> Table:
    return titled(title, left, right, box=box.SIMPLE_HEAD, pad_edge=False)


def _wide_source_table(file: str, numbered: bool) -> Table:
    table = _table(file)
    table.add_column(COUNTERS[0], no_wrap=True)
    for name in COUNTERS[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    if numbered:
        table.add_column("line", justify="right", style="dim", no_wrap=True)
    table.add_column("source", overflow="fold")  # only this column gets narrower
    return table


def callers(sites: list[Site]) -> str:
    """The lines of the kernel itself that a helper's line was inlined into."""
    lines: dict[str, set[int]] = {}
    for site in sites:
        for file, line in site.callers:
            lines.setdefault(file, set()).add(line)
    found = (f"{file}:{','.join(map(str, sorted(numbers)))}" for file, numbers in lines.items())
    return f"  <- {' '.join(found)}" if lines else ""


@dataclass(frozen=True)
class SourceLine:
    """A line of a file and its accesses. Without a number it is a gap, or stands for accesses without source."""

    code: Text
    sites: list[Site]
    number: int = 0

    def indented(self) -> RenderableType:
        """The code; if it takes several lines, all of them are indented like the first."""
        depth = len(self.code.plain) - len(self.code.plain.lstrip())
        return Padding(self.code[depth:], (0, 0, 0, depth)) if depth else self.code

    def counters(self) -> list[list[Text]]:
        return [
            [Text(cell, style="red" if wastes(site) else "bold") for cell in _cells(site)]
            for site in self.sites
        ]


def _lines_of(lines: dict[int, list[Site]], context: int) -> Iterator[SourceLine]:
    """The lines to show: those with accesses, and some around them."""
    text = source_lines(next(iter(lines.values()))[0].frames[0])
    if text is None:
        for line, sites in lines.items():
            yield from (SourceLine(Text(site.function), [site], line) for site in sites)
        return
    code = Syntax("", "cuda", theme="ansi_dark").highlight("\n".join(text)).split("\n", allow_blank=True)
    for n in shown_lines(lines, len(text), context):
        sites = lines.get(n, [])
        shown = code[n - 1] + Text(callers(sites), style="dim") if n else Text("...", style="dim")
        yield SourceLine(shown, sites, n)


def source_table(
    file: str, lines: dict[int, list[Site]], context: int = CONTEXT, numbered: bool = True
) -> ByWidth:
    """The file's lines with accesses, and some around them, beside their counters; in a narrow terminal above
    them. ``numbered``: with the lines' numbers."""
    found = list(_lines_of(lines, context))
    wide = _wide_source_table(file, numbered)
    stack: list[tuple[RenderableType, list[list[Text]]]] = []
    digits = len(str(max(line.number for line in found)))
    first = 0 if numbered else 1
    for line in found:
        number, counters = str(line.number or ""), line.counters()
        source: list[RenderableType] = [number, line.indented()]
        for i, cells in enumerate(counters or [[Text()] * len(COUNTERS)]):
            wide.add_row(*cells, *(source if i == 0 else ["", ""])[first:])
        above = Table.grid(padding=(0, 2, 0, 0))
        if numbered:
            above.add_column(width=digits, justify="right", style="dim")
        above.add_column(overflow="fold")
        above.add_row(*source[first:])
        stack.append((above, counters))
    narrow = Group(Text(file, style="bold"), stacked(COUNTERS, stack, left=1))
    return ByWidth(wide, narrow, BESIDE)


def metrics_table(reports: Sequence[Findings]) -> Table:
    """The figures of one report, or of two and their changes."""
    names = [report.kernel for report in reports]
    if len(reports) == 1:
        table = _table("totals", [""], names)
        for metric in metrics(reports[0]):
            if metric.value:
                table.add_row(metric.name, metric.text)
        return table
    table = _table("totals", [""], [*names, "change"])
    for change in changes(*reports):
        style = "bold" if change.matters else "dim"
        table.add_row(change.before.name, change.before.text, change.after.text, change.text, style=style)
    return table


def launch_line(launch: Launch) -> str:
    grid, block = ("x".join(map(str, shape)) for shape in (_trimmed(launch.grid), _trimmed(launch.block)))
    return f"{launch.kernel}: {grid} block{'' if grid == '1' else 's'} of {block} threads"


def _trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    used = max((i for i, extent in enumerate(shape) if extent != 1), default=0)
    return shape[: used + 1]


def _distinct(launches: tuple[Launch, ...]) -> list[Launch]:
    """The first launch of each combination of kernel and occupancy."""
    found: list[Launch] = []
    for launch in launches:
        if not any(launch.kernel == other.kernel and launch.occupancy == other.occupancy for other in found):
            found.append(launch)
    return found


def occupancy_lines(report: Findings) -> Iterator[str]:
    for launch in _distinct(report.launches):
        held = launch.occupancy
        registers = "unknown" if held.registers is None else str(held.registers)
        limits = ", ".join(f"{limit} {resource}" for resource, limit in held.limits.items())
        blocks = f"{held.blocks} block{'' if held.blocks == 1 else 's'} a multiprocessor"
        yield (
            f"{launch.kernel}: {held.threads} threads, {registers} registers, {size(held.shared_bytes)} of shared "
            f"memory: {blocks}, limited by {' and '.join(held.limiters)}, occupancy {percent(held.share)}"
        )
        yield f"  blocks that each would allow: {limits}"
        if launch.bytes_in_flight:
            block, everywhere = size(launch.bytes_in_flight), size(launch.bytes_in_flight * held.blocks)
            yield f"  asynchronous copies: at most {block} in flight a block, {everywhere} a multiprocessor"


def roofline_rows(report: Findings) -> list[tuple[str, str, str]]:
    """Each limit: its name, the rate that it allows, and its source. The lowest is marked."""
    roof, unit = report.roofline, operations(report)
    if roof is None:
        return []
    rows = []
    if roof.peak:
        also = f", {rate(roof.measured_peak, unit)} measured" if roof.measured_peak else ""
        more = f", executing {number(roof.executed)} times the product's operations" if roof.executed else ""
        rows.append((ARITHMETIC, rate(roof.peak, unit), f"{roof.unit}{also}{more}"))
    also = f" ({rate(roof.measured_bandwidth, 'B/s')} by a copy)" if roof.measured_bandwidth else ""
    source = f"{size(roof.bytes_compulsory)} at {rate(roof.bandwidth, 'B/s')}{also}{_a_byte(roof.intensity)}"
    rows.append((MEMORY, rate(roof.memory_rate, unit), f"each byte once: {source}"))
    if roof.shared_rate:
        source = f"{count(roof.wavefronts)} wavefronts, one a cycle and multiprocessor"
        rows.append((SHARED, rate(roof.shared_rate, unit), source))
    rows = [(f"{name} <- lowest" if name == roof.bound else name, at, why) for name, at, why in rows]
    source = f"every request: {size(roof.bytes_moved)}{_a_byte(roof.intensity_moved)}"
    return [*rows, ("memory without caches", rate(roof.uncached_rate, unit), source)]


def _a_byte(intensity: float | None) -> str:
    return f", {number(intensity)} operations a byte" if intensity else ""


def roofline_table(report: Findings) -> Table:
    table = _table(f"roofline of an {report.gpu}", ["limit"], ["at most"])
    table.add_column("from", overflow="fold")
    for row in roofline_rows(report):
        table.add_row(*row, style="bold" if "lowest" in row[0] else "")
    return table


def problem_lines(report: Findings) -> Iterator[str]:
    if report.error:
        yield f"stopped: {report.error}"
    yield from map(str, report.problems)


def heading(report: Findings) -> Iterator[RenderableType]:
    yield Text(report.title, style="bold")
    if report.idea:
        yield Text(report.idea, style="dim")
    yield from (Text(launch_line(launch)) for launch in report.launches)
    yield from (Text(line, style="bold red") for line in problem_lines(report))


def limits(report: Findings) -> Iterator[RenderableType]:
    """Occupancy, roofline and notes."""
    yield Text(f"\noccupancy of an {report.gpu}", style="bold")
    yield from map(Text, occupancy_lines(report))
    if report.roofline:
        yield from ("", roofline_table(report))
    yield from (Text(f"note: {note}", style="dim") for note in report.notes)


def source_tables(report: Findings) -> Iterator[RenderableType]:
    for file, lines in by_file(report).items():
        yield from ("", source_table(file, lines))


def side_by_side(before: Findings, after: Findings) -> RenderableType:
    both = Table.grid(padding=(0, 2), expand=True)
    both.add_column(ratio=1)
    both.add_column(ratio=1)
    both.add_row(*(Group(*heading(report), *source_tables(report)) for report in (before, after)))
    return both


def one_by_one(before: Findings, after: Findings) -> RenderableType:
    parts = [part for report in (before, after) for part in (*heading(report), *source_tables(report), "")]
    return Group(*parts)


def renderables(report: Findings) -> Iterator[RenderableType]:
    """The whole report, part by part."""
    yield from heading(report)
    yield from source_tables(report)
    yield Text(LEGEND, style="dim")
    yield from ("", metrics_table([report]))
    yield from limits(report)


def _printed(report: Findings) -> Console:
    plain: dict[str, Any] = {"color_system": None, "force_terminal": False, "force_jupyter": False}
    console = Console(file=io.StringIO(), record=True, width=WIDTH, **plain)
    for part in renderables(report):
        console.print(part)
    return console


def as_text(report: Findings) -> str:
    return "\n".join(line.rstrip() for line in _printed(report).export_text().splitlines())


# Colours that can be read on light and on dark pages, in the order of a terminal's. All other text has the page's.
_GREY, _RED = (128, 128, 128), (214, 64, 36)
_COLOURS = [_GREY, _RED, (60, 150, 60), (170, 120, 0), (60, 120, 220), (170, 80, 190), (0, 145, 155), _GREY]
_THEME = TerminalTheme(_GREY, _GREY, _COLOURS, _COLOURS)
_HTML = '<pre style="overflow-x:auto;line-height:1.3;font-family:ui-monospace,monospace">{code}</pre>'


def as_html(report: Findings) -> str:
    return _printed(report).export_html(theme=_THEME, code_format=_HTML, inline_styles=True)
