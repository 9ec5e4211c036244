"""What README.md and docs/ show of reports: a comparison of two, tables of several."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable

from fastgemm._explain.counts import Site
from fastgemm._explain.figures import largest_changes, operations, rate
from fastgemm._explain.report import Report
from fastgemm._explain.text import WIDTH, by_file, source_table
from rich.console import Console


def comparison(before: Report, after: Report, command: str) -> str:
    """What the command prints, without the context of the lines and the tables of totals."""
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, force_terminal=False)
    for report in (before, after):
        console.print(report.title)
        for file, lines in by_file(report).items():
            console.print(source_table(file, lines, context=0))
    console.print(f"from {before.kernel} to {after.kernel}:")
    for change in largest_changes(before, after):
        console.print(f"  {change}")
    for report in (before, after):
        roof = report.roofline
        least = rate(roof.attainable, operations(report))
        console.print(f"{report.kernel} on an {report.gpu}: at most {least}, by {roof.bound}")
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    shown = [line for i, line in enumerate(lines) if line or (i and lines[i - 1])]
    return "\n".join(["```", f"$ {command}", *shown, "```"])


def _sum(sites: Iterable[Site], field: str) -> int:
    return sum(getattr(site, field) for site in sites)


def _accesses(report: Report, space: str, kind: str) -> list[Site]:
    return [site for site in report.sites if (site.space, site.kind) == (space, kind)]


def _table(header: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, rule, *rows])


def products(reports: list[Report]) -> str:
    """Shared memory and occupancy of products on float32, for the same arithmetic."""
    rows = []
    for report in reports:
        reads, writes = (_accesses(report, "shared", kind) for kind in ("load", "store"))
        share = 16 * 32 / math.prod(report.shape)
        occupancy = report.launches[0].occupancy
        rows.append(
            [
                f"`{report.kernel}`, {report.layout}",
                f"{_sum(reads, 'requests') * share:.1f} of {reads[0].bytes} B",
                f"{_sum(reads, 'wavefronts') * share:.1f}",
                f"{_sum(writes, 'wavefronts') / _sum(writes, 'ideal_wavefronts'):.1f}",
                str(occupancy.registers),
                f"{occupancy.shared_bytes:,}".replace(",", " "),
                f"{occupancy.blocks}, by {occupancy.limiters[0]}",
            ]
        )
    header = [
        "kernel, layout",
        "shared reads",
        "wavefronts",
        "writes",
        "registers",
        "shared bytes",
        "blocks an SM",
    ]
    return _table(header, rows)


def elementwise(reports: list[Report]) -> str:
    """What a warp's requests cost where nothing is used twice."""
    rows = []
    for report in reports:
        memory = [site for site in report.sites if site.space == "global"]
        shared = [site for site in report.sites if site.space == "shared"]
        rows.append(
            [
                f"`{report.kernel}`",
                f"{_sum(memory, 'sectors') / _sum(memory, 'requests'):.1f}",
                f"{_sum(memory, 'bytes_used') / (32 * _sum(memory, 'sectors')):.0%}",
                f"{_sum(shared, 'requests') / _sum(memory, 'requests'):.1f}",
                f"{_sum(shared, 'wavefronts') / _sum(shared, 'requests'):.1f}" if shared else "-",
            ]
        )
    header = [
        "kernel",
        "sectors a request",
        "of them used",
        "shared requests for each",
        "wavefronts a shared request",
    ]
    return _table(header, rows)
