"""How results are checked, timed, stored and shown."""

from __future__ import annotations

import io
import itertools
import json
import math
from dataclasses import replace

import fastgemm
import pytest
import torch
from fastgemm.bench import (
    Add,
    Gemm,
    Transpose,
    check,
    instantiate,
    interleave,
    using_threads,
)
from fastgemm.bench import plots as plot_module
from fastgemm.bench.checking import MAX_PRODUCTS, Reference, integer_product
from fastgemm.bench.environment import commit, describe
from fastgemm.bench.ladder import order_violations, run_ladder, steps
from fastgemm.bench.presets import PRESETS, from_shape, preset_cases, reference
from fastgemm.bench.problems import ARITHMETIC, LAYOUTS, label, random_matrix
from fastgemm.bench.records import Measurement, read_report, select
from fastgemm.bench.sweep import group_means, run_sweep
from fastgemm.bench.timing import Summary, geometric_mean
from reports import Script, small_sweep

DTYPES = list(ARITHMETIC.values())


# --- checking


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_check_accepts_this_library_and_torch(dtype, layout):
    instance = instantiate(Gemm(33, 65, 47, dtype, layout))
    reference_ = Reference(instance)
    for call in (instance.ours(), instance.ours(level=1), instance.torch()):
        outcome = check(call, reference_)
        assert outcome.right, outcome.message
        assert outcome.worst <= 1


@pytest.mark.parametrize(
    "problem", [Transpose(33, 65), Transpose(7, 5, torch.complex128, 3), Add(33, 65), Gemm(9, 8, 7, batch=3)]
)
@pytest.mark.parametrize("allocate", [False, True])
def test_check_of_other_ops_and_batches(problem, allocate):
    instance = instantiate(problem, allocate=allocate)
    for call in (instance.ours(), instance.torch()):
        assert check(call, Reference(instance)).right


def test_check_of_a_batched_int8_product():
    instance = instantiate(Gemm(9, 8, 7, torch.int8, batch=3))
    assert check(instance.torch(), Reference(instance)).right
    assert check(instance.ours(), Reference(instance)).right


@pytest.mark.parametrize("spoil", ["one element", "unwritten", "nan", "wrong shape of loop"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_check_catches(dtype, spoil):
    instance = instantiate(Gemm(20, 30, 40, dtype))
    right = instance.ours()

    def wrong():
        out = instance.out
        if spoil == "unwritten":
            return out
        right()
        if spoil == "one element":
            out[3, 5] += 1
        elif spoil == "nan":
            out[3, 5] = math.nan if dtype.is_floating_point else out[3, 5] ^ 1
        else:
            out[:, 16:] = 0
        return out

    outcome = check(wrong, Reference(instance))
    assert not outcome.right
    assert "elements wrong" in outcome.message


def test_check_catches_a_transpose_that_is_a_copy():
    instance = instantiate(Transpose(32, 32))
    assert not check(instance.copy(), Reference(instance)).right


def test_rows_of_a_huge_product_are_sampled(monkeypatch):
    monkeypatch.setattr("fastgemm.bench.checking.MAX_PRODUCTS", 1000)
    instance = instantiate(Gemm(500, 8, 8))
    reference_ = Reference(instance)
    outcome = check(instance.ours(), reference_)
    assert outcome.right and outcome.rows_checked < outcome.rows == 500
    assert {0, 499} <= set(reference_.index.tolist())
    assert MAX_PRODUCTS > 4096**3  # the published sizes are checked whole

    def wrong():
        instance.ours()()
        instance.out[499] = 0
        return instance.out

    assert "(499, 0)" in check(wrong, reference_).message


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64], ids=str)
def test_integer_product_wraps_like_its_type(dtype):
    a, b = random_matrix(17, 17, dtype=dtype), random_matrix(17, 17, dtype=dtype)
    got = integer_product(a, b)
    half = 2 ** (8 * got.itemsize - 1)
    exact = [
        [sum(x * y for x, y in zip(row, column, strict=True)) for column in b.mT.tolist()]
        for row in a.tolist()
    ]
    assert got.tolist() == [[(v + half) % (2 * half) - half for v in row] for row in exact]


# --- timing


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
    assert samples.seconds("fast").count == 8 and samples.seconds("slow").count == 2
    assert samples.speedup("fast", over="torch").median == pytest.approx(2)
    assert samples.speedup("slow", over="torch").count == 2
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1)


def test_short_calls_are_repeated_within_a_sample():
    count = 0

    def call():
        nonlocal count
        count += 1

    interleave({"short": call}, budget=1e-3, min_sample=1e-4, min_rounds=2)
    assert count > 20


def test_summary():
    s = Summary.of([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (s.median, s.q1, s.q3, s.least, s.count) == (3, 2, 4, 1, 5)
    assert s.spread == pytest.approx(1 / 3)
    assert Summary.of([2.0]).spread == 0
    assert geometric_mean([1, 4]) == pytest.approx(2)


def test_using_threads_restores():
    before = torch.get_num_threads()
    with using_threads(1) as count:
        assert count == torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


# --- ladder and bench


LADDERS = [Gemm(40, 40, 40), Gemm(24, 24, 24, torch.bfloat16), Transpose(50, 60), Add(50, 60)]


@pytest.mark.parametrize("problem", LADDERS, ids=str)
def test_ladder_covers_the_kernel_table(problem):
    report = run_ladder([problem], budget=0.002)
    assert report.right
    table = [r for r in fastgemm.kernels(problem.op, "cpu", problem.dtype) if r.available]
    rungs = select(report.results, role="rung")
    assert [row.level for row in rungs] == sorted({row.level for row in table if row.role == "rung"})
    for row in rungs:
        assert row.rate > 0 and row.seconds.count >= 2 and row.speedup.median > 0
    shown = {row.kernel for row in report.results}
    assert {row.name for row in table if row.level < 7 and row.role != "shortcut"} <= shown
    assert select(report.results, role="baseline")[0].speedup is None


def test_steps_run_what_they_name():
    instance = instantiate(Gemm(16, 16, 16))
    for step in steps(instance):
        assert step.kernel == step.choice.get("kernel", instance.chosen())
        assert instance.ours(**step.choice)() is instance.out


def rungs(*rates: float) -> list[Measurement]:
    instance = instantiate(Gemm(1, 1, 1))
    rows = [Measurement.of(instance, "x", level) for level in range(1, len(rates) + 1)]
    for row, rate in zip(rows, rates, strict=True):
        row.rate = rate
    return rows


def test_order_violations():
    assert order_violations(rungs(1, 2, 3, 4, 5, 4.95, 5.1)) == []
    assert "level 3 is not faster than level 2" in order_violations(rungs(1, 3, 3, 4, 5, 5, 5))
    assert order_violations(rungs(1, 2, 3, 4, 5, 4.5, 5)) == ["level 6 reaches 0.90 of level 5"]
    assert order_violations(rungs(1, 2, 3, 4, 5, 5, 4)) == ["level 7 reaches 0.80 of the best level"]


@pytest.mark.parametrize("preset", [p for p in PRESETS if p != "reference"])
def test_presets(preset):
    cases = preset_cases(preset, "gemm", [torch.float32], ["NN"], ((),), None)
    assert cases and all(
        case.problem.layout == ("NT" if preset == "transformers" else "NN") for case in cases
    )
    if preset == "transformers":
        with pytest.raises(ValueError, match="only products"):
            preset_cases(preset, "transpose", [torch.float32], ["NN"], ((),), None)
    else:
        assert preset_cases(preset, "transpose", [torch.float32], ["NN"], ((),), None)
        assert preset_cases(preset, "add", [torch.float32], ["NN"], ((),), None)


def test_reference_preset_covers_types_and_both_transposes():
    cases = reference()
    assert {case.problem.dtype for case in cases if case.problem.op == "gemm"} == set(DTYPES)
    assert {(c.problem.rows, c.problem.dtype.itemsize) for c in cases if c.problem.op == "transpose"} == {
        (n, width) for n in (6144, 6145) for width in (1, 2, 4, 8, 16)
    }


def test_from_shape():
    assert from_shape("gemm", (2, 3, 4), torch.float32) == Gemm(2, 3, 4)
    assert from_shape("gemm", (5, 2, 3, 4), torch.float32) == Gemm(2, 3, 4, batch=5)
    assert from_shape("transpose", (5, 2, 3), torch.int8) == Transpose(2, 3, torch.int8, 5)
    assert label(from_shape("gemm", (2, 3, 4), torch.float32, "TN")) == "2x3x4 TN"
    with pytest.raises(ValueError, match="MxNxK"):
        from_shape("gemm", (2, 3), torch.float32)


def test_sweep_and_its_means():
    report = small_sweep()
    assert report.right and len(report.results) == 2 * 4
    assert {row.threads for row in report.results} == {1}
    means = report.summary["geometric_means"]
    assert set(means) == {f"small float32, {c}" for c in ("fastest", "level 5", "kernel naive")}
    assert means == group_means(report.results)


def test_sweep_tunes_when_asked(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "fastgemm.bench.sweep.autotune", lambda *operands, precision: seen.append((len(operands), precision))
    )
    cases = preset_cases("small", "gemm", [torch.float32], ["NN"], ((),), 1)[:1]
    run_sweep(cases, budget=0.001, tune=True)
    run_sweep(cases, budget=0.001)
    assert seen == [(2, None)]
    run_sweep(
        [replace(cases[0], problem=replace(cases[0].problem, precision="ieee"))], budget=0.001, tune=True
    )
    assert seen[1:] == [(2, "ieee")]


def test_a_kernel_that_cannot_run_is_a_failed_row():
    cases = preset_cases("small", "gemm", [torch.float32], ["NN"], ((("kernel", "dot_int8"),),), 1)[:1]
    report = run_sweep(cases, budget=0.001)
    assert not report.right and "raised" in report.results[0].message


# --- reports, tables, pictures


def test_report_round_trip(tmp_path):
    report = small_sweep()
    path = tmp_path / "r.json"
    path.write_text(report.to_json())
    again = read_report(path)
    assert again == report
    assert plot_module.fingerprint(again) == plot_module.fingerprint(report)
    for name in ("device", "torch", "fastgemm", "date", "threads", "cpu_model"):
        assert again.environment[name]
    text = io.StringIO()
    report.write_csv(text)
    lines = text.getvalue().splitlines()
    assert len(lines) == 1 + len(report.results) and "speedup_median" in lines[0]


def test_read_report_refuses_other_files(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match="not a fastgemm report"):
        read_report(path)


def test_pictures(tmp_path):
    ladder = run_ladder([Gemm(16, 16, 16), Transpose(16, 16)], budget=0.001)
    made = plot_module.save(ladder, tmp_path / "ladder")
    assert [p.name for p in made] == ["ladder.png", "ladder.svg"]
    pictures = []
    for name in ("a.svg", "b.svg"):
        plot_module.save(ladder, tmp_path / name)
        pictures.append((tmp_path / name).read_bytes())
    assert plot_module.fingerprint(ladder).encode() in pictures[0]
    assert pictures[0] == pictures[1], "the same report gives the same picture"
    assert plot_module.save(small_sweep(), tmp_path / "bench.png") == [tmp_path / "bench.png"]


def test_environment():
    found = describe()
    assert found["cores"] >= 1 and found["date"].endswith("+00:00")
    assert commit() is None or len(commit()) in (12, 13)
