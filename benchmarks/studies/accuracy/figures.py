"""Pictures of the study. Each distribution has a panel that shows errors, or ratios of errors, against K."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import TYPE_CHECKING

from fastgemm.bench.drawing import place, pyplot

from .contenders import LIBRARY
from .lookup import CLOSE, MEASURES, Study, library_name, name
from .records import AccuracyReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours of Okabe and Ito, which colour-blind readers can distinguish, with markers. The library is dashed.
LIBRARY_STYLE = {"color": "#000000", "linestyle": "--", "marker": "None"}
STYLES = {
    "ieee": [
        {"color": "#0072B2", "marker": "o"},
        {"color": "#009E73", "marker": "s"},
        {"color": "#56B4E9", "marker": "P"},
    ],
    "fp16x3": [{"color": "#E69F00", "marker": "^"}],
    "bf16x3": [{"color": "#D55E00", "marker": "v"}],
    "tf32": [{"color": "#CC79A7", "marker": "D"}],
}
# Styles for further kernels: greys with different markers.
MORE = [
    {"color": grey, "marker": marker}
    for marker, grey in zip("x*<>hdp1", ("#7f7f7f", "#4d4d4d", "#a0a0a0", "#666666") * 2, strict=True)
]
FIRST = ("level=6", "bf16x6", "bf16x6_fused")  # these get the styles above first
TITLES = {
    "normwise": "Normwise error, ||C - ref|| / ||ref||",
    "componentwise": "Componentwise error, max |C - ref| / (|A||B|)",
}
GREY = "#555555"
LOWEST_RATIO, HIGHEST_RATIO = 0.02, 6  # limits of the pictures; values outside are shown as numbers


def _styles(study: Study) -> dict[tuple[str, str], dict[str, str]]:
    left, more = {precision: list(styles) for precision, styles in STYLES.items()}, cycle(MORE)
    found = {}
    for contender in sorted(study.contenders, key=lambda c: c[0] not in FIRST):
        if contender not in study.rivals:
            found[contender] = LIBRARY_STYLE
        elif contender[0] == LIBRARY:
            found[contender] = LIBRARY_STYLE | {"color": "#888888", "marker": "|"}
        else:
            found[contender] = left[contender[1]].pop(0) if left[contender[1]] else next(more)
    return found


def _panels(report: AccuracyReport) -> tuple[Figure, dict[str, Axes], Study]:
    plt = pyplot()
    study = Study(report)
    rows = -(-len(study.distributions) // 3)
    figure, axes = plt.subplots(
        rows,
        3,
        figsize=(10.4, 1.7 + 2.75 * rows),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axis in axes.flat[len(study.distributions) :]:
        axis.set_visible(False)
    figure.supxlabel(place(report, report.results), fontsize=8.5, color=GREY)
    panels = dict(zip(study.distributions, axes.flat, strict=False))
    for i, (distribution, axis) in enumerate(panels.items()):
        axis.set_title(distribution, fontsize=10.5, loc="left")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.grid(color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
        if i + 3 >= len(panels):
            axis.set_xlabel("K")
            axis.xaxis.set_tick_params(labelbottom=True)
    return figure, panels, study


def _legend(figure: Figure, axis: Axes, study: Study, title: str, columns: int) -> None:
    """Draws the legend above the panels and below the figure's title."""
    m, n = study.sizes[0]
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(
        *(handles, labels),
        loc="outside upper left",
        title=f"{title}; products of {m} x K by K x {n}",
        title_fontproperties={"weight": "bold", "size": 12},
        alignment="left",
        ncols=columns,
        frameon=False,
        fontsize=9,
        handlelength=2.6,
    )


def error_figure(report: AccuracyReport, measure: str) -> Figure:
    """Draws the errors of all contenders."""
    figure, panels, study = _panels(report)
    styles = _styles(study)
    for distribution, axis in panels.items():
        for contender in study.contenders:
            shapes = study.taken(contender, study.sizes[0])
            values = [getattr(study.error(contender, distribution, shape), measure) for shape in shapes]
            axis.plot(
                [shape[2] for shape in shapes],
                values,
                label=name(report, *contender),
                markersize=4,
                linewidth=1.5,
                **styles[contender],
            )
    _legend(figure, axis, study, TITLES[measure], columns=4)
    return figure


def _note_what_is_outside(
    axis: Axes, report: AccuracyReport, ratios: dict[tuple[str, str], list[float]]
) -> None:
    """Names contenders whose lines are above the panel or partly below it."""
    above = [
        f"{name(report, *contender)}: {min(values):.0f} to {max(values):.0f}"
        for contender, values in ratios.items()
        if min(values) > HIGHEST_RATIO
    ]
    below = [
        f"{name(report, *contender)}: from {min(values):.0e}"
        for contender, values in ratios.items()
        if min(values) < LOWEST_RATIO / 2
    ]
    for lines, y, edge in ((above, 0.96, "top"), (below, 0.04, "bottom")):
        axis.text(0.98, y, "\n".join(lines), transform=axis.transAxes, ha="right", va=edge, fontsize=9)


def ratio_figure(report: AccuracyReport) -> Figure:
    """Draws errors in units of the library's, for contenders that are about as accurate."""
    from matplotlib import ticker

    figure, panels, study = _panels(report)
    styles, size = _styles(study), study.sizes[0]
    close = [c for c in study.rivals if c[1] in CLOSE and study.taken(c, size)]
    library = library_name(report)
    lowest = 0.5
    for distribution, axis in panels.items():
        ratios: dict[tuple[str, str], list[float]] = {contender: [] for contender in close}
        for contender in close:
            shapes = study.taken(contender, size)
            for measure, line in zip(MEASURES, ("-", ":"), strict=True):
                values = [study.ratio(contender, distribution, shape, measure) for shape in shapes]
                ratios[contender] += values
                axis.plot(
                    [shape[2] for shape in shapes],
                    values,
                    label=name(report, *contender) if line == "-" else None,
                    markersize=4,
                    linewidth=1.5,
                    linestyle=line,
                    **styles[contender],
                )
        axis.axhline(1, **LIBRARY_STYLE, linewidth=1.3, label=library)
        lowest = min(lowest, *(min(values) for values in ratios.values()))
        _note_what_is_outside(axis, report, ratios)
    axis.set_ylim(max(lowest / 1.25, LOWEST_RATIO), HIGHEST_RATIO)
    axis.yaxis.set_major_locator(ticker.LogLocator(base=10, subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axis.yaxis.set_minor_locator(ticker.NullLocator())
    title = f"Errors in units of {library}'s, normwise solid, componentwise dotted"
    _legend(figure, axis, study, title, columns=-(-(len(close) + 1) // 2))
    return figure


FIGURES: dict[str, Callable[[AccuracyReport], Figure]] = {
    "normwise": lambda report: error_figure(report, "normwise"),
    "componentwise": lambda report: error_figure(report, "componentwise"),
    "ratio": ratio_figure,
}
