"""How predictions are made and how good they are, from the points that they are fitted to
(benchmarks/fits)."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import check_cpu_choices
import fit_cpu_costs
from check_choices import held_out, qualities
from fastgemm import _introspect
from fastgemm.bench.formatting import percent
from fastgemm.bench.records import select
from fastgemm.bench.timing import geometric_mean
from fit_costs import DATA, GRAPHS, H200, PATHS, points_of
from points import read_points

from .groups import BEST, COUNT, LEAST, LIBRARY, MEAN, NAME, Group
from .spec import PLACE, Block, Column, Rows, Table, versions

# The GPU that was measured. Number 0: tuning results of the machine that renders these pages are not used.
GPU = {**H200, "number": 0}
EXAMPLE = ("float32", "ieee", 1, 1000, 777, 3000, False, False)
NEIGHBOUR = ("float32", "ieee", 1, 1000, 777, 3001, True, True)  # measured
# Terms that count cycles (counts.h); all others are times.
IN_CYCLES = {"launch", "more_launches", "code", "waves", "steps", "edges"}
FAR = 1.15
PROCESSORS = {
    "granite_rapids": "Emerald or Granite Rapids",
    "without_tiles": "Emerald Rapids without tiles",
    "zen4": "Zen 4",
    "zen3": "Zen 3",
}


def microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"


def terms() -> str:
    """The terms whose sum is the prediction for the kernel chosen for EXAMPLE."""
    kernel, seconds = _introspect.predictions(EXAMPLE, GPU)[0]
    counts, costs = _introspect.counts(kernel, EXAMPLE, GPU), _introspect.costs(kernel, EXAMPLE[0], GPU)
    *added, least = zip(_introspect.COUNTS, counts, costs, strict=True)  # the last one is a limit
    found = [term for term in added if term[1] * term[2]]

    def counted(term: tuple) -> str:
        return f"{term[1] * GPU['clock']:.0f}" if term[0] in IN_CYCLES else f"{microseconds(term[1])} us"

    table = Table(
        [
            Column("count", lambda term: term[0], "`{}`"),
            Column("counted", counted),
            Column("constant", lambda term: f"{term[2]:.4g}{' cycles' if term[0] in IN_CYCLES else ''}"),
            Column("us", lambda term: term[1] * term[2], microseconds),
        ]
    )
    together = f"| `{kernel}` together |  |  | **{microseconds(seconds)}** |"
    limit = f"| no less than `{least[0]}` | {counted(least)} | {least[2]:.4g} |"
    return f"{table.text(found)}\n{together}\n{limit} {microseconds(least[1] * least[2])} |"


def predictions() -> str:
    """The predictions for EXAMPLE, and for NEIGHBOUR beside the measured times."""
    measured = next(
        (times for _, problem, times in points_of(DATA / PATHS["hopper"]) if problem == NEIGHBOUR), {}
    )
    beside = dict(_introspect.predictions(NEIGHBOUR, GPU))
    table = Table(
        [
            Column("kernel", lambda each: each[0] if each[0] == "library" else f"`{each[0]}`"),
            Column("1000 x 777 x 3000 NN, predicted, us", lambda each: each[1], microseconds),
            Column("1000 x 777 x 3001 TT, predicted, us", lambda each: beside[each[0]], microseconds),
            Column("measured, us", lambda each: measured.get(each[0]), microseconds),
        ]
    )
    return table.text(_introspect.predictions(EXAMPLE, GPU)[:7])


def _chosen(head: str, ratios: Callable[[Any], list[float]]) -> list[Column]:
    """Columns of chosen / best."""

    def beyond(line: Any) -> float:
        return sum(ratio > FAR for ratio in ratios(line)) / len(ratios(line))

    return [
        Column(f"{head}chosen / best", lambda line: geometric_mean(ratios(line)), "{:.3f}"),
        Column("worst", lambda line: max(ratios(line)), "{:.2f}"),
        Column(f"above {FAR}", beyond, percent),
    ]


QUALITY = Table(
    [
        Column("code", lambda line: line[0]),
        Column("products", lambda line: line[1]),
        Column("points", lambda line: len(line[2].level6)),
        *_chosen("level 6: ", lambda line: [ratio for ratio, _ in line[2].level6]),
        *_chosen("`level=None`: ", lambda line: [ratio for ratio, _ in line[2].free]),
        Column("error of predictions, median", lambda line: statistics.median(line[2].errors), percent),
        Column("95 % below", lambda line: statistics.quantiles(line[2].errors, n=20)[18], percent),
    ],
    words=2,
)
OF_CPUS = Table(
    [
        Column("processor", lambda line: line[0]),
        Column("products", lambda line: line[1]),
        Column("points", lambda line: len(line[2])),
        *_chosen("", lambda line: [of_best for of_best, _ in line[2]]),
        Column(
            "times as fast as torch", lambda line: 1 / geometric_mean([own for _, own in line[2]]), "{:.2f}"
        ),
        Column("least", lambda line: 1 / max(own for _, own in line[2]), "{:.2f}"),
    ],
    words=2,
)


def quality() -> str:
    """Chosen kernels compared with the best measured ones, and the errors of the predictions."""
    lines = [
        ("sm_90a" if path == "hopper" else "portable path", series, found)
        for path, file in PATHS.items()
        for series, found in qualities(DATA / file, {**GPU, "wgmma": path == "hopper"}).items()
    ]
    lines.append(("sm_90a, in CUDA graphs, held out", "bfloat16", held_out()))
    return "\n\n".join([QUALITY.text(lines), *map(_place, [*PATHS.values(), GRAPHS])])


def of_cpus() -> str:
    """The same for products on CPUs that were held out of the fit, and a comparison with torch's times."""
    lines = []
    for family, name in PROCESSORS.items():
        found = check_cpu_choices.held_out(family)
        for dtype in fit_cpu_costs.ARITHMETIC_TYPES:
            seconds = [(p["seconds"], p["seconds"][kernel]) for p, kernel in found if p["dtype"] == dtype]
            ratios = [(s / min(all_.values()), s / all_["torch"]) for all_, s in seconds if "torch" in all_]
            if ratios:
                lines.append((name, dtype, ratios))
    files = dict.fromkeys(file for family in PROCESSORS for file in fit_cpu_costs.FILES[family])
    return "\n\n".join([OF_CPUS.text(lines), *map(_place, files)])


def _place(file: str) -> str:
    head, _ = read_points(DATA / file)
    older = "".join(
        f"; {before['what']}: {before['date'][:10]}, commit {before['commit']}"
        for before in head.get("measured before", ())
    )
    return f"`{file}`: measured on {versions(head['environment'])}{older}."


def _transposes(rows: Rows) -> list[Group]:
    """Transposition: the kernel that is taken where nothing was measured."""
    found: dict[str, Rows] = {}
    for row in select(rows, kernel="pipelined"):
        sizes = "small" if row.group.startswith("small") else "others"
        threads = f"{row.threads} thread{'s' if row.threads > 1 else ''}"
        found.setdefault(f"{row.dtype}, {sizes}, {threads}", []).append(row)
    return [Group(name, each) for name, each in found.items()]


BLOCKS: dict[str, Callable[[], str]] = {
    "choosing_terms": terms,
    "choosing_predictions": predictions,
    "choosing_quality": quality,
    "choosing_cpu": of_cpus,
}
OF_FILES = {
    "choosing_transposes": Block(
        "transposes", Table([NAME, COUNT, BEST, LIBRARY, MEAN, LEAST], _transposes), PLACE, device="cpu"
    )
}
