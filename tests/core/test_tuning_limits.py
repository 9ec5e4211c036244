"""Autotuning spends little on kernels that are far from the fastest."""

import math

import fastgemm
import pytest
import torch
from fastgemm import tuning
from fastgemm._choice import clocks
from fastgemm._choice.clocks import HOPELESS, PATIENCE, first_runs


@pytest.fixture(autouse=True)
def forgets(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTGEMM_CACHE_DIR", str(tmp_path))
    tuning.clear_cache()
    yield
    tuning.clear_cache()


def refuse():
    raise RuntimeError("fastgemm: kernel 'x' cannot run here: it is Tuesday")


def takes(seconds, runs):
    return lambda: runs.append(seconds) or seconds


def test_a_hopeless_call_runs_once(monkeypatch):
    monkeypatch.setattr(clocks, "wall_clock", lambda call: call())
    runs = []
    slow = 1.01 * HOPELESS
    calls = {"fast": takes(1.0, runs), "refuses": refuse, "near": takes(9.0, runs), "slow": takes(slow, runs)}
    hopeful, hopeless = first_runs(calls, on_cpu=True)
    assert (list(hopeful), hopeless) == (["fast", "near"], {"slow": [slow]})
    assert runs == [1.0, 9.0, slow]
    hopeful, hopeless = first_runs(calls, on_cpu=False)  # on a GPU a call returns before its work is done
    assert (list(hopeful), hopeless) == (["fast", "near", "slow"], {})


def test_a_first_run_may_map_memory(monkeypatch):
    monkeypatch.setattr(clocks, "wall_clock", lambda call: call())
    hopeful, _ = first_runs({"fast": takes(1e-6, []), "cold": takes(PATIENCE, [])}, on_cpu=True)
    assert list(hopeful) == ["fast", "cold"]


def test_another_error_than_a_refusal_is_passed_on():
    def fail():
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        first_runs({"x": fail}, on_cpu=True)


def test_a_kernel_that_is_hopeless_is_stopped_and_never_chosen():
    """naive takes seconds for a product that the fastest kernel computes in about 10 ms, even on a busy
    machine."""
    a = torch.randn(1024, 1024)
    naive = {"kernel": "naive"}
    tuned = fastgemm.autotune(a, a, budget=0.0, save=False)
    last = next(t for t in tuned.timings if t.kernel == "naive")
    assert (last.seconds, last.runs) == (math.inf, 0)
    assert tuned.kernel == tuned.timings[0].kernel == tuning.chosen_kernel(tuning.gemm_key(a, a))
    result = fastgemm.matmul(a[:8], a, **naive)  # the time limit is removed again
    torch.testing.assert_close(result, a[:8] @ a, rtol=1e-4, atol=1e-4)
