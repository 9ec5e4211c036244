"""Draws pictures of the pages, each from the report of one preset."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fastgemm.bench.drawing import place, pyplot
from fastgemm.bench.formatting import rate as rate_text
from fastgemm.bench.ladder_plots import LIMIT, RUNG, TORCH
from fastgemm.bench.records import Measurement, Report, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = ("#b9c6d0", "#8fb3cc", "#5f95bc", "#2f6f9f", "#123a5c", "#3f8f5a", "#7a5aa6")


def _lines(report: Report) -> dict[str, list[Measurement]]:
    """The lines of a plot against size: one for each choice of a kernel, then torch."""
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
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(7.6, 4.8), layout="constrained")
    _draw_lines(axis, _lines(report), lambda row: row.rate)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.set_xlabel("M = N = K")
    axis.set_ylabel(report.results[0].unit)
    axis.legend(frameon=False, fontsize=9)
    axis.set_title(f"gemm {report.results[0].dtype}", fontsize=11, fontweight="bold", loc="left")
    figure.supxlabel(place(report, report.results), fontsize=8.5, color="#555555")
    return figure


def sustained_figure(report: Report) -> Figure:
    """Rate, power and clock against size, one above the other."""
    plt = pyplot()
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
    figure.supxlabel(place(report, report.results), fontsize=8.5, color="#555555")
    return figure


def _cubes_panel(axis: Axes, rows: list[Measurement]) -> None:
    """Rates of square float32 products, NN: each precision, torch, and the peak of the multiply-add units."""
    cubes = _float32_cubes(rows)
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


def headline_figure(report: Report) -> Figure:
    """Rates of square float32 products by default and by torch. README begins with this picture."""
    plt = pyplot()
    with plt.rc_context({"font.size": 12.5}):
        figure, axis = plt.subplots(figsize=(6.6, 3.9), layout="constrained")
        cubes = _float32_cubes(report.results)
        own = select(select(cubes, choice="fastest"), group="float32")
        torch = select(select(cubes, role="baseline"), group="float32")
        sizes = [row.shape[0] for row in own]
        for rows, colour, name, marker, up in (
            (own, RUNG, "fastgemm", "o", 9),
            (torch, TORCH, "torch (cuBLAS)", "s", -20),
        ):
            axis.plot(sizes, [row.rate for row in rows], color=colour, marker=marker, linewidth=2.2)
            last = rows[-1]
            axis.annotate(
                f"{name} {rate_text(last.rate)}",
                (last.shape[0], last.rate),
                xytext=(0, up),
                textcoords="offset points",
                ha="right",
                color=colour,
                fontweight="bold",
            )
        if limit := max((row.limit for row in cubes if row.limit), default=None):
            axis.axhline(limit, color=LIMIT, linewidth=1.2, linestyle=":")
            text = f"peak of float32 multiply-add units {rate_text(limit)}"
            axis.annotate(text, (sizes[-1], limit), xytext=(0, 4), textcoords="offset points", ha="right")
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, list(map(str, sizes)))
        axis.xaxis.set_minor_locator(plt.NullLocator())
        axis.set_ylim(0, 1.12 * max(row.rate for row in own))
        axis.set_xlabel("M = N = K")
        axis.set_title(f"float32 products, {own[0].unit}", fontsize=13, fontweight="bold", loc="left")
        figure.supxlabel(place(report, report.results), fontsize=9.5, color="#555555")
    return figure


def _float32_cubes(rows: list[Measurement]) -> list[Measurement]:
    """Square float32 products, NN, called one by one."""
    found = [row for row in rows if row.group.startswith("float32") and row.layout == "NN" and not row.joules]
    return [row for row in found if len(row.shape) == 3 and len(set(row.shape)) == 1 and row.rate]


def _skinny_panel(axis: Axes, rows: list[Measurement]) -> None:
    """The bandwidth of skinny products with row-major weights, as a share of a plain read's."""
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
        else:
            axis.annotate(
                "torch has none", (1, y + 0.2), va="center", fontsize=7, color=TORCH, annotation_clip=False
            )
    axis.set_yticks(range(len(own)), [f"{row.type_name} {row.label}" for row in own], fontsize=8)
    axis.invert_yaxis()
    axis.axvline(100, color=LIMIT, linewidth=1.2, zorder=0, label="plain read")
    axis.set_xlabel("% of the bandwidth of a plain read")
    axis.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)


def weak_spots_figure(report: Report) -> Figure:
    plt = pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(12.4, 5.6), layout="constrained")
    _cubes_panel(axes[0], report.results)
    _skinny_panel(axes[1], report.results)
    figure.supxlabel(place(report, report.results), fontsize=8.5, color="#555555")
    return figure
