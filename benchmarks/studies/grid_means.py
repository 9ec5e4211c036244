"""Compares level=None and the best own kernel with torch and with the best of all, on ordinary products."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fastgemm.bench.formatting import ratio
from fastgemm.bench.records import Measurement, Report
from fastgemm.bench.timing import geometric_mean

from .layers import CLASSES, class_of

TORCH, DEFAULT, TUNED, LIBRARY, OWN, BEST = "torch", "level=None", "tune=True", "cublaslt", "own", "best"
GRAPHS, EAGER = "seconds", "back_to_back"  # the fields of a row
RATIOS = {  # ratios of two contestants' times, and the function for the worst value
    "torch / level=None": (TORCH, DEFAULT, GRAPHS, min),
    "torch / tune=True": (TORCH, TUNED, GRAPHS, min),
    "torch / best own": (TORCH, OWN, GRAPHS, min),
    "level=None / best": (DEFAULT, BEST, GRAPHS, max),
    "eager, torch / level=None": (TORCH, DEFAULT, EAGER, min),
}
SLOWER, LATER = 1.03, 0.3e-6  # more than this many times torch's time, and this many seconds longer

Problem = dict[str, Measurement]  # the rows of a problem by contestant


def problems_of(rows: Iterable[Measurement]) -> Iterator[Problem]:
    """The problems for which torch and level=None were timed."""
    found: dict[tuple[Any, ...], Problem] = {}
    for row in rows:
        if row.seconds:
            found.setdefault((row.dtype, row.layout, row.shape), {})[row.choice] = row
    yield from (each for each in found.values() if each.keys() >= {TORCH, DEFAULT})


def seconds(problem: Problem, contestant: str, kind: str = GRAPHS) -> float | None:
    """The median time; None if the contestant does not take the problem."""
    if contestant == BEST:
        return min(row.seconds.median for row in problem.values())
    row = problem.get(contestant)
    return getattr(row, kind).median if row else None


def means(rows: Iterable[Measurement]) -> list[dict[str, Any]]:
    """The geometric mean and the worst of each ratio, by type, layout and class of flop."""
    groups: dict[tuple[str, str, str], list[Problem]] = {}
    for problem in problems_of(rows):
        row = problem[TORCH]
        groups.setdefault((row.dtype, row.layout, class_of(row.shape) or ""), []).append(problem)
    order = list(CLASSES.values())
    found = []
    for key in sorted(groups, key=lambda key: (key[0], key[1], order.index(key[2]))):
        line: dict[str, Any] = dict(zip(("type", "layout", "flop"), key, strict=True))
        line["count"] = len(groups[key])
        for name, (over, under, kind, worst) in RATIOS.items():
            times = [(seconds(p, over, kind), seconds(p, under, kind)) for p in groups[key]]
            ratios = [a / b for a, b in times if a and b]
            mean, least = (of(ratios) if ratios else None for of in (geometric_mean, worst))
            line[name] = {"mean": mean, "worst": least}
        found.append(line)
    return found


def slower(rows: Iterable[Measurement]) -> list[dict[str, Any]]:
    """The problems where level=None is slower than torch in graphs by more than 3 % and 0.3 us, worst first."""
    found = []
    for problem in problems_of(rows):
        row, (torch, own) = problem[DEFAULT], (seconds(problem, name) for name in (TORCH, DEFAULT))
        if own > SLOWER * torch and own > torch + LATER:
            best = min(problem.values(), key=lambda each: each.seconds.median)
            what = {"problem": f"{row.dtype} {row.label}", "kernel": row.kernel, "best": best.kernel}
            found.append({**what, "of_torch": torch / own, "later": own - torch})
    return sorted(found, key=lambda each: each["of_torch"])


def told(report: Report) -> list[str]:
    """Lines about problems where level=None is slower than torch, and about problems that were not measured."""
    rows = [
        f"{each['problem']}: {ratio(each['of_torch'])} times as fast as torch "
        f"({1e6 * each['later']:.1f} us longer) by `{each['kernel']}`; the fastest was `{each['best']}`"
        for each in report.summary["slower"]
    ]
    limit = f"{100 * (SLOWER - 1):.0f} % and {1e6 * LATER:.1f} us"
    head = f"`level=None` is slower than torch by more than {limit}: {len(rows)} problems."
    left = report.method["not_measured"]
    return [head, *rows, *([f"Not measured, because time was up: {left} problems."] if left else [])]
