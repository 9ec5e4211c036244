"""Computes constants of predictions from measured times."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from .. import _introspect
from .._choice import fit
from .._choice.predictions import KernelCosts, LibraryCosts, Problem
from .measuring import LIBRARY, Point, predicted
from .problems import problems

ENOUGH = 30  # fewest points for a fit of a kernel or of the library's model
FEW = 5  # fewest points for a scale of a kernel's constants
PRIOR = 1 / 3  # as many predictions by the old constants are added as there are points
KEPT = 340  # points of the library's series that are kept
POOLED = ({"float16", "bfloat16"},)  # types of which kernels take the same time

Observations = list[tuple[Problem, float]]


def _pool(dtype: str) -> frozenset[str]:
    return frozenset(next((types for types in POOLED if dtype in types), {dtype}))


def _spread(values: Sequence[Any], count: int) -> list[Any]:
    """``count`` of the values, evenly spread from first to last."""
    count = min(count, len(values))
    return [values[i * len(values) // count] for i in range(count)]


class _Kernels:
    """Measurements of kernels, for types that take the same time."""

    def __init__(self, points: Sequence[Point], gpu: dict[str, Any]):
        self._gpu = gpu
        self.measured: dict[str, Observations] = defaultdict(list)
        # Predicted times, for problems on which a kernel was not timed.
        self._expected: dict[str, Observations] = defaultdict(list)
        ratios: dict[str, list[float]] = defaultdict(list)
        for point in points:
            for name, seconds in predicted(point.problem, gpu).items():
                if name == LIBRARY:
                    continue
                if name in point.seconds:
                    self.measured[name].append((point.problem, point.seconds[name]))
                    ratios[name].append(point.seconds[name] / seconds)
                else:
                    self._expected[name].append((point.problem, seconds))
        self._off = {name: statistics.median(r) for name, r in ratios.items() if len(r) >= FEW}
        # Kernels with few points get the scale of the others.
        every = [ratio for found in ratios.values() for ratio in found]
        self._others = statistics.median(self._off.values() or every or [1.0])

    def costs(self, name: str, dtype: str) -> tuple[float, ...] | None:
        """Fitted constants if there are enough points; otherwise the current constants, scaled."""
        measured, off = self.measured[name], self._off.get(name, self._others)
        if len(measured) < ENOUGH:
            old = _introspect.costs(name, dtype, self._gpu)
            return tuple(float(f"{off * cost:.4g}") for cost in old) if old else None
        expected = _spread(self._expected[name], round(PRIOR * len(measured)))
        observations = measured + [(problem, off * seconds) for problem, seconds in expected]
        counts = [_introspect.counts(name, problem, self._gpu) for problem, _ in observations]
        return tuple(fit.fit_limited(counts, [seconds for _, seconds in observations]))


def _predicted_kernels(dtype: str, gpu: dict[str, Any]) -> Iterator[str]:
    for row in _introspect.table():
        if (row["op"], row["device"], row["role"]) == ("gemm", "cuda", "rung") and dtype in row["dtypes"]:
            try:
                if _introspect.costs(row["name"], dtype, gpu):
                    yield row["name"]
            except ValueError:  # a rung that is not predicted
                continue


def fit_kernels(points: Sequence[Point], gpu: dict[str, Any]) -> tuple[KernelCosts, ...]:
    """Constants of every kernel for the types that were measured."""
    found, pools = [], {}
    for dtype in dict.fromkeys(point.problem[0] for point in points):
        pool = _pool(dtype)
        if pool not in pools:
            pools[pool] = _Kernels([p for p in points if p.problem[0] in pool], gpu)
        for name in _predicted_kernels(dtype, gpu):
            if not pools[pool].measured[name] and not gpu["wgmma"] and name in _hopper():
                continue
            costs = pools[pool].costs(name, dtype)
            if costs and any(costs):
                found.append(KernelCosts(name, dtype, costs))
    return tuple(found)


def _hopper() -> set[str]:
    return {row["name"] for row in _introspect.table() if row["needs"] == "sm_90a"}


def fit_library(points: Sequence[Point], gpu: dict[str, Any]) -> tuple[LibraryCosts, ...]:
    """For each series in which the library was measured: the constants of its model, and its points. With few
    points, the fit also uses predictions for other problems, scaled as at those points."""
    series: dict[tuple[str, str], Observations] = defaultdict(list)
    for point in points:
        if LIBRARY in point.seconds:
            series[point.problem[:2]].append((point.problem, point.seconds[LIBRARY]))
    found = []
    for (dtype, precision), measured in series.items():
        observations = list(measured)
        if len(measured) < ENOUGH:
            off = statistics.median(seconds / _library(problem, gpu) for problem, seconds in measured)
            others = problems(dtype, precision, gpu, seed=1)
            fill = (next(others) for _ in range(2 * ENOUGH - len(measured)))
            observations += [(problem, off * _library(problem, gpu)) for problem in fill]
        counts = [_introspect.counts(LIBRARY, problem, gpu) for problem, _ in observations]
        costs = fit.fit_limited(counts, [seconds for _, seconds in observations])
        errors = [fit.error_of(c, costs, s) for c, (_, s) in zip(counts, measured, strict=False)]
        kept = fit.thin([_introspect.place(problem) for problem, _ in measured], errors, KEPT)
        kept_points = tuple((measured[i][0], float(f"{measured[i][1]:.5g}")) for i in kept)
        found.append(LibraryCosts(dtype, precision, tuple(costs), kept_points))
    return tuple(found)


def _library(problem: Problem, gpu: dict[str, Any]) -> float:
    return dict(_introspect.predictions(problem, gpu))[LIBRARY]
