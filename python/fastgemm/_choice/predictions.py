"""The results of ``fastgemm tune`` on GPUs, and the file that stores them.

The file holds one set per environment (GPU or processor, versions of torch and cuBLAS, kernel table). It lies
beside the cache of :mod:`fastgemm.tuning` and is written in the same way. If it cannot be read or written, it is
ignored with one warning. :mod:`.cpu_predictions` reads and writes the sets of processors."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .. import _introspect
from . import storage
from .storage import damage, versions

FORMAT = 1
WHAT = "file of fastgemm tune"
NONE: dict[str, Any] = {}  # sets
# (dtype, precision, batch, m, n, k, a transposed, b transposed)
Problem = tuple[str, str, int, int, int, int, bool, bool]
# The properties of a GPU that predictions use, without its number, which follows from its name.
PROPERTIES = {
    "capability": int,
    "multiprocessors": int,
    "shared_bytes": int,
    "l2_bytes": int,
    "clock": float,
    "bandwidth": float,
    "wgmma": bool,
}


@dataclass(frozen=True)
class KernelCosts:
    """The constants of a kernel for a type (csrc/cuda/gemm/predict/predict.h)."""

    kernel: str
    dtype: str
    costs: tuple[float, ...]


@dataclass(frozen=True)
class LibraryCosts:
    """The library's model for a type and precision, and the measured points beside it."""

    dtype: str
    precision: str
    costs: tuple[float, ...]
    points: tuple[tuple[Problem, float], ...]


@dataclass(frozen=True)
class Fitted:
    """All results for a GPU: its name, as ``_introspect.gpu()`` gives it, and its properties at that time."""

    gpu: str
    properties: dict[str, Any]
    when: str  # ISO 8601
    points: int  # problems that were measured
    kernels: tuple[KernelCosts, ...]
    library: tuple[LibraryCosts, ...]

    def apply(self) -> None:
        """Makes choices on GPUs of this name use these results, in this process."""
        for fit in self.kernels:
            _introspect.set_costs(self.gpu, fit.kernel, fit.dtype, fit.costs)
        for of in self.library:
            _introspect.set_library(self.gpu, of.dtype, of.precision, of.costs, of.points, self.properties)

    def merged_into(self, other: Fitted | None) -> Fitted:
        """A copy, with the results of another set for types that this one lacks."""
        if other is None:
            return self
        dtypes = {fit.dtype for fit in self.kernels} | {fit.dtype for fit in self.library}
        kernels = tuple(fit for fit in other.kernels if fit.dtype not in dtypes)
        library = tuple(fit for fit in other.library if fit.dtype not in dtypes)
        count = self.points + sum(len(fit.points) for fit in library)
        return Fitted(
            self.gpu, self.properties, self.when, count, kernels + self.kernels, library + self.library
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "terms": terms(_introspect.COUNTS),
            "properties": {name: self.properties[name] for name in PROPERTIES},
            "when": self.when,
            "points": self.points,
            "kernels": [[fit.kernel, fit.dtype, list(fit.costs)] for fit in self.kernels],
            "library": [
                [fit.dtype, fit.precision, list(fit.costs), [[list(p), s] for p, s in fit.points]]
                for fit in self.library
            ],
        }


def terms(counts: Sequence[str]) -> str:
    """The version and the counts that constants belong to. They are invalid for a version with other counts."""
    return f"{_introspect.build_info()['version']}: {' '.join(counts)}"


class Results(Protocol):
    """One set of the file."""

    def apply(self) -> None: ...
    def as_json(self) -> dict[str, Any]: ...


def file() -> Path:
    """The path of the file."""
    return storage.folder() / storage.PREDICTIONS


def environment(gpu: str) -> str:
    """Name of a GPU's set."""
    return f"gpu {gpu}|{versions()}"


def constants(values: list[Any], counts: Sequence[str]) -> tuple[float, ...]:
    found = tuple(float(value) for value in values)
    if len(found) != len(counts) or not all(math.isfinite(x) and x >= 0 for x in found):
        raise ValueError(f"not the constants of a prediction: {values!r}")
    return found


def kernel_costs(entry: dict[str, Any], counts: Sequence[str]) -> tuple[KernelCosts, ...]:
    return tuple(
        KernelCosts(kernel, dtype, constants(costs, counts)) for kernel, dtype, costs in entry["kernels"]
    )


def measured(values: list[Any], seconds: Collection[float], threads: int = 1) -> Problem:
    """A problem from JSON. Raises TypeError or ValueError for other data."""
    dtype, precision, *sizes, a, b = values
    made = (dtype, precision, *map(int, sizes), bool(a), bool(b))
    valid = len(sizes) == 4 and min(*made[2:6], threads) >= 1
    if not valid or not all(0 < spent < math.inf for spent in seconds):
        raise ValueError(f"not a measured problem: {values!r}, {seconds!r}, {threads!r}")
    return made


def _point(values: list[Any], seconds: float) -> tuple[Problem, float]:
    problem = measured(values, [seconds])
    _introspect.place(problem)  # checks the rest
    return problem, float(seconds)


def _parse(gpu: str, entry: dict[str, Any]) -> Fitted:
    """Raises KeyError, TypeError or ValueError for other data."""
    properties = {name: kind(entry["properties"][name]) for name, kind in PROPERTIES.items()}
    if not (properties["multiprocessors"] >= 1 and properties["clock"] > 0 and properties["bandwidth"] > 0):
        raise ValueError(f"not the properties of a GPU: {entry['properties']!r}")
    counts = _introspect.COUNTS
    kernels = kernel_costs(entry, counts)
    for fit in kernels:
        _introspect.costs(fit.kernel, fit.dtype, properties)  # checks the names
    library = tuple(
        LibraryCosts(dtype, precision, constants(costs, counts), tuple(_point(*point) for point in points))
        for dtype, precision, costs, points in entry["library"]
    )
    for of in library:
        _introspect.place((of.dtype, of.precision, 1, 1, 1, 1, False, False))
    return Fitted(gpu, properties, str(entry["when"]), int(entry["points"]), kernels, library)


def sets(path: Path) -> dict[str, Any]:
    """Returns the sets of the file, unchecked, by environment. If there is no file, it returns {}. Raises
    OSError or ValueError."""
    return storage.read_sets(path, (FORMAT,), WHAT)


def read() -> list[Fitted]:
    """The file's sets for GPUs and these versions. Raises OSError or ValueError."""
    found, here, valid = [], versions(), terms(_introspect.COUNTS)
    for where, entry in sets(file()).items():
        gpu, _, of = where.partition("|")
        with damage(WHAT):
            if of == here and gpu.startswith("gpu ") and entry["terms"] == valid:
                found.append(_parse(gpu.removeprefix("gpu "), entry))
    return found


def load() -> int:
    """Applies the file's sets of these versions, for all GPUs, also absent ones; returns their number."""
    return apply_all(read, "fastgemm tune")


def apply_all(read: Callable[[], Sequence[Results]], whose: str) -> int:
    try:
        found = read()
        for fitted in found:
            fitted.apply()
        return len(found)
    except (OSError, ValueError) as error:
        storage.warn(f"ignoring the results of {whose} in {file()}: {error}")
        return 0


def save(fitted: Fitted) -> bool:
    """Whether it was written to the file; if not, there was a warning."""
    return write(environment(fitted.gpu), fitted)


def write(where: str, fitted: Results) -> bool:
    """Whether a set was written to the file; if not, there was a warning."""
    try:
        storage.change(file(), FORMAT, sets, lambda found: {**found, where: fitted.as_json()}, NONE)
    except OSError as error:
        storage.warn(f"cannot write the results of tuning to {file()}: {error}")
        return False
    return True


def known(gpu: str) -> Fitted | None:
    """The file's set for a GPU; None if there is none, or if the file cannot be read."""
    try:
        return next((fitted for fitted in read() if fitted.gpu == gpu), None)
    except (OSError, ValueError):
        return None


def forget(gpu: str) -> bool:
    """Removes a GPU's set from the file and from this process; returns whether there was one. Raises OSError."""
    there = remove(environment(gpu))
    _introspect.reset_predictions()
    load()  # those of other GPUs
    return there


def remove(where: str) -> bool:
    """Removes a set from the file; returns whether it was there. Raises OSError."""
    try:
        there = file().exists() and where in sets(file())
    except ValueError:
        return False
    if there:
        storage.change(
            file(),
            FORMAT,
            sets,
            lambda found: {of: entry for of, entry in found.items() if of != where},
            NONE,
        )
    return there
