"""Pictures of reports. The same report gives the same SVG, so that the pictures in docs/ can be checked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .drawing import place, pyplot, write
from .ladder_plots import RUNG, TORCH, ladder_figure
from .records import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")


def sweep_figure(report: Report) -> Figure:
    """The speedup over torch of every problem, with quartiles, on a logarithmic axis; one row a problem."""
    plt = pyplot()
    rows = [row for row in report.results if row.role not in ("baseline", "limit") and row.speedup]
    figure, axis = plt.subplots(figsize=(8.4, 1.6 + 0.24 * len(rows)), layout="constrained")
    for y, row in enumerate(rows):
        s = row.speedup
        assert s  # only of these rows
        axis.plot([s.q1, s.q3], [y, y], color=RUNG, linewidth=2.5, alpha=0.45, solid_capstyle="butt")
        axis.plot(s.median, y, "o", color=RUNG if s.median >= 1 else TORCH, markersize=5)
        axis.annotate(
            f"{s.median:.2f}  {row.kernel}",
            (1.0, y),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    names = [
        f"{row.op} {row.dtype} {row.label}" + (f", {row.threads} thr." if row.threads else "") for row in rows
    ]
    axis.set_yticks(range(len(rows)), names, fontsize=8)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.axvline(1.0, color=TORCH, linestyle="--", linewidth=1.2, zorder=0)
    axis.grid(axis="x", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.set_xlabel("times as fast as torch (median and quartiles of interleaved rounds)")
    figure.supxlabel(place(report, rows), fontsize=8.5, color="#555555")
    return figure


def fingerprint(report: Report) -> str:
    """Identifies the data of a picture."""
    return hashlib.sha256(report.to_json().encode()).hexdigest()[:16]


def draw(report: Report) -> Figure:
    return ladder_figure(report) if report.command == "ladder" else sweep_figure(report)


def save(report: Report, path: Path, make: Callable[[Any], Figure] = draw) -> list[Path]:
    """Draws a report to ``path``, or, when that has no known suffix, to path.png and path.svg; returns those."""
    paths = (
        [path] if path.suffix in SUFFIXES else [path.with_name(path.name + suffix) for suffix in SUFFIXES[:2]]
    )
    write(make(report), paths, f"fastgemm {report.command}", f"data {fingerprint(report)}")
    return paths
