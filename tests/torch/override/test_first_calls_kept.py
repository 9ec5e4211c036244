"""Tests that the kernels that tune=True found are kept on disk, for other processes and ranks, and that
measurements are bounded."""

import json
import signal
import threading
import time
import warnings
from functools import partial
from types import SimpleNamespace

import fastgemm
import pytest
import torch
from click.testing import CliRunner
from fastgemm import tuning
from fastgemm._choice import autotuned, clocks
from fastgemm._drop_in import first_calls
from fastgemm.cli import main
from patches import needs_library
from processes import run_forked

pytestmark = [needs_library, pytest.mark.usefixtures("first_calls_file")]


def operands(m=33, n=21, k=65):
    return torch.randn(m, k, dtype=torch.float64), torch.randn(k, n, dtype=torch.float64)


def kernels_of(routed):
    return [*routed.kernels]


SECOND = """
import torch, fastgemm
from fastgemm._drop_in import first_calls
torch.set_num_threads({threads})
first_calls._measure = None
with fastgemm.patch(tune=True) as routed:
    torch.randn(33, 65, dtype=torch.float64) @ torch.randn(65, 21, dtype=torch.float64)
print([*routed.kernels])
"""


def test_a_later_process_measures_nothing(measured, first_calls_file):
    a, b = operands()
    with fastgemm.patch(tune=True):
        a @ b
    done = run_forked(SECOND.format(threads=torch.get_num_threads()))
    assert (done.stdout, done.stderr) == (f"['{measured[0][-1]}']\n", "")


def test_what_another_process_found_meanwhile_is_taken(measured, first_calls_file):
    a, b = operands()
    with fastgemm.patch(tune=True) as routed:
        a @ b
        tuning.clear_cache()  # as if the file had been written after this process began
        a @ b
    assert len(measured) == 1
    assert kernels_of(routed) == [measured[0][-1]]


def test_a_damaged_file_is_replaced(measured, first_calls_file):
    first_calls_file.write_text("{damaged")
    with fastgemm.patch(tune=True):
        torch.mm(*operands())
    assert len(measured) == 1
    assert len(json.loads(first_calls_file.read_text())["sets"][tuning.environment()]) == 1


@pytest.mark.parametrize("details", [16, -1, "3", None, 1.5, [3]])
def test_a_key_of_no_product_is_dropped(details, first_calls_file):
    key = tuning.gemm_key(*operands())
    entries = [[[*key, details], "blocked"], [[*key, 3], "blocked"]]
    first_calls_file.write_text(json.dumps({"format": 3, "sets": {tuning.environment(): entries}}))
    found = autotuned.read(first_calls_file)
    assert found.dropped == entries[:1] and list(found.used[tuning.environment()]) == [(*key, 3)]


def test_a_full_disk_costs_one_warning(measured, monkeypatch):
    tries = []

    def full(path, *_):
        tries.append(path)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(autotuned.storage, "change", full)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with fastgemm.patch(tune=True) as routed:
            for n in (21, 22, 21, 22):
                torch.mm(*operands(n=n))
    assert [w.category for w in caught] == [RuntimeWarning]
    assert "No space left" in str(caught[0].message)
    assert len(measured) == 2 and len(tries) == 1
    assert set(routed.kernels) == {kernels[-1] for kernels in measured}


def test_two_threads_measure_a_signature_once(measured):
    a, b = operands()
    start, results = threading.Barrier(4), []

    def multiply():
        start.wait()
        with fastgemm.patch(tune=True):
            results.append(a @ b)

    threads = [threading.Thread(target=multiply) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(measured) == 1
    assert all(torch.equal(results[0], other) for other in results)


def test_what_does_not_fit_into_memory_is_not_measured(measured, monkeypatch, first_calls_file):
    assert first_calls._fits(1 << 20, torch.device("cpu"))
    assert not first_calls._fits(1 << 60, torch.device("cpu"))
    asked = []
    monkeypatch.setattr(first_calls, "_fits", lambda size, device: asked.append(size))
    a, b = operands()
    predicted = tuning.chosen_kernel(tuning.gemm_key(a, b))
    with fastgemm.patch(tune=True) as routed:
        for _ in range(2):
            a @ b
    assert asked == [33 * 21 * 8]
    assert not measured and not first_calls_file.exists()
    assert kernels_of(routed) == [predicted]


@pytest.mark.parametrize("free", [1000, 1300])
def test_memory_of_a_gpu(free, monkeypatch):
    """A result of 100 bytes, twice, beside 4 * 300 bytes that the clock writes; torch caches 200."""
    fakes = {"memory_reserved": 500, "memory_allocated": 300, "mem_get_info": (free, 9999)}
    for name, value in fakes.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    properties = type("Properties", (), {"L2_cache_size": 300})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert first_calls._fits(100, torch.device("cuda", 0)) == (free == 1300)


def test_memory_that_runs_out_while_measuring(monkeypatch):
    def out(*given):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(first_calls, "gpu_clock", out)
    assert first_calls._measure(["torch"], torch.device("cuda", 0), print) == {}


def test_another_rank_takes_what_rank_0_keeps(measured, monkeypatch):
    a, b = operands()
    with fastgemm.patch(tune=True) as routed:
        a @ b  # rank 0
        tuning.clear_cache()
        monkeypatch.setattr(first_calls, "_follows_rank_0", lambda: True)
        a @ b
    assert len(measured) == 1
    assert kernels_of(routed) == [measured[0][-1]]


def test_another_rank_waits_for_rank_0_but_not_for_ever(measured, monkeypatch):
    monkeypatch.setattr(first_calls, "_follows_rank_0", lambda: True)
    monkeypatch.setattr(first_calls, "WAIT_IN_ALL", 0.15)
    monkeypatch.setattr(first_calls, "WAIT", 0.1)
    looks = []
    monkeypatch.setattr(first_calls, "kept_kernel", lambda *given: looks.append(given))
    start = time.perf_counter()
    with fastgemm.patch(tune=True) as routed:
        for n in (21, 22, 23, 24, 21):
            torch.mm(*operands(n=n))
    assert not measured
    assert first_calls._waited >= 0.15
    assert time.perf_counter() - start < 30
    before = len(looks)
    with fastgemm.patch(tune=True):
        torch.mm(*operands(n=25))
    assert len(looks) == before + 1  # it looks once, and waits no more
    assert routed.total == 5

    monkeypatch.setattr(first_calls, "_waited", 0.0)
    answers = iter([None, None, "blocked"])
    monkeypatch.setattr(first_calls, "kept_kernel", lambda *given: next(answers))
    with fastgemm.patch(tune=True) as routed:
        torch.mm(*operands(n=26))
    assert kernels_of(routed) == ["blocked"]


def test_who_follows(monkeypatch):
    assert not first_calls._follows_rank_0()
    for name, value in {"is_available": True, "is_initialized": True}.items():
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    for rank in (0, 1, 7):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        assert first_calls._follows_rank_0() == (rank != 0)


def test_measuring_ends_in_time(monkeypatch):
    """No run begins after the limit. Slow kernels run only twice, and kernels that refuse the product only
    once."""
    monkeypatch.setattr(first_calls, "LIMIT", 0.2)
    ran = []

    def run(name):
        ran.append(name)
        if name == "refuses":
            raise RuntimeError("fastgemm: it cannot run here: too large")
        time.sleep(0.15 if name == "slow" else 0.01)

    names = ["fast", "slow", "refuses", "other"]
    start = time.perf_counter()
    times = first_calls._time({name: partial(run, name) for name in names}, clocked, False)
    assert ran[:4] == names
    assert (ran.count("slow"), ran.count("refuses")) == (2, 1)  # a first run may load code
    assert set(times) == {"fast", "slow", "other"} and times["slow"] > times["fast"]
    assert time.perf_counter() - start < 20  # a busy machine
    ran.clear()
    monkeypatch.setattr(first_calls, "LIMIT", 0.0)
    assert set(first_calls._time({name: partial(run, name) for name in names}, clocked, True)) == {"fast"}
    assert ran == ["fast"]


COLD = {"predicted": 1.0, "near": 0.99, "better": 0.9, "best": 0.8}


@pytest.mark.parametrize(
    ("device", "unit", "in_a_row", "chosen", "calls"),
    [
        ("cpu", 1e-5, {}, "best", None),
        ("cuda", 1e-5, {"predicted": 1.0, "better": 0.8, "best": 0.9}, "better", 8),
        ("cuda", 3e-4, {"predicted": 0.8, "better": 0.79, "best": 0.9}, "predicted", 4),
        ("cuda", 1e-5, {}, "predicted", 8),  # memory ran out
        ("cuda", 1.1e-3, {}, "best", None),
    ],
)
def test_a_rival_is_also_faster_in_a_row_of_calls(monkeypatch, device, unit, in_a_row, chosen, calls):
    cold, asked = {name: unit * each for name, each in COLD.items()}, []

    def measure(kernels, device, run, calls=1):
        asked.append((tuple(kernels), calls))
        return cold if len(asked) == 1 else in_a_row

    monkeypatch.setattr(first_calls, "_measure", measure)
    assert first_calls._chosen([*COLD], torch.device(device), print) == (chosen, cold)
    assert asked[1:] == ([(("predicted", "better", "best"), calls)] if calls else [])


def test_the_clock_divides_a_row_by_its_calls(monkeypatch):
    """On a machine without a GPU, with events that count the calls between them."""
    ran: list[int] = []

    class Event:
        def __init__(self, **_):
            pass

        def record(self):
            self.at = len(ran)

        def synchronize(self):
            pass

        def elapsed_time(self, end):
            return 1e3 * (end.at - self.at)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=16))
    clock = clocks.gpu_clock(torch.device("cpu"), 3)
    assert clock(lambda: ran.append(1)) == 1.0 and len(ran) == 3


def clocked(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def test_an_error_of_a_kernel_is_not_hidden(monkeypatch):
    def fails():
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        first_calls._time({"naive": fails}, clocked, True)


class Ended(BaseException):
    pass


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit, TimeoutError, Ended])
def test_what_a_handler_raises_leaves_the_product_as_it_is(monkeypatch, ending):
    def interrupted(*given):
        raise ending("over")

    monkeypatch.setattr(first_calls, "_measure", interrupted)
    a, b = operands()
    x = a.clone().requires_grad_()
    y = (x @ b).sum()
    handled = []
    before = signal.signal(signal.SIGINT, lambda *given: handled.append(given))
    try:
        with fastgemm.patch(tune=True):
            for product in (lambda: a @ b, lambda: torch.nn.functional.linear(a, b.mT), y.backward):
                with pytest.raises(ending, match="over"):
                    product()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not handled
    assert not any(lock.locked() for lock in first_calls._locks.values())


def test_products_inside_of_a_measurement_are_not_measured(monkeypatch):
    calls = []

    def measure(kernels, device, run):
        calls.append(kernels)
        fastgemm.matmul(*operands(n=7))
        return {}

    monkeypatch.setattr(first_calls, "_measure", measure)
    fastgemm.enable(tune=True)
    fastgemm.matmul(*operands())
    assert len(calls) == 1


def test_the_report_of_the_command_line(measured):
    a, b = torch.randn(30, 40), torch.randn(40, 20)
    tuned = lambda: CliRunner().invoke(main, ["info", "--tuned"], env={"COLUMNS": "200"})  # noqa: E731
    assert "nothing in " in tuned().output
    with fastgemm.patch(tune=True):
        a @ b
        torch.addmm(torch.ones(20), a, b)
        torch.baddbmm(torch.ones(2, 30, 20), a.expand(2, -1, -1), b.t().contiguous().t().expand(2, -1, -1))
    tuning._save({tuning.transpose_key(a): "simd"})
    done = tuned()
    assert done.exit_code == 0
    for text in (
        "float32 NN 1 x 30 x 20 x 40 ",
        "float32 NN 1 x 30 x 20 x 40, a row added",
        "float32 NT 2 x 30 x 20 x 40, scaled or added to",
        "transpose bits32 1 x 30 x 40",
        f"cpu, {torch.get_num_threads()} threads",
    ):
        assert text in done.output
    rows = json.loads(CliRunner().invoke(main, ["info", "--json"]).output)["tuned"]
    assert [row["kernel"] for row in rows] == [*(kernels[-1] for kernels in measured), "simd"]
    assert [row["predicted"] for row in rows] == [*(kernels[0] for kernels in measured), None]
    assert rows[0]["gain"] == pytest.approx(len(measured[0]), rel=1e-3)
    assert rows[0]["microseconds"] == pytest.approx(1e6 / len(measured[0]), rel=1e-3)
    assert CliRunner().invoke(main, ["info", "--tuned", "--json"]).exit_code == 2
