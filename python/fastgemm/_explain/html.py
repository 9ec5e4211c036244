"""A report as HTML for notebooks: no scripts, colours that work on light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from .counts import Site
from .figures import count, metrics, number, percent, wastes
from .findings import Findings
from .symbols import source_lines
from .text import (
    LEGEND,
    by_file,
    callers,
    launch_line,
    occupancy_lines,
    problem_lines,
    roofline_rows,
    shown_lines,
)

# Colours depend on the page: lines and tints are semi-transparent and work on light and dark pages.
STYLE = """
.fg-report{font-size:13px;line-height:1.45}
.fg-report h4{margin:1em 0 .3em;font-size:14px}
.fg-report table{border-collapse:collapse;margin:.2em 0 .8em;font-size:12px}
.fg-report th,.fg-report td{text-align:right;padding:1px 8px;border:0;background:none;color:inherit;
 white-space:nowrap}
.fg-report th{font-weight:600;border-bottom:1px solid rgba(128,128,128,.6)}
.fg-report .l{text-align:left}
.fg-report .dim{opacity:.6}
.fg-report pre,.fg-report code,.fg-report .src{font-family:ui-monospace,Menlo,Consolas,monospace;white-space:pre;
 text-align:left}
.fg-report tr.hit{background:rgba(128,128,128,.14)}
.fg-report .bad{background:rgba(214,64,36,.28);font-weight:600}
.fg-report .problem{border-left:3px solid rgb(214,64,36);padding-left:8px;margin:.3em 0}
.fg-report .wide{overflow-x:auto}
"""


def _cell(text: str, style: str = "") -> str:
    shown = "" if text == "-" else escape(text)
    return f'<td class="{style}">{shown}</td>' if style else f"<td>{shown}</td>"


def _table(head: list[str], rows: list[list[str]], left: tuple[int, ...] = (0,)) -> str:
    """Rows of cells; the columns in ``left`` are flush left."""
    style = ["l" if i in left else "" for i in range(len(head))]
    top = "".join(f'<th class="{s}">{escape(name)}</th>' for name, s in zip(head, style, strict=True))
    body = "".join(f"<tr>{''.join(map(_cell, row, style))}</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _counters(site: Site | None) -> str:
    if site is None:
        return "<td></td>" * 6
    bad = "bad" if wastes(site) else ""
    texts = (number(site.sectors_per_request), percent(site.used), number(site.conflict))
    first = _cell(site.what, "l") + _cell(count(site.requests)) + _cell(f"{site.lanes_per_request:.3g}")
    return first + "".join(_cell(text, bad if text != "-" else "") for text in texts)


def _source(file: str, lines: dict[int, list[Site]]) -> str:
    first = next(iter(lines.values()))[0].frames[0]
    text = source_lines(first) or [""] * max(lines)
    rows = []
    for n in shown_lines(lines, len(text)) or lines:
        for i, site in enumerate(lines.get(n) or [None]):
            source = "" if i else text[n - 1] if n else "..."
            called = f'<span class="dim">{escape(callers(lines[n]))}</span>' if site and i == 0 else ""
            place = f'<td class="dim">{n or ""}</td>' if i == 0 else "<td></td>"
            hit = ' class="hit"' if site else ""
            rows.append(
                f'<tr{hit}>{_counters(site)}{place}<td class="src">{escape(source)}{called}</td></tr>'
            )
    names = ("access", "requests", "lanes", "sectors", "used", "conflict", "line", "source")
    head = "".join(f'<th class="{"l" if name in ("access", "source") else ""}">{name}</th>' for name in names)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<h4>{escape(file)}</h4><div class="wide">{table}</div>'


def _roofline(report: Findings) -> Iterator[str]:
    if report.roofline:
        rows = [list(row) for row in roofline_rows(report)]
        table = _table(["limit", "at most", "from"], rows, left=(0, 2))
        yield f"<h4>Roofline of an {escape(report.gpu)}</h4>{table}"


def _parts(report: Findings) -> Iterator[str]:
    yield f"<h4>{escape(report.title)}</h4>"
    yield f'<div class="dim">{escape(report.idea)}</div>'
    yield from (f"<div>{escape(launch_line(launch))}</div>" for launch in report.launches)
    yield from (f'<div class="problem">{escape(line)}</div>' for line in problem_lines(report))
    yield from (_source(file, lines) for file, lines in by_file(report).items())
    yield f'<div class="dim">{escape(LEGEND)}</div>'
    rows = [[metric.name, metric.text] for metric in metrics(report) if metric.value]
    yield f"<h4>Totals</h4>{_table(['', report.kernel], rows)}"
    yield f"<h4>Occupancy of an {escape(report.gpu)}</h4>" + "<br>".join(map(escape, occupancy_lines(report)))
    yield from _roofline(report)
    yield from (f'<div class="dim">note: {escape(note)}</div>' for note in report.notes)


def as_html(report: Findings) -> str:
    return f'<div class="fg-report"><style>{STYLE}</style>{"".join(_parts(report))}</div>'
