"""Timing calls against each other.

Two cores of a shared machine drift by tens of per cent within a minute, so two medians taken one after the
other cannot be compared to a few per cent. The calls of one problem therefore run in turn, round after round, in
changing order, and reports have the median of the ratios within a round."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Call = Callable[[], object]
SLOW = 0.4  # seconds: longer calls are timed twice and no more


class Timer(Protocol):
    """How one sample is taken; the CPU's is below, those of a GPU are in cuda_timing."""

    name: str
    method: str
    min_sample: float  # seconds: shorter calls are repeated within a sample until it lasts this long
    overhead: float  # seconds that a sample costs besides the call

    def sample(self, call: Call, repeats: int) -> float:
        """Seconds per call, over ``repeats`` calls."""
        ...


class CpuTimer:
    """Wall-clock time; a CPU op has finished when it returns."""

    name = "cpu"
    method = (
        "wall clock, interleaved with the baseline in one process in changing order, warm caches; "
        "median over rounds, ratios within a round"
    )
    min_sample: float = 200e-6
    overhead: float = 0.0

    def sample(self, call: Call, repeats: int) -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - start) / repeats


@dataclass(frozen=True)
class Summary:
    """Median and quartiles of samples; files store the samples only on request."""

    median: float
    q1: float
    q3: float
    least: float = field(default=0.0, compare=False)
    samples: tuple[float, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        if len(values) == 1:
            return cls(values[0], values[0], values[0], values[0], tuple(values))
        q1, _, q3 = statistics.quantiles(values, n=4, method="inclusive")
        return cls(statistics.median(values), q1, q3, min(values), tuple(values))

    def scaled(self, factor: float) -> Summary:
        """The summary of ``factor`` times the samples."""
        median, q1, q3, least = (factor * value for value in (self.median, self.q1, self.q3, self.least))
        return Summary(median, q1, q3, least, tuple(factor * value for value in self.samples))

    @property
    def count(self) -> int:
        return len(self.samples)

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles, as a share of the median."""
        return (self.q3 - self.q1) / 2 / self.median if self.median else 0.0


@dataclass
class Interleaved:
    """Samples by round: ``rounds[r][name]`` is what ``name`` took in round r, if it took part."""

    rounds: list[dict[str, float]] = field(default_factory=list)

    def has(self, name: str) -> bool:
        return any(name in r for r in self.rounds)

    def seconds(self, name: str) -> Summary:
        return Summary.of([r[name] for r in self.rounds if name in r])

    def speedup(self, name: str, over: str) -> Summary:
        """How many times faster ``name`` is than ``over``, round by round."""
        return Summary.of([r[over] / r[name] for r in self.rounds if name in r and over in r])


def interleave(
    calls: Mapping[str, Call],
    *,
    budget: float = 0.5,
    estimates: Mapping[str, float] | None = None,
    min_rounds: int = 4,
    max_rounds: int = 64,
    min_sample: float | None = None,
    rounds: int | None = None,
    timer: Timer | None = None,
    on_sample: Callable[[float], None] = lambda share: None,
) -> Interleaved:
    """Runs the calls in turn, each for about ``budget`` seconds in all.

    Args:
        calls: what to time, by name.
        budget: seconds for each call; one that takes longer still runs ``min_rounds`` times, above 0.4 s twice.
        estimates: seconds a call takes, where known from an earlier run; calls whose estimate is long are not
            run again just to warm up.
        min_rounds: least number of samples of a call; rounded down to a power of two.
        max_rounds: largest number of samples.
        min_sample: shorter calls are repeated within a sample until it lasts this long; default: the timer's.
        rounds: exactly this many samples of each call, whatever the budget.
        timer: how a sample is taken.
        on_sample: receives the share of the work that is done, 0 to 1.
    """
    timer = timer or CpuTimer()
    min_sample = timer.min_sample if min_sample is None else min_sample
    estimates = dict(estimates or {})
    for name, call in calls.items():
        if name not in estimates:
            estimates[name] = timer.sample(call, 1)
        if estimates[name] < 0.05:  # also warms up: caches, page tables, torch's thread pool
            estimates[name] = min(timer.sample(call, 1) for _ in range(3))

    def samples_of(t: float) -> int:
        if rounds is not None:
            return rounds
        least = min_rounds if t < SLOW else 2
        count = max(budget / max(t + timer.overhead, min_sample), least)
        return 1 << math.floor(math.log2(max(min(count, max_rounds), 1.0)))

    counts = {name: samples_of(estimates[name]) for name in calls}
    repeats = {name: max(1, math.ceil(min_sample / max(estimates[name], 1e-9))) for name in calls}
    total = max(counts.values())
    names = list(calls)
    expected = sum(counts[n] * repeats[n] * estimates[n] for n in names)
    done = 0.0
    result = Interleaved()
    for r in range(total):
        # A call with fewer samples takes part in every 2^j-th round, so any two calls have as many rounds in
        # common as the rarer one has. The order changes every two rounds, forwards and backwards, since a
        # call affects the next one, for instance through address translation. The direction follows the Thue-Morse
        # sequence, so that every 2^j-th round, too, has both directions equally often.
        order = random.Random(r // 2).sample(names, len(names))
        if r.bit_count() % 2:
            order.reverse()
        taken: dict[str, float] = {}
        for name in order:
            if r % (total // counts[name]):
                continue
            taken[name] = timer.sample(calls[name], repeats[name])
            done += repeats[name] * estimates[name]
            on_sample(min(1.0, done / expected))
        result.rounds.append(taken)
    return result


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values)) if values else math.nan
