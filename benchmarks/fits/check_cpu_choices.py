"""Compares choices on CPUs with the fastest measured kernels, for products that the choices were not fitted to.

    python benchmarks/fits/check_cpu_choices.py            every family of fit_cpu_costs.py
    python benchmarks/fits/check_cpu_choices.py zen4 --worst 5

"held out": constants and points are fitted to four fifths of the problems, and kernels are chosen for the other
fifth; this is done five times. "by another": the constants are those of another family, which the processor would
be taken for if it had not been measured. Prints for each type and number of threads the ratio chosen / best of all
kernels and torch: geometric mean, worst, and the share above 1.25. If all sides are at least 64, it also prints
chosen / torch: how many ratios are above 1.03 and above 1.10, and the worst.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fastgemm import _introspect
from fastgemm._choice.fit import predict, thin
from fastgemm._tune.cpu import TORCH, WORTH_LEAVING
from fastgemm.bench.timing import geometric_mean
from fit_cpu_costs import (
    KEPT,
    PROCESSORS,
    counts_of,
    errors,
    fitted,
    points,
    problem_of,
    torch_apart,
)
from points import Point

FOLDS, FAR = 5, 1.25
LARGE, MEASURED, UNMEASURED = 64, 1.03, 1.10  # from this size on, chosen / torch should be at most these
CAUTION = 1.145  # kUnmeasured of csrc/cpu/gemm/predict/predict.cpp
# The family that would replace an unmeasured one, and the types for which libraries use the same units on both.
SIMILAR = {
    "granite_rapids": ("zen4", ("float64", "float32", "bfloat16", "int8", "int32")),
    "zen4": ("zen3", ("float64", "float32", "float16", "int32")),
}
Chosen = list[tuple[Point, str]]


def name_of(point: Point) -> str:
    """The name of the problem, without the type."""
    return str([point[size] for size in ("threads", "batch", "m", "n", "k")] + list(problem_of(point)[-2:]))


def folds(measured: list[Point]) -> Iterator[tuple[list[int], list[int]]]:
    """The indices to fit to, and those to hold out. No problem is in both, not even in another type."""
    names = sorted({name_of(point) for point in measured})
    random.Random(0).shuffle(names)
    fold = {name: i % FOLDS for i, name in enumerate(names)}
    for held in range(FOLDS):
        out = [i for i, point in enumerate(measured) if fold[name_of(point)] == held]
        yield sorted({*range(len(measured))} - {*out}), out


def pick(seconds: dict[str, float], caution: float = 1.0) -> str:
    return min(seconds, key=lambda name: seconds[name] / (caution * WORTH_LEAVING if name == TORCH else 1))


def held_out(family: str, most_folds: int = FOLDS) -> Chosen:
    """The library's choices for each fold, after it received the other folds as this processor's measurements."""
    measured = points(family)
    counted = counts_of(family, measured)
    found: Chosen = []
    _introspect.set_cpu(PROCESSORS[family])
    try:
        for inside, outside in itertools.islice(folds(measured), most_folds):
            costs = fitted([measured[i] for i in inside], [counted[i] for i in inside])
            _introspect.reset_cpu_costs()
            for (kernel, dtype), constants in costs.items():
                _introspect.set_cpu_costs(kernel, dtype, constants)
            for point in kept(measured, counted, inside, costs, KEPT[family]):
                _introspect.add_cpu_point(problem_of(point), point["threads"], list(point["seconds"].items()))
            for point in (measured[i] for i in outside):
                predicted = dict(_introspect.cpu_predictions(problem_of(point), point["threads"]))
                found.append((point, pick({name: predicted[name] for name in point["seconds"]})))
    finally:
        _introspect.set_cpu(None)
        _introspect.reset_cpu_costs()
    return found


def kept(measured: list[Point], counted: list, inside: list[int], costs: dict, count: int) -> Iterator[Point]:
    """The points to keep: as many as the library ships."""
    for dtype in dict.fromkeys(measured[i]["dtype"] for i in inside):
        own = [i for i in inside if measured[i]["dtype"] == dtype]
        apart = [torch_apart(measured[i], errors(measured[i], counted[i], costs)) for i in own]
        places = [_introspect.cpu_place(problem_of(measured[i]), measured[i]["threads"]) for i in own]
        yield from (measured[own[i]] for i in thin(places, apart, count))


def by_another(family: str) -> Chosen:
    """Choices with the constants of another family, and with the caution for an unmeasured processor."""
    like, types = SIMILAR[family]
    measured, other = [point for point in points(family) if point["dtype"] in types], points(like)
    costs = fitted(other, counts_of(like, other))
    found: Chosen = []
    for point, counts in zip(measured, counts_of(family, measured), strict=True):
        known = {name: of for name, of in counts.items() if (name, point["dtype"]) in costs}
        predicted = {name: predict(of, costs[name, point["dtype"]]) for name, of in known.items()}
        found.append((point, pick(predicted, CAUTION)))
    return found


@dataclass(frozen=True)
class Quality:
    """For one type and number of threads: chosen / best at each point, and chosen / torch from LARGE on."""

    of_best: list[float]
    of_torch: list[float]

    def line(self) -> str:
        far = sum(ratio > FAR for ratio in self.of_best) / len(self.of_best)
        mean = geometric_mean(self.of_best)
        text = f"of the best {mean:.3f}, worst {max(self.of_best):.2f}, {far:5.1%} above {FAR}"
        if not self.of_torch:
            return text
        slower = (
            f"{sum(r > limit for r in self.of_torch)} above {limit}" for limit in (MEASURED, UNMEASURED)
        )
        return f"{text}; of torch {len(self.of_torch)} points, {', '.join(slower)}, worst {max(self.of_torch):.2f}"


def qualities(chosen: Chosen) -> dict[str, Quality]:
    found: dict[str, Quality] = {}
    for point, name in chosen:
        key = f"{point['dtype']}, {'one thread' if point['threads'] == 1 else 'all threads'}"
        quality, seconds = found.setdefault(key, Quality([], [])), point["seconds"]
        quality.of_best.append(seconds[name] / min(seconds.values()))
        if TORCH in seconds and min(point[size] for size in ("m", "n", "k")) >= LARGE:
            quality.of_torch.append(seconds[name] / seconds[TORCH])
    return found


WAYS: dict[str, Callable[[str], Chosen]] = {"held out": held_out, "by another": by_another}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", default=list(PROCESSORS), help=", ".join(PROCESSORS))
    parser.add_argument("--worst", type=int, default=0, help="how many of the worst choices to print")
    options = parser.parse_args()
    for family in options.families:
        for way, choose in WAYS.items():
            if choose is by_another and family not in SIMILAR:
                continue
            print(f"{family}, {way}")
            chosen = choose(family)
            for key, quality in qualities(chosen).items():
                print(f"  {key:22s} {len(quality.of_best):4d} points: {quality.line()}")
            ratios = [(p["seconds"][name] / min(p["seconds"].values()), p, name) for p, name in chosen]
            for ratio, p, name in sorted(ratios, key=lambda entry: -entry[0])[: options.worst]:
                print(f"      {ratio:.2f} {p['dtype']} {name_of(p)}: {name}, of {p['seconds']}")


if __name__ == "__main__":
    main()
