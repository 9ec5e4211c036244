"""Tests how calls are timed: in turn on a CPU, alone or back to back on a GPU."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from fastgemm.bench import cuda_timing, interleave, using_threads
from fastgemm.bench.timing import Summary, geometric_mean
from reports import Script


def test_interleave_changes_the_order_there_and_back():
    timer = Script(dict.fromkeys("abcd", 0.01))
    calls = {name: (lambda name=name: name) for name in timer.seconds}
    orders = [[*r] for r in interleave(calls, rounds=16, estimates=timer.seconds, timer=timer).rounds]
    assert all(there == back[::-1] for there, back in zip(orders[::2], orders[1::2], strict=True))
    assert len({*map(tuple, orders)}) > 8
    pairs = {pair for order in orders for pair in itertools.pairwise(order)}
    assert len(pairs) == 12, "each call follows each other call"


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
