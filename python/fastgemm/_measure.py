"""The clocks of autotune, and how it shares its time among the kernels of a problem."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def wall_clock(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def gpu_clock(device: torch.device) -> Callable[[Callable[[], object]], float]:
    """Seconds of a call on the GPU, its L2 cache filled with other data before."""
    properties = torch.cuda.get_device_properties(device)
    other_data = torch.empty(4 * properties.L2_cache_size, dtype=torch.int8, device=device)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def clock(call: Callable[[], object]) -> float:
        torch.cuda._sleep(
            400_000
        )  # 0.2 ms in which the host prepares the call, so that the events do not see it
        other_data.zero_()
        begin.record()
        call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3

    return clock


def time_all(
    calls: dict[str, Callable[[], object]], budget: float, clock: Callable[[Callable[[], object]], float]
) -> dict[str, list[float]]:
    """Times the calls in turn, in alternating order, for about ``budget`` seconds; hopeless ones run once."""
    times: dict[str, list[float]] = {}
    for name, call in calls.items():
        call()
        times[name] = [clock(call)]
    best = min(t[0] for t in times.values())
    close = [name for name in calls if times[name][0] < 3 * best]
    end = time.perf_counter() + budget
    rounds = 0
    while rounds < 5 or (time.perf_counter() < end and rounds < 200):
        for name in close if rounds % 2 else reversed(close):
            times[name].append(clock(calls[name]))
        rounds += 1
    return times


def accepted_calls(calls: dict[str, Callable[[], object]]) -> dict[str, Callable[[], object]]:
    """Those whose kernels take the problem. Each is called once."""

    def runs(call: Callable[[], object]) -> bool:
        try:
            call()
        except RuntimeError as refusal:
            if "cannot run here" not in str(refusal):
                raise
            return False
        return True

    return {name: call for name, call in calls.items() if runs(call)}
