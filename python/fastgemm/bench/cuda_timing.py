"""Timing on a GPU: CUDA events around one call with a cold L2 cache, or long warm runs."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import torch

from .telemetry import Telemetry
from .timing import Call, Interleaved, Timer

FLUSH_BYTES = 256 << 20  # more than any L2 cache: 50 MB on an H200
SPIN_CYCLES = 400_000  # 0.2 ms


class CudaTimer:
    """One call between two events.

    The buffer that is written first evicts what the call reads from the L2 cache. That takes the GPU 80 us; a
    kernel that only spins comes before it, since the host may need more than 100 us to prepare a call of five
    launches, and the events shall enclose the GPU's time alone.
    """

    name = "cuda events"
    method = (
        "CUDA events around one call, L2 cache cold (256 MiB written before each), the GPU busy while the host "
        "prepares it, interleaved with the baseline in one process in changing order; median over rounds, ratios "
        "within a round"
    )
    min_sample = 0.0  # a second call in the same sample would find a warm cache
    overhead = 400e-6

    def __init__(self) -> None:
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sample(self, call: Call, repeats: int) -> float:
        torch.cuda._sleep(SPIN_CYCLES)
        self._flush.zero_()
        self._start.record()
        for _ in range(repeats):
            call()
        self._end.record()
        self._end.synchronize()
        return self._start.elapsed_time(self._end) / 1e3 / repeats


class HostTimer:
    """What a call costs the host: batches of asynchronous calls, each batch followed by a synchronization."""

    name = "host"
    method = (
        "wall clock of batches of 200 asynchronous calls up to the return of the last, synchronized between "
        "batches, contenders in changing order; median over batches"
    )
    min_sample = 0.0
    overhead = 0.0
    BATCH = 200

    def __init__(self, device: str):
        self._synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None

    def sample(self, call: Call, repeats: int) -> float:
        self._synchronize()
        start = time.perf_counter()
        for _ in range(self.BATCH):
            call()
        seconds = time.perf_counter() - start
        self._synchronize()
        return seconds / self.BATCH


class BatchTimer:
    """Wall clock of a batch: what works on a stream of its own, as JAX does, is timed as what torch sees.

    A call says what it is to be made ``inside`` of, and with what its results are waited for, ``finish``.
    """

    name = "batches"
    method = (
        "wall clock of batches of warm back-to-back calls that take at least 20 ms, from an idle GPU until the "
        "last result is there, contenders in changing order; median over batches"
    )
    min_sample = 20e-3
    overhead = 100e-6

    def sample(self, call: Any, repeats: int) -> float:
        with call.inside():
            call.finish(None)
            start = time.perf_counter()
            for _ in range(repeats):
                result = call()
            call.finish(result)
            return (time.perf_counter() - start) / repeats


class WallTimer:
    """How long a user waits for a call on a GPU: what takes the host longer than the GPU shows as what it is."""

    name = "wall clock"
    method = (
        "wall clock from an idle GPU until the call has finished, interleaved with the baseline in one process in "
        "changing order; median over rounds, ratios within a round"
    )
    min_sample = 0.0  # calls are whole steps of models
    overhead = 20e-6

    def sample(self, call: Call, repeats: int) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / repeats


SUSTAINED = (
    "warm back-to-back calls, 1000*exp((1024-n)/3100) of them for a problem of size n (geometric mean of its "
    "dimensions), between CUDA events; mean of the second half"
)


def sustained_count(sizes: tuple[int, ...]) -> int:
    n = math.exp(sum(map(math.log, sizes)) / len(sizes))
    return max(2, round(1000 * math.exp((1024 - n) / 3100)))


BACK_TO_BACK_SECONDS = 1.0
BACK_TO_BACK = "warm back-to-back calls for 1 s, after as many to warm up, between CUDA events; their mean"


def back_to_back_counts(calls: Mapping[str, Call], timer: Timer) -> dict[str, int]:
    """How many calls to make, so that the second half of them takes a second."""
    counts = {}
    for name, call in calls.items():
        call()
        counts[name] = 2 * math.ceil(BACK_TO_BACK_SECONDS / timer.sample(call, 1))
    return counts


def sustained(
    calls: Mapping[str, Call], counts: Mapping[str, int], telemetry: Telemetry
) -> tuple[Interleaved, dict[str, dict[str, Any]]]:
    """Seconds of each call by the sustained method, and what the GPU did meanwhile, with joules per call."""
    result, readings = Interleaved([{}]), {}
    for name, call in calls.items():
        count = counts[name]
        call()
        torch.cuda.synchronize()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        for _ in range(count // 2):
            call()
        events[0].record()
        events[0].synchronize()  # the second half starts here, for the sensors too
        start, before = time.perf_counter(), telemetry.joules()
        for _ in range(count - count // 2):
            call()
        events[1].record()
        events[1].synchronize()
        after = telemetry.joules()
        seconds = events[0].elapsed_time(events[1]) / 1e3 / (count - count // 2)
        result.rounds[0][name] = seconds
        reading, window = telemetry.since(start), seconds * (count - count // 2)
        if reading is not None:
            # The energy counter moves every 20 to 100 ms; over a shorter run power times time is nearer.
            counted = before is not None and after is not None and window > 0.5
            energy = (after - before) / (count - count // 2) if counted else reading["power_w"] * seconds
            readings[name] = {**reading, "seconds": window, "joules_per_call": energy}
    return result, readings
