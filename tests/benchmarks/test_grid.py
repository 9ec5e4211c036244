"""Tests the preset grid: its problems, rotating operands, means, and a run on a CPU with invented times."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import fastgemm
import pytest
import torch
from contests import Settings
from fastgemm import _introspect
from fastgemm.bench.records import Measurement
from fastgemm.bench.timing import Summary
from presets import grid
from render.pages import OF_FILES
from studies import grid_means, layers, tables
from studies.environment import folder_of
from studies.reports import read_report

SHAPES = {(3, 8, 16): "A model", (64, 64, 64): layers.POWERS, (1, 24, 8): "A model"}
MICROSECONDS = {"": 4.0}  # the time of each kernel that may run last; "" is torch


def test_a_draw_is_repeatable_and_has_every_class_of_both_kinds():
    draw = layers.drawn(7, 60)
    assert draw == layers.drawn(7, 60) != layers.drawn(8, 60)
    assert len(dict(draw)) == 60 and {*draw} <= {*layers.drawn(7)} and len(layers.drawn(7)) > 600
    kinds = Counter((name == layers.POWERS, layers.class_of(shape)) for shape, name in draw)
    assert len(kinds) == 8 and {*kinds.values()} <= {7, 8}
    assert layers.problems()[1, 11008, 4096] == "Llama-2 7B" and len(layers.MODELS) == 10
    assert max(2.0 * m * n * k for m, n, k in layers.problems()) < 1e11


@pytest.mark.parametrize(("size", "sets"), [(1, 16), (10, 16), (30, 6), (50, 4), (149, 2), (151, 1)])
def test_weights_in_turn_exceed_the_cache_three_times(size, sets):
    plan = grid.rotation(size << 20, 50 << 20)
    uses = Counter(weight for _, weight in plan)
    assert len(uses) == sets and len({*uses.values()}) == 1 and 14 <= len(plan) <= 26
    assert size * sets > 150 or sets == grid.MOST_SETS
    assert {activation for activation, _ in plan} == {0, 1}


def row(choice, microseconds, n=64, eager=10.0):
    times = (Summary.of([1e-6 * each]) for each in (microseconds, eager))
    found = Measurement(shape=(n, 64, 64), label=f"{n}x64x64", dtype="bfloat16", layout="NN", choice=choice)
    found.seconds, found.back_to_back = times
    found.kernel = choice
    return found


def test_means_and_what_is_slower():
    T, D = grid_means.TORCH, grid_means.DEFAULT
    rows = [row(T, 8.0), row(D, 4.0, eager=20.0), row("own", 2.0), row(T, 2.0, n=128), row(D, 4.0, n=128)]
    rows += [row(grid_means.TUNED, 2.0), row(grid_means.TUNED, 2.0, n=128)]
    (line,) = grid_means.means([*rows, Measurement(right=False)])
    assert (line["type"], line["layout"], line["flop"], line["count"]) == ("bfloat16", "NN", "< 1e8", 2)
    pairs = [tuple(line[name].values()) for name in grid_means.RATIOS]
    wanted = [(1, 0.5), (2, 1), (4, 4), (2, 2), (0.5**0.5, 0.5)]
    assert pairs == [(pytest.approx(mean), worst) for mean, worst in wanted]
    (found,) = grid_means.slower(rows)
    assert found["problem"] == "bfloat16 128x64x64" and found["best"] == T and found["of_torch"] == 0.5
    assert not grid_means.slower([row(T, 8.0), row(D, 8.2)]) and not grid_means.slower(
        [row(T, 1.0), row(D, 1.2)]
    )


def invented() -> grid.Bench:
    def sample(call, repeats):
        call()
        return 1e-6 * MICROSECONDS.get(_introspect.take_last_gemm_kernel(), 9.0)

    timer = SimpleNamespace(name="invented", method="none", min_sample=0.0, overhead=0.0, sample=sample)
    return grid.Bench(lambda calls: calls[-1], timer, timer, 1 << 10, lambda problem: [("pipelined", 1.0)])


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Measures tiny problems on one thread, because several would wait for each other."""
    torch.set_num_threads(1)
    monkeypatch.setattr(layers, "problems", lambda: SHAPES)

    def measured(seconds=1e6, **more):
        report = grid.measure(Settings("cpu", seconds, out=tmp_path, **more), invented())
        path = tmp_path / folder_of(report.environment) / "grid.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(report.to_json())
        return read_report(path)

    return measured


@pytest.mark.parametrize("own", [2.0, 8.6], ids=["wins", "is hopeless"])
def test_a_whole_run(run, capsys, monkeypatch, own):
    """The best own kernel is timed even if it is hopeless. Otherwise the means would look too good."""
    monkeypatch.setitem(MICROSECONDS, "pipelined", own)
    report = run()
    assert report.right, [each.message for each in report.results if not each.right]
    problems = list(grid_means.problems_of(report.results))
    assert len(problems) == 2 * 2 * 3
    for problem in problems:
        calls = len(grid.rotation(2 * problem["torch"].shape[1] * problem["torch"].shape[2], 1 << 10))
        assert problem["own"].kernel == "pipelined" and problem["torch"].kernel == "torch.matmul"
        assert problem["own"].seconds.median == pytest.approx(1e-6 * own / calls, rel=1e-3)
        assert (
            problem["own"].speedup.median == pytest.approx(4 / own, rel=1e-3)
            and problem["torch"].role == "baseline"
        )
        assert problem["level=None"].back_to_back.median > 0 and problem["tune=True"].kernel
    assert sum(line["count"] for line in report.summary["means"]) == 12
    tables.show(report)
    text = OF_FILES["grid"].text(report)
    assert "`level=None` is slower" in capsys.readouterr().out and "| bfloat16 | NN | < 1e8 | 3 | " in text


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_graphs_of_a_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(layers, "problems", lambda: {(64, 256, 128): "A model", (1, 4096, 4096): "A model"})
    report = grid.measure(Settings("cuda", 60.0, out=tmp_path))
    assert report.right, [each.message for each in report.results if not each.right]
    assert sum(line["count"] for line in report.summary["means"]) == 8
    assert {each.choice for each in report.results} == {"torch", "level=None", "tune=True", "cublaslt", "own"}
    for each in report.results:
        assert each.seconds.median > 1e-7 and bool(each.back_to_back) == (
            each.choice in ("torch", "level=None")
        )
        assert each.back_to_back is None or each.seconds.median < each.back_to_back.median


def test_time_is_bounded_and_types_share_a_file(run):
    assert run(seconds=0.0).method["not_measured"] == 12
    first = run(types=("bf16",), most=1).results
    report = run(types=("fp16",), most=1)
    assert {each.dtype for each in report.results} == {"float16", "bfloat16"} and len(first) == 8
    assert {each.dtype for each in run(types=("fp16",), most=1, seed=5).results} == {"float16"}


def test_a_kernel_that_is_wrong_and_one_that_raises(run, monkeypatch):
    real = fastgemm.matmul

    def matmul(a, b, *, out, kernel=None):
        if kernel == "microkernel":
            raise RuntimeError("out of order")
        return real(a, b, out=out, kernel=kernel).mul_(2 if kernel == "pipelined" else 1)

    monkeypatch.setattr(fastgemm, "matmul", matmul)
    wrong = [each for each in run(most=1, types=("bf16",)).results if not each.right]
    assert {each.kernel for each in wrong} == {"pipelined", "microkernel"} and not any(
        e.seconds for e in wrong
    )


def test_an_error_of_torch_affects_only_its_problem(run, monkeypatch):
    real = torch.matmul

    def matmul(a, b, *, out):
        if len(a) == 64:
            raise RuntimeError("no such product")
        return real(a, b, out=out)

    monkeypatch.setattr(torch, "matmul", matmul)
    report = run(types=("bf16",))
    failed = [each for each in report.results if each.failed]
    assert [each.shape for each in failed] == [(64, 64, 64)] * 2
    assert sum(line["count"] for line in report.summary["means"]) == 4
