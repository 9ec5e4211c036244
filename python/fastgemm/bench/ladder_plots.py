"""The picture of the ladder: a bar for each rung with its rate and gain, and lines for torch and limits."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from .drawing import place, pyplot
from .formatting import rate as rate_text
from .records import Measurement, Report, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RUNG, BESIDE, LIBRARY, TORCH, LIMIT = "#2f6f9f", "#b9c6d0", "#e6b49f", "#c8502d", "#3a3a3a"
COLOURS = {"rung": RUNG, "companion": BESIDE, "pitfall": BESIDE, "library": LIBRARY}
LEGEND = {
    "rung": "rung: the kernel of its level",
    "companion": "grey: a rung with one thing changed, for comparison",
    "pitfall": "grey: a rung with one thing changed, for comparison",
    "library": "a library",
}
OTHER_PROBLEMS = "alternative"  # rungs of a level that this problem is not for
WIDTH, BAR = 6.6, 0.31  # inches: as wide as a phone is, so that letters stay large


def _gain_text(row: Measurement) -> str:
    if not row.gain:
        return ""
    return f"{row.gain:.1f}x" if row.gain >= 2 else f"{row.gain:.2f}x"


def _drawn(rows: list[Measurement]) -> list[Measurement]:
    return [row for row in rows if row.level is not None and row.rate and row.role in COLOURS]


def _name_lines(axis: Axes, rows: list[Measurement]) -> None:
    """torch, and the limit of the machine, as vertical lines; each has its name above the plot."""
    limits = dict.fromkeys((row.limit_name, row.limit) for row in rows if row.limit)
    named = [(row.kernel, row.rate, TORCH, "--") for row in select(rows, role="baseline") if row.rate]
    named += [(name, limit, LIMIT, "-") for name, limit in list(limits)[:1]]
    for i, (name, rate, colour, style) in enumerate(named):
        axis.axvline(rate, color=colour, linestyle=style, linewidth=1.3, zorder=3)
        axis.annotate(
            f"{name}: {rate_text(rate)}",
            (rate, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3 + 15 * i),
            textcoords="offset points",
            ha="center",
            va="bottom",
            color=colour,
        )


def _panel(axis: Axes, rows: list[Measurement]) -> None:
    bars = _drawn(rows)
    places = list(range(len(bars)))
    axis.barh(places, [row.rate or 0 for row in bars], color=[COLOURS[row.role] for row in bars], height=0.7)
    names = [f"{row.level}  {row.kernel}" if row.role == "rung" else row.kernel for row in bars]
    axis.set_yticks(places, names)
    axis.set_xlim(0, 1.04 * max(value or 0 for row in rows for value in (row.rate, row.limit)))
    _name_lines(axis, rows)
    # The figures are in two columns beside the plot, where no line crosses them.
    beside = axis.twinx()
    columns = [f"{rate_text(row.rate):>6}{_gain_text(row):>7}" for row in bars]
    unit = bars[0].unit if bars else ""
    beside.set_yticks([-1, *places], [f"{unit:>6}{'gain':>7}", *columns], family="monospace", fontsize=10.5)
    for each in (axis, beside):
        each.set_ylim(len(bars) - 0.5, -1.5)
        each.tick_params(axis="y", length=0)
    beside.spines[:].set_visible(False)
    first = rows[0]
    title = f"{first.op}, {first.type_name} {first.label}"
    axis.set_title(title, fontweight="bold", pad=36, loc="left")


def _left_out(report: Report) -> str:
    names = dict.fromkeys(row.kernel for row in select(report.results, role=OTHER_PROBLEMS))
    return f"Not drawn, being for other problems or GPUs: {', '.join(names)}." if names else ""


def ladder_figure(report: Report) -> Figure:
    """A panel for each op, one above the other; the gain is over the level below."""
    plt = pyplot()  # first: it says which package is missing
    from matplotlib.patches import Patch

    ops = list(dict.fromkeys(row.op for row in report.results))
    counts = [max(len(_drawn(select(report.results, op=op))), 1) for op in ops]
    with plt.rc_context({"font.size": 11.5, "axes.titlesize": 13}):
        figure, axes = plt.subplots(
            len(ops),
            1,
            figsize=(WIDTH, sum(BAR * count + 1.35 for count in counts) + 1.2),
            height_ratios=[BAR * (count + 1) for count in counts],
            squeeze=False,
            layout="constrained",
        )
        for axis, op in zip(axes[:, 0], ops, strict=True):
            _panel(axis, select(report.results, op=op))
        roles = {LEGEND[row.role]: COLOURS[row.role] for row in _drawn(report.results)}
        handles = [Patch(color=colour, label=text) for text, colour in roles.items()]
        figure.legend(handles=handles, loc="outside upper left", frameon=False, fontsize=10.5)
        gain = "Gain: over the level below."
        notes = [text for text in (gain, _left_out(report), place(report, report.results)) if text]
        wrapped = "\n".join(line for text in notes for line in textwrap.wrap(text, 70))
        figure.supxlabel(wrapped, fontsize=9.5, color="#555555", ha="left", x=0.02)
    return figure
