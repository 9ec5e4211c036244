"""A report's warnings about a busy machine, and about a level 7 that is slower than torch."""

import multiprocessing
import os
import time
from dataclasses import replace

import pytest
import torch
from fastgemm import _introspect, tuning
from fastgemm._choice import autotuned
from fastgemm.bench import Gemm, Summary, Transpose, instantiate, using_threads
from fastgemm.bench import load as load_module
from fastgemm.bench.choice import measuring, why_below_torch
from fastgemm.bench.load import Load, LoadMeter
from fastgemm.bench.records import Measurement

IDLE = Load(cores=4, others=0.1, stolen=0.001, average=1.0)


@pytest.mark.parametrize(
    ("load", "threads", "said"),
    [
        (IDLE, 4, ""),
        (replace(IDLE, others=3.2), 1, ""),  # enough cores for both
        (replace(IDLE, average=9.0), 4, ""),  # the load was before the run
        (replace(IDLE, others=1.25), 4, "other programs kept 1.2 of its 4 cores busy"),
        (
            replace(IDLE, others=2.0, average=9.0),
            3,
            "other programs kept 2.0 of its 4 cores busy, its load average was 9.0 as this began",
        ),
        (replace(IDLE, stolen=0.07), 1, "7 % of its processor time went to other virtual machines"),
        (Load(4, average=9.0), 4, "its load average was 9.0 on 4 cores as this began"),
        (Load(4, average=3.9), 4, ""),
        (Load(4), 4, ""),
    ],
)
def test_how_busy_a_machine_was(load, threads, said):
    assert load.busy(threads) == said


def test_a_load_is_what_the_counters_say(monkeypatch, tmp_path):
    """Ticks of user, nice, system, idle, iowait, irq, softirq and steal, a hundred a second."""
    stat = tmp_path / "stat"
    monkeypatch.setattr(load_module, "STAT", stat)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (2.5, 0, 0))
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    seconds = iter([10.0, 20.0])
    # This process takes 10 s. Times of ended children must not count: they cover the children's whole lives.
    own = iter([(5.0, 1.0, 0.0, 0.0, 0.0), (13.0, 3.0, 100.0, 100.0, 0.0)])
    monkeypatch.setattr(time, "perf_counter", lambda: next(seconds))
    monkeypatch.setattr(os, "times", lambda: next(own))
    stat.write_text("cpu  1000 0 500 9000 70 0 0 30 0 0\ncpu0 1 1\n")
    meter = LoadMeter()
    stat.write_text("cpu  2500 100 700 11000 90 100 100 230 0 0\ncpu0 1 1\n")  # 20 s busy, 2 s stolen
    load = meter.load()
    assert replace(load, stolen=round(load.stolen, 9)) == Load(cores=4, others=1.0, stolen=0.05, average=2.5)


@pytest.mark.parametrize("text", ["", "cpu 1 2", "cpu  0 0 0 0 0 0 0 0 0 0\n", None])
def test_without_counters_the_load_average_is_all_there_is(monkeypatch, tmp_path, text):
    monkeypatch.setattr(load_module, "STAT", tmp_path / "stat")
    monkeypatch.setattr(os, "getloadavg", lambda: (2.5, 0, 0))
    if text is not None:
        (tmp_path / "stat").write_text(text)
    assert LoadMeter().load() == Load(os.cpu_count(), average=2.5)


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_another_program_is_seen_and_this_one_is_not():
    """The counted load includes the other program, but not this one. The machine may run further programs."""
    if not load_module.STAT.exists():
        pytest.skip("this system has no /proc/stat")
    other = multiprocessing.get_context("spawn").Process(target=_spin, args=(60.0,))
    other.start()
    meter, before = LoadMeter(), (time.perf_counter(), sum(os.times()[:2]))
    _spin(1.0)
    load, after = meter.load(), (time.perf_counter(), sum(os.times()[:2]))
    other.kill()
    other.join()
    own = (after[1] - before[1]) / (after[0] - before[0])  # cores
    assert 0.3 < load.others < load.cores - own + 0.15


def row_of(instance, *quartiles: float) -> Measurement:
    row = Measurement.of(instance, instance.chosen(), 7)
    q1, median, q3 = quartiles
    row.speedup = Summary(median=median, q1=q1, q3=q3, least=q1)
    return row


@pytest.fixture
def no_table(monkeypatch):
    """A processor that no table knows, without remembered measurements."""
    tuning.clear_cache(disk=True)
    build = _introspect.build_info() | {"cpu_model": "Another-1-2-avx2"}
    monkeypatch.setattr(_introspect, "build_info", lambda: build)
    _introspect.set_cpu({"model": build["cpu_model"]})
    yield
    _introspect.set_cpu(None)
    tuning.clear_cache(disk=True)


SQUARE = Gemm(96, 96, 96)
ON_CPU = " --device cpu" if torch.cuda.is_available() else ""  # in commands, where it is not the default
MEASURES = f"fastgemm bench --shape 96x96x96{ON_CPU} --tune measures it"


def test_level_7_as_fast_as_torch_needs_no_explanation():
    instance = instantiate(SQUARE)
    assert why_below_torch(row_of(instance, 0.98, 0.996, 1.01), instance) is None
    assert why_below_torch(Measurement.of(instance, "pipelined", 7), instance) is None


def test_a_difference_within_the_spread_has_no_other_reason():
    instance = instantiate(SQUARE)
    kernel = instance.chosen()
    assert why_below_torch(row_of(instance, 0.93, 0.97, 1.02), instance, "busy") == (
        f"level 7 took {kernel}, at 0.97 of torch.matmul: within the spread of this run, quartiles 0.93 to 1.02"
    )


def test_a_predicted_kernel_was_not_measured_here(no_table, monkeypatch):
    instance = instantiate(SQUARE)
    row = row_of(instance, 0.6, 0.7, 0.8)
    if row.kernel == "torch":
        monkeypatch.setattr(type(instance), "chosen", lambda *_: "pipelined")
        row.kernel = "pipelined"
    why = f"it was predicted to be the fastest, and this problem was not measured here: {MEASURES}"
    took = f"level 7 took {row.kernel}, at 0.70 of torch.matmul: "
    assert why_below_torch(row, instance) == took + why
    assert why_below_torch(row, instance, "busy") == f"{took}the machine was busy, and {why}"


def test_a_transpose_by_the_highest_level(no_table):
    instance = instantiate(Transpose(48, 40, torch.int8, 3))
    text = why_below_torch(row_of(instance, 0.6, 0.7, 0.8), instance)
    command = f"fastgemm bench --op transpose --shape 3x48x40 --dtype int8{ON_CPU} --tune"
    assert text.endswith(
        f"it is the highest level, and this problem was not measured here: {command} measures it"
    )


def test_a_kernel_of_the_table(monkeypatch):
    measured = "AuthenticAMD-25-17-avx2+avx512+avx512_vnni+avx512_bf16"
    build = _introspect.build_info()
    monkeypatch.setattr(_introspect, "build_info", lambda: build | {"cpu_model": measured})
    tuning.clear_cache(disk=True)
    instance = instantiate(Transpose(96, 96, torch.float32))
    (name, *_) = _introspect.ranked(instance.key, measured)
    monkeypatch.setattr(type(instance), "chosen", lambda *_: name)
    text = why_below_torch(row_of(instance, 0.6, 0.7, 0.8), instance)
    assert "the table of this type of processor names it, and this problem was not measured here: " in text


def test_a_kernel_that_was_measured_here(no_table):
    instance = instantiate(SQUARE)
    assert autotuned.kept_kernel(instance.key) is None
    for key in (instance.key, (*instance.key[:-1], 97)):  # another problem does not count
        tuning._remember(key, "blocked")
        tuning._save({key: "blocked"})
    assert autotuned.kept_kernel(instance.key) == "blocked"
    text = why_below_torch(row_of(instance, 0.6, 0.7, 0.8), instance)
    assert text.endswith(f"it was the fastest when this problem was measured here; {MEASURES} again")
    tuning.cache_file().write_text("{")
    assert autotuned.kept_kernel(instance.key) is None


def test_torch_itself(monkeypatch):
    instance = instantiate(SQUARE)
    monkeypatch.setattr(type(instance), "chosen", lambda *_: "torch")
    text = why_below_torch(row_of(instance, 0.6, 0.7, 0.8), instance)
    assert text.endswith("at 0.70 of torch.matmul: that is torch's own kernel, called through fastgemm")


def test_the_command_that_measures_names_the_problem():
    assert (
        measuring(instantiate(Gemm(8, 9, 10, batch=2))) == f"fastgemm bench --shape 2x8x9x10{ON_CPU} --tune"
    )
    with using_threads(1 if torch.get_num_threads() > 1 else 2) as count:
        command = f"fastgemm bench --shape 8x9x10 --dtype bfloat16 --threads {count}{ON_CPU} --tune"
        assert measuring(instantiate(Gemm(8, 9, 10, torch.bfloat16))) == command
    of_tf32 = measuring(instantiate(Gemm(8, 9, 10, precision="tf32")))
    assert of_tf32.endswith(f"8x9x10 --precision tf32{ON_CPU} --tune")
