"""Tests how problems share a time limit, and how a GPU's calls are timed back to back."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from studies import sustained as long_runs
from studies import timers
from studies.sustained import back_to_back_counts, sustained
from studies.timers import Pace


def test_a_pace_gives_later_problems_what_earlier_ones_leave(monkeypatch):
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(timers, "time", clock)
    pace = Pace(4.0, problems=2)
    assert pace.budget(calls=4) == 4 / 2 / 2 / 4
    clock.now = 3.2
    assert pace.budget(calls=4) == pytest.approx(0.8 / 2 / 4)
    clock.now = 9.0
    assert pace.budget(calls=4) == Pace.LEAST
    assert Pace(1e6, 1).budget(1) == Pace.MOST


class FakeClock:
    """A fake GPU with a given time for each call. It replaces torch's functions and the sensors."""

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
        return 400 * self.now  # the energy counter of a GPU at 400 W

    def since(self, start: float) -> dict:
        return {"power_w": 500.0}


def test_back_to_back(monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr(torch.cuda, "Event", clock.event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(long_runs.time, "perf_counter", lambda: clock.now)
    calls = {"own": clock.call(1 / 128), "torch": clock.call(1 / 32)}
    counts = back_to_back_counts(calls, clock)
    assert counts == {"own": 2 * 128, "torch": 2 * 32}
    samples, readings = sustained(calls, counts, clock)
    assert samples.speedup("own", over="torch").median == 4
    assert readings["own"]["seconds"] == 1
    assert readings["own"]["joules_per_call"] == 400 / 128
    _, short = sustained(calls, dict.fromkeys(calls, 4), clock)
    assert short["own"]["joules_per_call"] == 500 / 128, "too short for the counter"
