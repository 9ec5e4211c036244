"""Times the library and the kernels that may be the fastest, problem after problem, until the time is up."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from .. import _introspect
from .._choice.predictions import Problem
from .._typing import Precision
from ..bench.cuda_timing import CudaTimer
from ..bench.problems import ARITHMETIC, Call, Gemm, Instance, instantiate
from ..bench.session import REFUSAL
from ..bench.timing import Timer, interleave
from .problems import MOST_BYTES, SERIES, problems

LIBRARY = "library"
LIBRARIES = ("torch", "cublaslt_1")  # rows of the library: the first one that takes the problem is timed
# Kernels, and precisions, that are timed beside IEEE products.
SPLIT: tuple[Precision, ...] = ("bf16x3", "fp16x3")
NEAR, FAR, FAR_EVERY = 2.5, 10.0, 4  # times the least prediction; every fourth problem has the wider limit
HOPELESS = 4.0  # times as slow as the fastest in its first sample: no more follow
BUDGET, LEAST_ROUNDS, MOST_ROUNDS = 0.004, 4, 8  # seconds and samples of each kernel
FEW = 5  # fewest points of a kernel for a correction of its predictions during the run

# Times the named kernels that take the problem: seconds by name.
Stopwatch = Callable[[Problem, Collection[str]], dict[str, float]]
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Point:
    """A problem, and the seconds that each kernel took."""

    problem: Problem
    seconds: dict[str, float]


@dataclass(frozen=True)
class Target:
    """The GPU that is measured."""

    name: str
    properties: dict[str, Any]  # with its number
    stopwatch: Stopwatch
    most_bytes: int = MOST_BYTES
    clock: Callable[[], float] = time.monotonic


def predicted(problem: Problem, gpu: dict[str, Any]) -> dict[str, float]:
    """Seconds by kernel, SPLIT included, and of the library."""
    found = dict(_introspect.predictions(problem, gpu))
    if problem[:2] == ("float32", "ieee"):
        for name in SPLIT:
            beside = dict(_introspect.predictions(("float32", name, *problem[2:]), gpu))
            found |= {name: beside[name]} if name in beside else {}
    return found


class _Corrections:
    """Corrections of predictions during the run: the median of measured / predicted by kernel and type. A kernel
    with wrong constants (of another GPU) is then still timed."""

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, str], list[float]] = defaultdict(list)

    def add(self, point: Point, expected: dict[str, float]) -> None:
        for name, seconds in point.seconds.items():
            self._ratios[name, point.problem[0]].append(seconds / expected[name])

    def of(self, kernel: str, dtype: str) -> float:
        ratios = self._ratios[kernel, dtype]
        return statistics.median(ratios) if len(ratios) >= FEW else 1.0


def _candidates(expected: dict[str, float], within: float) -> list[str]:
    """The kernels to time: the library, whose prediction may be only a bound, and those near the fastest."""
    least = min(s for name, s in expected.items() if name not in (LIBRARY, *SPLIT))
    return [name for name, s in expected.items() if name == LIBRARY or s <= within * least]


def collect(target: Target, seconds: float, dtypes: Sequence[str], progress: Progress) -> list[Point]:
    """Measures points of the series of these types, in turn, for about ``seconds`` seconds."""
    series = [(dtype, precision) for dtype, precision in SERIES if dtype in dtypes]
    sources = [problems(*names, target.properties, most_bytes=target.most_bytes) for names in series]
    points: list[Point] = []
    corrections, start, rounds = _Corrections(), target.clock(), 0
    while True:
        within = NEAR if (rounds + 1) % FAR_EVERY else FAR
        for (dtype, precision), source in zip(series, sources, strict=True):
            spent = target.clock() - start
            if spent >= seconds:
                return points
            progress(
                f"{dtype if precision == 'ieee' else precision}, {len(points)} problems", spent / seconds
            )
            problem = next(source)
            expected = predicted(problem, target.properties)
            corrected = {name: s * corrections.of(name, dtype) for name, s in expected.items()}
            taken = target.stopwatch(problem, _candidates(corrected, within))
            if taken:
                points.append(Point(problem, taken))
                corrections.add(points[-1], expected)
        rounds += 1


class DeviceStopwatch:
    """Times kernels in turn. On the current GPU with a cold L2: medians; on a CPU minima, since other programs
    only add time."""

    def __init__(self, device: str = "cuda", timer: Timer | None = None) -> None:
        self._device, self._timer = device, timer or CudaTimer()

    def __call__(self, problem: Problem, kernels: Collection[str]) -> dict[str, float]:
        dtype, precision, batch, m, n, k, *transposed = problem
        layout = "".join("NT"[t] for t in transposed)
        try:
            asked = cast("Precision", precision) if dtype == "float32" else None  # SERIES has only these
            made = Gemm(m, n, k, ARITHMETIC[dtype], layout, batch, asked)
            instance = instantiate(made, device=self._device)
        except torch.OutOfMemoryError:
            return {}  # another process has the memory
        calls = {name: call for name in kernels if (call := self._call(instance, name))}
        first = {name: self._timer.sample(call, 1) for name, call in calls.items()}
        least = min(first.values(), default=0.0)
        near = {name: call for name, call in calls.items() if first[name] <= HOPELESS * least}
        if not near:
            return first
        samples = interleave(
            near,
            budget=BUDGET,
            estimates=first,
            min_rounds=LEAST_ROUNDS,
            max_rounds=MOST_ROUNDS,
            timer=self._timer,
        )
        summaries = {name: samples.seconds(name) for name in near}
        on_cpu = self._device == "cpu"
        return first | {name: s.least if on_cpu else s.median for name, s in summaries.items()}

    @staticmethod
    def _call(instance: Instance, kernel: str) -> Call | None:
        """A call that has run once; None where the kernel does not take the problem."""
        if kernel in SPLIT:
            assert isinstance(instance.problem, Gemm)
            instance = replace(instance, problem=replace(instance.problem, precision=kernel))
        for name in LIBRARIES if kernel == LIBRARY else (kernel,):
            call = instance.ours(kernel=name)
            try:
                call()
                return call
            except torch.OutOfMemoryError:
                continue
            except RuntimeError as refusal:
                if REFUSAL not in str(refusal):
                    raise
        return None
