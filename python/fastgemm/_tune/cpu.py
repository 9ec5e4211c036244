"""``fastgemm tune`` on a CPU: times torch and every kernel that may be the fastest, on one thread and on all."""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

import torch

from .. import _introspect
from .._choice import fit
from .._choice.cpu_predictions import CpuPoint, FittedCpu
from .._choice.predictions import KernelCosts, Problem
from ..bench.environment import using_threads
from ..bench.timing import CpuTimer
from .measuring import DeviceStopwatch, Progress, Stopwatch
from .problems import SIZE_OF, log_uniform

LONGEST = 8e-3  # seconds that the fastest kernel may be predicted to take
MOST_BYTES = 1 << 28  # of operands and result
NEAR, FAR, FAR_EVERY = 2.5, 10.0, 4  # times the least prediction; every fourth problem has the wider limit
ENOUGH = 30  # fewest points for a fit of a kernel
HOLD_OUT = 5  # every fifth point is held out and shows how good choices are
FEW = 5  # fewest points for a scale of a kernel's constants
TORCH = "torch"
WORTH_LEAVING = 1.08  # a kernel is chosen if predicted torch time / kernel time is above (core/can_run.cpp)


@dataclass(frozen=True)
class CpuTarget:
    """The processor that is measured."""

    name: str
    stopwatch: Stopwatch
    threads: tuple[int, ...]  # numbers that products run on
    clock: Callable[[], float] = field(default=time.monotonic)


def cpu_at_hand() -> CpuTarget:
    threads = tuple(sorted({1, torch.get_num_threads()}))
    return CpuTarget(_introspect.build_info()["cpu_model"], DeviceStopwatch("cpu", CpuTimer()), threads)


def _sizes(draw: random.Random, kind: int) -> tuple[int, ...]:
    """Batch, m, n, k: out of four, one has large sides, one is thin along m, n or k, one has any shape, and one is
    a batch or a square."""
    if kind == 0:
        return 1, *(log_uniform(draw, 64, 4096) for _ in range(3))
    if kind == 1:
        sizes = [log_uniform(draw, 32, 8192) for _ in range(3)]
        sizes[draw.randrange(3)] = log_uniform(draw, 1, 32)
        return 1, *sizes
    if kind == 2:
        return 1, *(log_uniform(draw, 4, 2048) for _ in range(3))
    if draw.random() < 0.5:
        return 1, *[log_uniform(draw, 16, 2048)] * 3
    return log_uniform(draw, 2, 64), *(log_uniform(draw, 4, 512) for _ in range(3))


def problems(dtype: str, threads: Sequence[int], *, seed: int = 0) -> Iterator[tuple[Problem, int]]:
    """Endless series of problems and their threads; the same for the same seed and processor."""
    draw = random.Random(f"{seed} {dtype}")
    at = 0
    while True:
        on = threads[at // 4 % len(threads)]
        batch, m, n, k = _sizes(draw, at % 4)
        problem: Problem = (dtype, "ieee", batch, m, n, k, draw.random() < 0.3, draw.random() < 0.4)
        moved = batch * ((m + n) * k * SIZE_OF[dtype] + m * n * max(SIZE_OF[dtype], 4))
        if moved <= MOST_BYTES and min(predicted(problem, on).values()) <= LONGEST:
            at += 1
            yield problem, on


def predicted(problem: Problem, threads: int) -> dict[str, float]:
    """Seconds by kernel, and of torch."""
    return dict(_introspect.cpu_predictions(problem, threads))


def collect(target: CpuTarget, seconds: float, dtypes: Sequence[str], progress: Progress) -> list[CpuPoint]:
    """Measures points of these types, in turn, for about ``seconds`` seconds."""
    sources = {dtype: problems(dtype, target.threads) for dtype in dtypes}
    points: list[CpuPoint] = []
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    start, rounds = target.clock(), 0
    while True:
        within = NEAR if (rounds + 1) % FAR_EVERY else FAR
        for dtype, source in sources.items():
            spent = target.clock() - start
            if spent >= seconds:
                return points
            progress(f"{dtype}, {len(points)} problems", spent / seconds)
            problem, threads = next(source)
            expected = predicted(problem, threads)
            # Constants of another processor may be far off, so the points measured so far correct them.
            off = {name: statistics.median(ratios[name, dtype] or [1.0]) for name in expected}
            least = min(s * off[name] for name, s in expected.items())
            near = [name for name, s in expected.items() if s * off[name] <= within * least or name == TORCH]
            with using_threads(threads):
                taken = target.stopwatch(problem, near)
            if taken:
                points.append(CpuPoint(problem, threads, {n: float(f"{s:.4g}") for n, s in taken.items()}))
            for name, s in taken.items():
                ratios[name, dtype].append(s / expected[name])
        rounds += 1


def fit_kernels(points: Sequence[CpuPoint]) -> tuple[KernelCosts, ...]:
    """Constants of every kernel for the types that were measured. A constant that affects few points stays near
    its old value; a kernel with few points keeps its constants, scaled."""
    counts: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for point in points:
        for name, spent in point.seconds.items():
            key = name, point.problem[0]
            counts[key].append(_introspect.cpu_counts(name, point.problem, point.threads))
            seconds[key].append(spent)
    found = []
    for (name, dtype), measured in counts.items():
        old, times = _introspect.cpu_costs(name, dtype), seconds[name, dtype]
        if old is None or len(times) < FEW:
            continue
        if len(times) < ENOUGH:
            off = statistics.median(s / fit.predict(c, old) for c, s in zip(measured, times, strict=True))
            costs = [off * cost for cost in old]
        else:
            said = [[cost and (i == j) / cost for j in range(len(old))] for i, cost in enumerate(old) if cost]
            costs = fit.fit(measured + said, times + [1.0] * len(said))
        found.append(KernelCosts(name, dtype, tuple(float(f"{cost:.4g}") for cost in costs)))
    return tuple(found)


def fitted(points: Sequence[CpuPoint]) -> FittedCpu:
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return FittedCpu(when, fit_kernels(points), tuple(points))


def order_of(point: CpuPoint) -> list[str]:
    """The kernels in the order in which ``level=None`` would take them."""
    seconds = predicted(point.problem, point.threads)
    return sorted(seconds, key=lambda name: seconds[name] / (WORTH_LEAVING if name == TORCH else 1))
