"""Long warm runs on a GPU, each with sensor readings."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import torch
from fastgemm.bench.session import Sensors
from fastgemm.bench.timing import Call, Interleaved, Timer

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
    """The number of calls of each contender: so many that the second half of them takes a second."""
    counts = {}
    for name, call in calls.items():
        call()
        counts[name] = 2 * math.ceil(BACK_TO_BACK_SECONDS / timer.sample(call, 1))
    return counts


def sustained(
    calls: Mapping[str, Call], counts: Mapping[str, int], sensors: Sensors
) -> tuple[Interleaved, dict[str, dict[str, Any]]]:
    """Seconds of each call by the sustained method, and the GPU's sensor readings with joules per call."""
    result, readings = Interleaved([{}]), {}
    for name, call in calls.items():
        count = counts[name]
        call()
        torch.cuda.synchronize()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        for _ in range(count // 2):
            call()
        events[0].record()
        events[0].synchronize()  # the second half starts here, also for the sensors
        start, before = time.perf_counter(), sensors.joules()
        for _ in range(count - count // 2):
            call()
        events[1].record()
        events[1].synchronize()
        after = sensors.joules()
        seconds = events[0].elapsed_time(events[1]) / 1e3 / (count - count // 2)
        result.rounds[0][name] = seconds
        reading, window = sensors.since(start), seconds * (count - count // 2)
        if reading is not None:
            # The energy counter is updated every 20 to 100 ms, so power times time is better for short runs.
            counted = before is not None and after is not None and window > 0.5
            energy = (after - before) / (count - count // 2) if counted else reading["power_w"] * seconds
            readings[name] = {**reading, "seconds": window, "joules_per_call": energy}
    return result, readings
