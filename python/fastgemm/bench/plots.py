"""Pictures of reports. The same report gives the same SVG, so that the pictures in docs/ can be checked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .accuracy import AccuracyReport
from .accuracy import figures as accuracy_figures
from .drawing import place as _place
from .drawing import pyplot as _pyplot
from .formatting import rate as rate_text
from .records import Measurement, Report, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RUNG, BESIDE, TORCH, LIMIT = "#2f6f9f", "#b9c6d0", "#c8502d", "#3a3a3a"
LINES = ("#b9c6d0", "#8fb3cc", "#5f95bc", "#2f6f9f", "#123a5c", "#3f8f5a", "#7a5aa6")
SUFFIXES = (".png", ".svg", ".pdf")


def _format_gain(gain: float) -> str:
    return f"{gain:.1f}x" if gain >= 2 else f"{gain:.2f}x"


def _draw_reference_lines(axis: Axes, rows: list[Measurement], top: float) -> None:
    """torch, and the limit of the machine, as vertical lines named above the plot."""
    lines = [(row.rate, "torch", TORCH, "--") for row in select(rows, role="baseline") if row.rate]
    limit = next(((row.limit, row.limit_name) for row in rows if row.limit), None)
    if limit:
        lines.append((limit[0], limit[1], LIMIT, "-"))
    lines.sort()
    for i, (rate, name, colour, style) in enumerate(lines):
        axis.axvline(rate, color=colour, linestyle=style, linewidth=1.2, zorder=0)
        side = "right" if i == 0 and len(lines) > 1 else "left"
        pad = -3 if side == "right" else 3
        axis.annotate(
            f"{name} {rate_text(rate)}",
            (rate, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(pad, 2),
            textcoords="offset points",
            ha=side,
            va="bottom",
            color=colour,
            fontsize=9,
        )
    axis.set_xlim(0, top)


def _ladder_panel(axis: Axes, rows: list[Measurement]) -> None:
    bars = [row for row in rows if row.level is not None and row.rate]
    names = [f"{row.level}  {row.kernel}" if row.role == "rung" else row.kernel for row in bars]
    colours = [RUNG if row.role == "rung" else BESIDE for row in bars]
    places = range(len(bars))
    axis.barh(places, [row.rate for row in bars], color=colours, height=0.68)
    axis.set_yticks(places, names)
    axis.invert_yaxis()
    top = (
        max([row.rate for row in bars] + [row.limit or 0 for row in rows] + [row.rate or 0 for row in rows])
        * 1.14
    )
    for y, row in zip(places, bars, strict=True):
        text = rate_text(row.rate) + (f"  ({_format_gain(row.gain)})" if row.gain else "")
        axis.annotate(
            text,
            (row.rate, y),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 1.0},
        )
    _draw_reference_lines(axis, rows, top)
    axis.set_xlabel(bars[0].unit if bars else "")
    first = rows[0]
    axis.set_title(
        f"{first.op} {first.type_name} {first.label}", fontsize=11, fontweight="bold", pad=18, loc="left"
    )


def ladder_figure(report: Report) -> Figure:
    """A panel for each op: a bar for each rung with its rate and its gain over the level below.

    What stands beside the ladder (companions, pitfalls, second rungs of a level) is grey.
    """
    plt = _pyplot()
    panels = list(dict.fromkeys(row.op for row in report.results))
    heights = [
        max(3.2, 0.34 * sum(r.level is not None for r in select(report.results, op=op))) for op in panels
    ]
    figure, axes = plt.subplots(
        1, len(panels), figsize=(6.4 * len(panels), max(heights) + 1.3), squeeze=False, layout="constrained"
    )
    for axis, op in zip(axes[0], panels, strict=True):
        _ladder_panel(axis, select(report.results, op=op))
    figure.supxlabel(_place(report, report.results), fontsize=8.5, color="#555555")
    return figure


def sweep_figure(report: Report) -> Figure:
    """The speedup over torch of every problem, with quartiles, on a logarithmic axis; one row a problem."""
    plt = _pyplot()
    rows = [row for row in report.results if row.role not in ("baseline", "limit") and row.speedup]
    figure, axis = plt.subplots(figsize=(8.4, 1.6 + 0.24 * len(rows)), layout="constrained")
    for y, row in enumerate(rows):
        s = row.speedup
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
    figure.supxlabel(_place(report, rows), fontsize=8.5, color="#555555")
    return figure


def _lines(report: Report) -> dict[str, list[Measurement]]:
    """What a plot against size has a line for: each choice of a kernel, then torch."""
    timed = [row for row in report.results if row.rate]
    ours = [row for row in timed if row.role not in ("baseline", "limit")]
    found = {name: select(ours, choice=name) for name in dict.fromkeys(row.choice for row in ours)}
    return {**found, "torch": select(timed, role="baseline")}


def _draw_lines(
    axis: Axes,
    lines: dict[str, list[Measurement]],
    value: Callable[[Measurement], float],
    colours: tuple[str, ...] = (),
) -> None:
    colours = colours or (LINES if len(lines) > 2 else (RUNG,))
    for i, (name, rows) in enumerate(lines.items()):
        style = (
            {"color": TORCH, "linestyle": "--"} if name == "torch" else {"color": colours[i % len(colours)]}
        )
        sizes, values = [row.shape[0] for row in rows], [value(row) for row in rows]
        axis.plot(sizes, values, marker="o", markersize=3, label=name, **style)
    axis.grid(color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)


def sizes_figure(report: Report) -> Figure:
    """Rates against size on logarithmic axes, a line for each level."""
    plt = _pyplot()
    figure, axis = plt.subplots(figsize=(7.6, 4.8), layout="constrained")
    _draw_lines(axis, _lines(report), lambda row: row.rate)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.set_xlabel("M = N = K")
    axis.set_ylabel(report.results[0].unit)
    axis.legend(frameon=False, fontsize=9)
    axis.set_title(f"gemm {report.results[0].dtype}", fontsize=11, fontweight="bold", loc="left")
    figure.supxlabel(_place(report, report.results), fontsize=8.5, color="#555555")
    return figure


def sustained_figure(report: Report) -> Figure:
    """Rate, power and clock against size, one above the other."""
    plt = _pyplot()
    lines = _lines(report)
    sensed = {name: [row for row in rows if row.telemetry] for name, rows in lines.items()}
    panels: list[tuple[str, dict[str, list[Measurement]], Callable[[Measurement], float]]] = [
        (report.results[0].unit, lines, lambda row: row.rate),
    ]
    if any(sensed.values()):
        panels.append(("power, W", sensed, lambda row: row.telemetry["power_w"]))
        panels.append(("SM clock, MHz", sensed, lambda row: row.telemetry["sm_clock_mhz"]))
    figure, axes = plt.subplots(
        len(panels),
        1,
        figsize=(7.6, 2.6 + 1.7 * len(panels)),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for axis, (name, rows, value) in zip(axes[:, 0], panels, strict=True):
        _draw_lines(axis, rows, value)
        axis.set_ylabel(name)
    axes[0, 0].set_ylim(bottom=0)
    axes[0, 0].legend(frameon=False, fontsize=9)
    axes[-1, 0].set_xlabel("M = N = K")
    figure.supxlabel(_place(report, report.results), fontsize=8.5, color="#555555")
    return figure


def _cubes_panel(axis: Axes, rows: list[Measurement]) -> None:
    """Rates of square float32 products, NN: each precision, torch, and the peak of the multiply-add units."""
    cubes = [row for row in rows if row.group.startswith("float32") and row.layout == "NN" and not row.joules]
    cubes = [row for row in cubes if len(row.shape) == 3 and len(set(row.shape)) == 1 and row.rate]
    own = select(cubes, choice="level 6")
    series = {}
    for group in dict.fromkeys(row.group for row in own):
        found = select(own, group=group)
        series[", ".join(dict.fromkeys(row.kernel for row in found))] = found
    torch = {row.shape[0]: row for row in select(cubes, role="baseline")}
    _draw_lines(axis, {**series, "torch": list(torch.values())}, lambda row: row.rate, (RUNG, LINES[-2]))
    if limit := max((row.limit for row in cubes if row.limit), default=None):
        axis.axhline(limit, color=LIMIT, linewidth=1.2, zorder=0, label=f"FMA peak {rate_text(limit)}")
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.set_ylim(bottom=0)
    axis.set_xlabel("M = N = K")
    axis.set_ylabel("float32 products, " + next((row.unit for row in own), ""))
    axis.legend(frameon=False, fontsize=9)


def _skinny_panel(axis: Axes, rows: list[Measurement]) -> None:
    """Share of a plain read's bandwidth that skinny products with weights stored by rows reach."""
    own = [
        row
        for row in rows
        if row.limit_name in ("plain read", "copy_") and row.choice == "level 6" and row.share_of_limit
    ]
    own = [row for row in own if row.layout == "NN"]
    for y, row in enumerate(own):
        axis.barh(y - 0.2, 100 * row.share_of_limit, 0.38, color=RUNG, label="" if y else "level 6")
        torch = select(rows, role="baseline", group=row.group, label=row.label)
        if torch and torch[0].share_of_limit:
            axis.barh(y + 0.2, 100 * torch[0].share_of_limit, 0.38, color=TORCH, label="" if y else "torch")
    axis.set_yticks(range(len(own)), [f"{row.type_name} {row.label}" for row in own], fontsize=8)
    axis.invert_yaxis()
    axis.axvline(100, color=LIMIT, linewidth=1.2, zorder=0)
    axis.set_xlabel("% of the bandwidth of a plain read")
    axis.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)


def weak_spots_figure(report: Report) -> Figure:
    plt = _pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(12.4, 4.9), layout="constrained")
    _cubes_panel(axes[0], report.results)
    _skinny_panel(axes[1], report.results)
    figure.supxlabel(_place(report, report.results), fontsize=8.5, color="#555555")
    return figure


def fingerprint(report: Report) -> str:
    """Identifies the data a picture was drawn from."""
    return hashlib.sha256(report.to_json().encode()).hexdigest()[:16]


def draw(report: Report) -> Figure:
    if report.command == "ladder":
        return ladder_figure(report)
    if isinstance(report, AccuracyReport):
        return accuracy_figures.FIGURES["normwise"](report)
    if report.method["timer"] == "sustained":
        return sustained_figure(report)
    if report.method.get("presets") == ["weak_spots"]:
        return weak_spots_figure(report)
    if all(row.group.startswith("sizes ") for row in report.results):
        return sizes_figure(report)
    return sweep_figure(report)


def save(report: Report, path: Path, make: Callable[[Any], Figure] = draw) -> list[Path]:
    """Draws a report to ``path``, or, when that has no known suffix, to path.png and path.svg; returns those."""
    figure = make(report)
    paths = (
        [path] if path.suffix in SUFFIXES else [path.with_name(path.name + suffix) for suffix in SUFFIXES[:2]]
    )
    for target in paths:
        metadata = {"Title": f"fastgemm {report.command}"}
        if target.suffix == ".svg":
            metadata.update({"Date": None, "Description": f"data {fingerprint(report)}"})
        figure.savefig(target, dpi=150, metadata=metadata)
    _pyplot().close(figure)
    return paths
