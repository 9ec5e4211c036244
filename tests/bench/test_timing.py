"""How calls are timed: in turn on a CPU, alone or back to back on a GPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from fastgemm.bench import cuda_timing, interleave, timing, using_threads
from fastgemm.bench.cuda_timing import back_to_back_counts, sustained
from fastgemm.bench.timing import Pace, Summary, geometric_mean
from reports import Script


def test_interleave_changes_the_order_there_and_back():
    timer = Script(dict.fromkeys("abcd", 0.01))
    calls = {name: (lambda name=name: name) for name in timer.seconds}
    orders = [[*r] for r in interleave(calls, rounds=16, estimates=timer.seconds, timer=timer).rounds]
    assert all(there == back[::-1] for there, back in zip(orders[::2], orders[1::2], strict=True))
    assert len({*map(tuple, orders)}) > 8
    pairs = {pair for order in orders for pair in itertools.pairwise(order)}
    assert len(pairs) == 12, "each comes after each other one"


def test_interleave_pairs_slow_calls():
    timer = Script({"fast": 0.1, "torch": 0.2, "slow": 10.0})
    calls = {name: (lambda name=name: name) for name in timer.seconds}
    shares = []
    samples = interleave(calls, budget=0.8, estimates=timer.seconds, timer=timer, on_sample=shares.append)
    assert [len([r for r in samples.rounds if name in r]) for name in ("fast", "slow")] == [8, 2]
    assert samples.speedup("fast", over="torch").median == pytest.approx(2)
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1)


def test_interleave_repeats_short_calls_within_a_sample():
    count = 0

    def call():
        nonlocal count
        count += 1

    interleave({"short": call}, budget=1e-3, min_sample=1e-4, min_rounds=2)
    assert count > 20


def test_a_pace_gives_later_problems_what_earlier_ones_leave(monkeypatch):
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(timing, "time", clock)
    pace = Pace(4.0, problems=2)
    assert pace.budget(calls=4) == 4 / 2 / 2 / 4
    clock.now = 3.2
    assert pace.budget(calls=4) == pytest.approx(0.8 / 2 / 4)
    clock.now = 9.0
    assert pace.budget(calls=4) == Pace.LEAST
    assert Pace(1e6, 1).budget(1) == Pace.MOST


def test_summary():
    s = Summary.of([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (s.median, s.q1, s.q3, s.least) == (3, 2, 4, 1)
    assert s.spread == pytest.approx(1 / 3) and Summary.of([2.0]).spread == 0
    assert geometric_mean([1, 4]) == pytest.approx(2)


def test_using_threads_restores():
    before = torch.get_num_threads()
    with using_threads(1) as count:
        assert count == torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


class FakeClock:
    """The time of a GPU that takes a given time for each call, and what torch and the sensors say of it."""

    def __init__(self) -> None:
        self.now = 100.0

    def call(self, seconds: float) -> Callable[[], None]:
        return lambda: setattr(self, "now", self.now + seconds)

    def event(self, enable_timing: bool) -> SimpleNamespace:
        found = SimpleNamespace(at=0.0, synchronize=lambda: None)
        found.record = lambda: setattr(found, "at", self.now)
        found.elapsed_time = lambda end: (end.at - found.at) * 1e3
        return found

    def sample(self, call: Callable[[], None], repeats: int) -> float:
        start = self.now
        call()
        return self.now - start

    def joules(self) -> float:
        return 400 * self.now  # an energy counter that says 400 W

    def since(self, start: float) -> dict:
        return {"power_w": 500.0}


def test_a_sample_on_a_gpu_encloses_the_call_alone(monkeypatch):
    done = []
    timer = object.__new__(cuda_timing.CudaTimer)
    timer._flush = SimpleNamespace(zero_=lambda: done.append("flush"))
    timer._start, timer._end = (
        SimpleNamespace(record=lambda name=name: done.append(name), synchronize=lambda: None)
        for name in ("start", "end")
    )
    timer._start.elapsed_time = lambda end: 3.0
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: done.append("spin"))
    assert timer.sample(lambda: done.append("call"), 1) == 3e-3
    assert done == ["spin", "flush", "start", "call", "end"]


def test_back_to_back(monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr(torch.cuda, "Event", clock.event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(cuda_timing.time, "perf_counter", lambda: clock.now)
    calls = {"own": clock.call(1 / 128), "torch": clock.call(1 / 32)}
    counts = back_to_back_counts(calls, clock)
    assert counts == {"own": 2 * 128, "torch": 2 * 32}
    samples, readings = sustained(calls, counts, clock)
    assert samples.speedup("own", over="torch").median == 4
    assert readings["own"]["seconds"] == 1
    assert readings["own"]["joules_per_call"] == 400 / 128
    _, short = sustained(calls, dict.fromkeys(calls, 4), clock)
    assert short["own"]["joules_per_call"] == 500 / 128, "too short for the counter"
