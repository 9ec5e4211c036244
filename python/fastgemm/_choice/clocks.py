"""The clocks of autotune, and how it shares its time among the kernels of a problem."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from numbers import Real

import torch

from .. import _introspect

Call = Callable[[], object]
NEAR = 3.0  # a call is timed only once if it takes more than this many times the fastest
HOPELESS = 10.0  # a call is stopped if it takes this many times the fastest one before it
# Seconds that any call may take: a first run maps memory, and waits for threads on a busy machine.
PATIENCE = 0.1
LATE, REFUSAL = "its time limit is over", "cannot run here"  # parts of the messages of an op's exceptions


def check_seconds(argument: str, seconds: object) -> None:
    """Raises TypeError for seconds that are no number."""
    if not isinstance(seconds, Real) or isinstance(seconds, bool):
        raise TypeError(f"{argument} must be a number of seconds, got {type(seconds).__name__}")


def wall_clock(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def gpu_clock(device: torch.device, calls: int = 1) -> Callable[[Call], float]:
    """Seconds of a call on the GPU, whose L2 cache was filled with other data before; the mean of ``calls`` in a
    row."""
    properties = torch.cuda.get_device_properties(device)
    other_data = torch.empty(4 * properties.L2_cache_size, dtype=torch.int8, device=device)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def clock(call: Call) -> float:
        # At least 0.2 ms in which the host prepares the calls, so that the events do not see it.
        torch.cuda._sleep(400_000 + 100_000 * calls)
        other_data.zero_()
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / calls

    return clock


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """In this thread, products on the CPU raise RuntimeError once the block has taken this many seconds."""
    _introspect.set_time_limit(seconds)
    try:
        yield
    finally:
        _introspect.set_time_limit(math.inf)


def first_runs(calls: dict[str, Call], *, on_cpu: bool) -> tuple[dict[str, Call], dict[str, list[float]]]:
    """Runs each call once. Returns the calls whose kernels take the problem, and the times of hopeless calls.

    A call is hopeless if it takes ``HOPELESS`` times as long as the fastest call before it. On the CPU such a call
    is stopped, if its kernel allows it, and has no time. On a GPU, calls return before they are done."""
    hopeful: dict[str, Call] = {}
    hopeless: dict[str, list[float]] = {}
    fastest = math.inf
    for name, call in calls.items():
        limit = max(HOPELESS * fastest, PATIENCE) if on_cpu else math.inf
        try:
            with time_limit(limit):
                seconds = wall_clock(call)
        except RuntimeError as refusal:
            if LATE in str(refusal):
                hopeless[name] = []
            elif REFUSAL not in str(refusal):
                raise
            continue
        if seconds > limit:
            hopeless[name] = [seconds]
        else:
            hopeful[name] = call
        fastest = min(fastest, seconds)
    return hopeful, hopeless


def time_all(calls: dict[str, Call], budget: float, clock: Callable[[Call], float]) -> dict[str, list[float]]:
    """Times the calls in turn, in alternating order, for about ``budget`` seconds; slow ones run once."""
    times = {name: [clock(call)] for name, call in calls.items()}
    best = min(t[0] for t in times.values())
    close = [name for name in calls if times[name][0] < NEAR * best]
    end = time.perf_counter() + budget
    rounds = 0
    while rounds < 5 or (time.perf_counter() < end and rounds < 200):
        for name in close if rounds % 2 else reversed(close):
            times[name].append(clock(calls[name]))
        rounds += 1
    return times
