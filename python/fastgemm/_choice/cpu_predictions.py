"""The results of ``fastgemm tune`` on this processor, in the file of :mod:`.predictions`."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from .. import _introspect
from . import predictions
from .predictions import KernelCosts, Problem, terms
from .storage import damage, versions

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
            "terms": terms(_introspect.CPU_COUNTS),
            "when": self.when,
            "kernels": [[fit.kernel, fit.dtype, list(fit.costs)] for fit in self.kernels],
            "points": [[list(point.problem), point.threads, point.seconds] for point in self.points],
        }


def environment() -> str:
    """Name of this processor's set."""
    return f"cpu {_introspect.build_info()['cpu_model']}|{versions()}"


def learn(key: Key, seconds: dict[str, float]) -> None:
    """Corrects predictions of products that are similar to one that autotune measured. Only the ratios of its
    times are used: other load on the machine slows all kernels equally. Only predicted products can be
    corrected."""
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


def _point(values: list[Any], threads: int, seconds: dict[str, float]) -> CpuPoint:
    """Raises AttributeError, TypeError or ValueError for other data."""
    times = {str(name): float(spent) for name, spent in seconds.items()}
    problem = predictions.measured(values, times.values(), int(threads))
    _introspect.cpu_place(problem, int(threads))  # checks the rest
    return CpuPoint(problem, int(threads), times)


def _parse(entry: dict[str, Any]) -> FittedCpu:
    """Raises KeyError, TypeError or ValueError for other data."""
    kernels = predictions.kernel_costs(entry, _introspect.CPU_COUNTS)
    for fit in kernels:
        _introspect.cpu_costs(fit.kernel, fit.dtype)  # checks the names
        if not any(fit.costs):
            raise ValueError(f"not the constants of a prediction: {fit.costs!r}")
    return FittedCpu(str(entry["when"]), kernels, tuple(_point(*point) for point in entry["points"]))


def read() -> FittedCpu | None:
    """The file's set for this processor and these versions. Raises OSError or ValueError."""
    with damage(predictions.WHAT):
        entry = predictions.sets(predictions.file()).get(environment())
        if entry is None or entry["terms"] != terms(_introspect.CPU_COUNTS):
            return None
        return _parse(entry)


def load() -> int:
    """Applies the file's set for this processor; returns the number of sets, 0 or 1."""
    return predictions.apply_all(
        lambda: [fitted] if (fitted := read()) else [], "fastgemm tune for this processor"
    )


def save(fitted: FittedCpu) -> bool:
    """Whether the set was written to the file; if not, there was a warning."""
    return predictions.write(environment(), fitted)


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
