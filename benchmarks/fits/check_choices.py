"""Compares the time of the chosen kernel with that of the fastest measured kernel.

    python benchmarks/fits/check_choices.py FILE...     files of measure_kernels.py
    python benchmarks/fits/check_choices.py --held-out  products of CUDA graphs, each predicted from the others

Prints for each series the geometric mean of chosen / best time, the worst ratio, and how many ratios are large.
Level 6 is compared with own kernels of that level, level=None with all kernels. Also prints the errors of the
predictions. A chosen kernel that was too slow to be measured counts as HOPELESS times as slow.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from fastgemm import _introspect
from fastgemm._choice.fit import corrections, error_of, fit_limited, predict_limited
from fastgemm.bench.timing import geometric_mean
from fit_costs import DATA, GRAPHS, H200, LIBRARY, nearness, points_of, rivals, rows_in_graphs
from scipy.spatial.distance import cdist
from static_tables.series import HOPELESS

ROWS = [row for row in _introspect.table() if (row["op"], row["device"]) == ("gemm", "cuda")]
LEVELS = {row["name"]: row["level"] for row in ROWS}
FOLDS = 5
CALL = 0.3e-6  # seconds by which the library has to be faster in 16 bits (predict/predict.cpp)
FAR, TOO_FAR = 1.15, 1.4  # chosen / best


@dataclass
class Quality:
    """For one series: chosen / best for each point, and relative errors of predicted times."""

    level6: list[tuple[float, str]] = field(default_factory=list)
    free: list[tuple[float, str]] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)

    def add(self, problem: tuple, seconds: dict[str, float], predicted: dict[str, float]) -> None:
        name = "x".join(map(str, problem[3:6])) + " " + "".join("NT"[t] for t in problem[6:])
        level6 = {k: s for k, s in predicted.items() if LEVELS.get(k) == 6}
        self.errors += [
            abs(s / seconds[k] - 1) for k, s in predicted.items() if k in seconds and k != LIBRARY
        ]
        if LIBRARY not in seconds:
            predicted.pop(LIBRARY)
        for candidates, into in ((level6, self.level6), (predicted, self.free)):
            measured = {k: t for k, t in seconds.items() if k in candidates}
            if not measured:
                continue
            chosen, best = (min(times, key=times.__getitem__) for times in (candidates, measured))
            ratio = measured[chosen] / measured[best] if chosen in measured else float(HOPELESS)
            into.append((ratio, f"{name}: {chosen}, not {best}"))

    def line(self) -> str:
        parts = []
        for label, ratios in (("level 6", self.level6), ("None", self.free)):
            values = [r for r, _ in ratios]
            far = " and ".join(str(sum(r > limit for r in values)) for limit in (FAR, TOO_FAR))
            mean = geometric_mean(values)
            parts.append(f"{label} {mean:.4f}, worst {max(values):.2f}, above {FAR}, {TOO_FAR}: {far}")
        off = statistics.quantiles(self.errors, n=20)
        return f"{'; '.join(parts)}; errors: median {off[9]:.1%}, 95 % below {off[18]:.0%}"


def qualities(path: Path, gpu: dict[str, Any]) -> dict[str, Quality]:
    found: dict[str, Quality] = {}
    for series, problem, seconds in points_of(path):
        predicted = dict(_introspect.predictions(problem, gpu))
        found.setdefault(series, Quality()).add(problem, seconds, predicted)
    return found


def held_out() -> Quality:
    """The bfloat16 products of GRAPHS, each predicted without those of its fold."""
    points = [point[1:] for point in points_of(DATA / GRAPHS) if point[0] == "bfloat16"]
    fold = random.Random(FOLDS).choices(range(FOLDS), k=len(points))
    place = np.array([_introspect.place(problem) for problem, _ in points])
    squared = cdist(place, place, "sqeuclidean")
    predicted: list[dict[str, float]] = [{} for _ in points]
    kernels = [LIBRARY, *rows_in_graphs()]
    for kernel, each in itertools.product(kernels, range(FOLDS)):
        timed = [i for i, (_, seconds) in enumerate(points) if kernel in seconds]
        known, asked = ([i for i in timed if (fold[i] == each) == out] for out in (False, True))
        counts = {i: _introspect.counts(kernel, points[i][0], H200) for i in timed}
        times = [points[i][1] for i in known]
        weights = [1.0 if kernel == LIBRARY else nearness(kernel, each, rivals(kernel)) for each in times]
        costs = fit_limited([counts[i] for i in known], [each[kernel] for each in times], weights)
        off = np.array([error_of(counts[i], costs, points[i][1][kernel]) for i in known])
        for i, corrected in zip(asked, corrections(squared[np.ix_(asked, known)], off), strict=True):
            predicted[i][kernel] = predict_limited(counts[i], costs, corrected)
    for times in predicted:
        times[LIBRARY] += CALL
    quality = Quality()
    for (problem, seconds), times in zip(points, predicted, strict=True):
        quality.add(problem, {k: t for k, t in seconds.items() if k in times}, times)
    return quality


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--held-out", action="store_true", help=f"each product of {GRAPHS} from the others")
    parser.add_argument("--worst", type=int, default=0, help="how many of the worst choices to print")
    parser.add_argument("--multiprocessors", type=int, default=H200["multiprocessors"])
    parser.add_argument("--portable", action="store_true", help="the source path without wgmma")
    options = parser.parse_args()
    gpu = {**H200, "multiprocessors": options.multiprocessors, "wgmma": not options.portable}
    if options.held_out:
        print(f"{GRAPHS}, held out: {held_out().line()}")
    for path in options.files:
        print(path)
        for series, quality in qualities(path, gpu).items():
            print(f"  {series:9s} {len(quality.free)} points: {quality.line()}")
            for kind in (quality.level6, quality.free):
                for ratio, what in sorted(kind, reverse=True)[: options.worst]:
                    print(f"      {ratio:.2f} {what}")


if __name__ == "__main__":
    main()
