"""Tests many Python threads: first calls at the same time, and readers and writers of the tuning cache."""

import ctypes
import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import fastgemm
import pytest
import torch
from fastgemm import tuning
from processes import PATIENCE, run_forked
from reference import every_device

FIRST_CALLS = """
import threading, torch
threads = 16
torch.manual_seed(0)
a, b = torch.randn(70, 90).to("{device}"), torch.randn(90, 50).to("{device}")
exact = (a.double() @ b.double()).float()  # also creates torch's handles, which is torch's affair
import fastgemm
barrier, wrong = threading.Barrier(threads), []

def work(index):
    barrier.wait()
    try:
        x = a.clone().requires_grad_(index % 4 == 3)
        level = (None, 1, 2, 3, 4, 5, 6, 7)[index % 8]
        got = fastgemm.matmul(x, b, level=level)
        if (got - exact).abs().max() > 1e-3 or not torch.equal(fastgemm.transpose(a), a.t()):
            wrong.append((index, "values"))
        if x.requires_grad:
            got.sum().backward()
        if not torch.equal(fastgemm.add(a, a, level=1), 2 * a):
            wrong.append((index, "add"))
        if len(fastgemm.kernels("gemm")) == 0:
            wrong.append((index, "table"))
    except BaseException as error:
        wrong.append((index, repr(error)))

all_threads = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
[t.start() for t in all_threads]
[t.join() for t in all_threads]
print(wrong)
"""


@every_device
def test_the_first_calls_of_a_process_may_race(device):
    """The first use creates tables, handles, kernels' attributes and scratch memory. This must happen once."""
    for _ in range(2):
        done = run_forked(FIRST_CALLS.format(device=device))
        assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr[-2000:]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="tensor maps of a GPU's driver")
def test_a_thread_may_begin_with_a_tensor_map_cuda():
    """CUDA's runtime makes its context current in a thread at the first call that needs it. Encoding a tensor map
    does not do this. If memory comes from torch's cache, no other call comes before."""
    a = torch.randn(256, 256, device="cuda", dtype=torch.bfloat16)
    expected = fastgemm.matmul(a, a, kernel="wgmma_specialized").cpu()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: fastgemm.matmul(a, a, kernel="wgmma_specialized")).result()
    assert torch.equal(found.cpu(), expected)


@every_device
def test_results_while_measurements_come_and_go(device):
    """Threads multiply while others fill and clear the tuning cache. Choices may change, but values must not."""
    a, b = torch.randn(40, 60), torch.randn(60, 20)
    exact = (a.double() @ b.double()).float()
    key = tuning.gemm_key(a, b)
    names = [row.name for row in fastgemm.kernels("gemm", device, a.dtype) if row.available]
    stop = threading.Event()

    def change() -> int:
        done = 0
        while not stop.is_set():
            tuning._remember(key, random.choice(names), tuning.environment(device))
            done += 1
            time.sleep(1e-4)  # otherwise this loop would hold the interpreter's lock
            if done % 50 == 0:
                tuning.clear_cache()
        return done

    def multiply(index: int) -> int:
        for _ in range(100):
            result = fastgemm.matmul(a, b)
            assert (result - exact).abs().max() < 1e-3
        return index

    with ThreadPoolExecutor(8) as pool:
        changers = [pool.submit(change) for _ in range(2)]
        try:
            multipliers = [pool.submit(multiply, i) for i in range(6)]
            results = [each.result(timeout=PATIENCE) for each in multipliers]
        finally:
            stop.set()
        assert results == list(range(6))
        assert all(c.result() > 0 for c in changers)
    tuning.clear_cache()


def test_threads_that_tune_lose_nothing(tmp_path, monkeypatch):
    """Each thread measures its own problems. One file must hold all results."""
    monkeypatch.setenv("FASTGEMM_CACHE_DIR", str(tmp_path))

    def tune(index: int) -> None:
        for step in range(4):
            a, b = torch.randn(8 + index, 4 + step), torch.randn(4 + step, 5)
            fastgemm.autotune(a, b, budget=0)

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(tune, i) for i in range(6)]:
            done.result(timeout=PATIENCE)
    (entries,) = json.loads((tmp_path / "autotune.json").read_text())["sets"].values()
    assert len(entries) == 24
    assert not list(tmp_path.glob("*.tmp"))
    tuning.clear_cache()


def others_at_work(call) -> int:
    """The number of steps of this thread while another thread is inside ``call``."""
    inside: list[float] = []

    def work() -> None:
        inside.append(time.perf_counter())
        call()
        inside.append(time.perf_counter())

    thread = threading.Thread(target=work)
    thread.start()
    steps = []
    while thread.is_alive():
        steps.append(time.perf_counter())
        time.sleep(1e-4)
    begin, end = inside
    assert end - begin > 0.05
    # Threads pass the lock on before and after the call, with a delay if other programs use the cores.
    quarter = (end - begin) / 4
    return sum(begin + quarter < step < end - quarter for step in steps)


def test_calls_release_the_interpreters_lock():
    a = torch.randn(700, 700)
    fastgemm.matmul(a[:8, :8], a[:8, :8], level=1)
    assert others_at_work(lambda: fastgemm.matmul(a, a, level=1)) > 5
    keeps_the_lock = ctypes.PyDLL(None).usleep  # unless the thread waits for a core before it calls
    assert any(others_at_work(lambda: keeps_the_lock(200_000)) == 0 for _ in range(5))
