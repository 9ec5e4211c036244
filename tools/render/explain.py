"""Counters of some kernels, simulated while the page is rendered: comparisons of two kernels, tables of
several."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import fastgemm
from fastgemm._explain import plots
from fastgemm._explain.counts import Site
from fastgemm._explain.figures import largest_changes, operations, rate
from fastgemm._explain.report import Report
from fastgemm._explain.text import by_file, source_table
from rich.console import Console

from .spec import Column, Table

COMMAND = "fastgemm explain transpose --level 3 --compare 2 --shape 1024 1024 --plot banks.svg"
PICTURE = "explain_transpose.svg"
WIDTH = 114  # columns of code on a page of the site at 1366 pixels: counters stand below the source lines
ALT = "Banks of shared memory that a warp meets in, at levels 2 and 3 of the transpose"


@cache
def levels() -> list[Report]:
    return [fastgemm.explain("transpose", level=level, shape=(1024, 1024)) for level in (2, 3)]


def comparison(before: Report, after: Report, command: str) -> str:
    """The output of the command, without context lines, line numbers and tables of totals.

    With line numbers, the page would change with every line above them.
    """
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, force_terminal=False)
    for report in (before, after):
        console.print(report.title)
        for file, lines in by_file(report).items():
            console.print(source_table(file, lines, context=0, numbered=False))
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


def _unnumbered(site: Site) -> Site:
    return replace(site, frames=tuple(replace(frame, line=0) for frame in site.frames))


def unnumbered(report: Report) -> Report:
    launches = (
        replace(launch, sites=tuple(_unnumbered(site) for site in launch.sites)) for launch in report.launches
    )
    return replace(report, launches=tuple(launches))


def fingerprint() -> str:
    """Identifies the data of the picture."""
    reports = [unnumbered(report) for report in levels()]
    drawn: list[Any] = [[report.title for report in reports]]
    for site in plots.worst_sites(reports, "shared"):
        drawn.append([plots._where(site), site.example, site.sectors_per_request, site.conflict])
    return hashlib.sha256(json.dumps(drawn).encode()).hexdigest()[:16]


def draw(path: Path) -> None:
    figure = plots.access_figure([unnumbered(report) for report in levels()], ["shared"])
    plots.save(figure, path, description=f"data {fingerprint()}")


def _sum(sites: Iterable[Site], field: str) -> int:
    return sum(getattr(site, field) for site in sites)


def _sites(report: Report, space: str, *kinds: str) -> list[Site]:
    return [site for site in report.sites if site.space == space and (not kinds or site.kind in kinds)]


def _reads(report: Report, field: str) -> float:
    """A counter of shared-memory loads, scaled to the same amount of arithmetic."""
    return _sum(_sites(report, "shared", "load"), field) * 16 * 32 / math.prod(report.shape)


def _ratio(space: str, field: str, over: str, kind: tuple[str, ...] = ()) -> Callable[[Report], float | None]:
    def value(report: Report) -> float | None:
        sites = _sites(report, space, *kind)
        return _sum(sites, field) / _sum(sites, over) if sites else None

    return value


def _occupancy(report: Report) -> Any:
    return report.launches[0].occupancy


PRODUCTS = Table(
    [
        Column("kernel, layout", lambda report: f"`{report.kernel}`, {report.layout}"),
        Column(
            "shared reads",
            lambda report: (
                f"{_reads(report, 'requests'):.1f} of {_sites(report, 'shared', 'load')[0].bytes} B"
            ),
        ),
        Column("wavefronts", lambda report: _reads(report, "wavefronts"), "{:.1f}"),
        Column("writes", _ratio("shared", "wavefronts", "ideal_wavefronts", ("store",)), "{:.1f}"),
        Column("registers", lambda report: _occupancy(report).registers),
        Column("shared bytes", lambda report: f"{_occupancy(report).shared_bytes:,}".replace(",", " ")),
        Column(
            "blocks an SM", lambda report: f"{_occupancy(report).blocks}, by {_occupancy(report).limiters[0]}"
        ),
    ]
)
SUMS = Table(
    [
        Column("kernel", "kernel", "`{}`"),
        Column("sectors a request", _ratio("global", "sectors", "requests"), "{:.1f}"),
        Column("bytes used of a sector's 32", _ratio("global", "bytes_used", "sectors"), "{:.0f}"),
        Column("wavefronts a shared request", _ratio("shared", "wavefronts", "requests"), "{:.1f}"),
    ]
)


def _pitfalls_of_products() -> str:
    names = ("float4_padded65", "float4_padded68", "vectorized", "double_buffer_sync")
    return PRODUCTS.text(
        fastgemm.explain("gemm", kernel=name, shape=(128, 128, 128), trans_b=trans_b)
        for name in names
        for trans_b in (False, True)
    )


def _pitfalls_of_sums() -> str:
    names = ("naive", "staged", "staged_transposed")
    return SUMS.text(fastgemm.explain("add", kernel=name, shape=(256, 256)) for name in names)


BLOCKS: dict[str, Callable[[], str]] = {
    "explain": lambda: comparison(*levels(), COMMAND),
    "pitfalls_gemm": _pitfalls_of_products,
    "pitfalls_add": _pitfalls_of_sums,
}
