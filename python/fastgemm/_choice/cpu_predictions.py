"""The results of ``fastgemm tune`` on this processor, in the file of :mod:`.predictions`."""

from __future__ import annotations

import math
import statistics
import warnings
from dataclasses import dataclass
from typing import Any

from .. import _introspect
from . import predictions
from .predictions import KernelCosts, Problem
from .storage import versions

Key = tuple[Any, ...]  # of tuning.gemm_key


@dataclass(frozen=True)
class CpuPoint:
    """A product, its number of threads, and the seconds that each kernel took."""

    problem: Problem
    threads: int
    seconds: dict[str, float]

    def apply(self) -> None:
        _introspect.add_cpu_point(self.problem, self.threads, list(self.seconds.items()))


@dataclass(frozen=True)
class FittedCpu:
    """All results for a processor of this type."""

    when: str  # ISO 8601
    kernels: tuple[KernelCosts, ...]
    points: tuple[CpuPoint, ...]

    def apply(self) -> None:
        """Makes choices on the CPU use these results, in this process."""
        for fit in self.kernels:
            _introspect.set_cpu_costs(fit.kernel, fit.dtype, fit.costs)
        for point in self.points:  # their corrections depend on the constants
            point.apply()

    def merged_into(self, other: FittedCpu | None) -> FittedCpu:
        """A copy, with the results of another set for types that this one lacks."""
        if other is None:
            return self
        dtypes = {fit.dtype for fit in self.kernels}
        kernels = tuple(fit for fit in other.kernels if fit.dtype not in dtypes)
        points = tuple(point for point in other.points if point.problem[0] not in dtypes)
        return FittedCpu(self.when, kernels + self.kernels, points + self.points)

    def as_json(self) -> dict[str, Any]:
        return {
            "terms": _terms(),
            "when": self.when,
            "kernels": [[fit.kernel, fit.dtype, list(fit.costs)] for fit in self.kernels],
            "points": [[list(point.problem), point.threads, point.seconds] for point in self.points],
        }


def _terms() -> str:
    """The version and counts that constants belong to. They are invalid for a version with other counts."""
    return f"{_introspect.build_info()['version']}: {' '.join(_introspect.CPU_COUNTS)}"


def environment() -> str:
    """Name of this processor's set."""
    return f"cpu {_introspect.build_info()['cpu_model']}|{versions()}"


def _constants(values: list[Any]) -> tuple[float, ...]:
    found = tuple(float(value) for value in values)
    if (
        len(found) != len(_introspect.CPU_COUNTS)
        or not all(math.isfinite(x) and x >= 0 for x in found)
        or not any(found)
    ):
        raise ValueError(f"not the constants of a prediction: {values!r}")
    return found


def learn(key: Key, seconds: dict[str, float]) -> None:
    """Corrects predictions of products that are similar to one that autotune measured, by the ratios of its times:
    other load on the machine slows all kernels alike. Only predicted products can be corrected."""
    op, device, dtype, _, precision, a, b, accumulates, threads, *sizes = key
    if (op, device, precision, accumulates) != ("gemm", "cpu", "ieee", False) or min(sizes) < 1:
        return
    problem: Problem = (dtype, precision, sizes[0], sizes[1], sizes[2], sizes[3], a, b)
    try:
        expected = dict(_introspect.cpu_predictions(problem, threads))
    except ValueError:  # a type that is not predicted
        return
    times = {name: spent for name, spent in seconds.items() if name in expected}
    if times:
        busy = statistics.median(spent / expected[name] for name, spent in times.items())
        _introspect.add_cpu_point(problem, threads, [(name, spent / busy) for name, spent in times.items()])


def _point(entry: list[Any]) -> CpuPoint:
    """Raises TypeError or ValueError for other data."""
    problem, threads, seconds = entry
    dtype, precision, *sizes, a, b = problem
    made = (dtype, precision, *map(int, sizes), bool(a), bool(b))
    if len(sizes) != 4 or min(made[2:6]) < 1 or int(threads) < 1:
        raise ValueError(f"not a measured problem: {entry!r}")
    times = {str(name): float(spent) for name, spent in seconds.items()}
    if not all(0 < spent < math.inf for spent in times.values()):
        raise ValueError(f"not measured times: {entry!r}")
    _introspect.cpu_place(made, int(threads))  # checks the rest
    return CpuPoint(made, int(threads), times)


def _parse(entry: dict[str, Any]) -> FittedCpu:
    """Raises KeyError, TypeError or ValueError for other data."""
    kernels = tuple(
        KernelCosts(kernel, dtype, _constants(costs)) for kernel, dtype, costs in entry["kernels"]
    )
    for fit in kernels:
        _introspect.cpu_costs(fit.kernel, fit.dtype)  # checks the names
    return FittedCpu(str(entry["when"]), kernels, tuple(_point(point) for point in entry["points"]))


def read() -> FittedCpu | None:
    """The file's set for this processor and these versions. Raises OSError or ValueError."""
    with predictions.damage():
        entry = predictions.sets(predictions.file()).get(environment())
        return _parse(entry) if entry is not None and entry["terms"] == _terms() else None


def load() -> int:
    """Applies the file's set for this processor; returns the number of sets, 0 or 1."""
    try:
        fitted = read()
        if fitted:
            fitted.apply()
        return fitted is not None
    except (OSError, ValueError) as error:
        what = f"the results of fastgemm tune for this processor in {predictions.file()}"
        text = f"fastgemm: ignoring {what}: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return 0


def save(fitted: FittedCpu) -> bool:
    """Whether the set was written to the file; if not, there was a warning."""
    return predictions.write(environment(), fitted.as_json())


def known() -> FittedCpu | None:
    """The file's set for this processor; None if there is none, or if the file cannot be read."""
    try:
        return read()
    except (OSError, ValueError):
        return None


def forget() -> bool:
    """Removes this processor's set from the file and from this process; returns whether there was one. Raises
    OSError."""
    there = predictions.remove(environment())
    _introspect.reset_cpu_costs()
    return there
