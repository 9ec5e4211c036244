"""Tests comparisons with other projects: the contenders, their set-up, check and timing."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch
from fastgemm.bench import Gemm, instantiate
from fastgemm.bench.records import Measurement, select
from studies import cublas
from studies.peers import PRESET, own, run_peers, study
from studies.peers.contenders import (
    COMPILE,
    CUBLAS,
    DOT_ALGORITHMS,
    FASTGEMM,
    GROUPS,
    INPUT_PRECISIONS,
    JAX,
    MATMUL,
    TRITON,
    Contender,
    contenders,
    problems,
)
from studies.peers.prepared import NotInstalledError, Prepared
from studies.peers.table import peers_table
from studies.reports import read_report
from studies.timers import BatchTimer

FP32, BF16 = torch.float32, torch.bfloat16
CUBE = Gemm(300, 20, 40)


def test_the_preset_has_every_rival_where_it_has_a_product():
    found = problems()
    assert {group for group, _ in found} == set(GROUPS)
    cubes = {problem.m for group, problem in found if group == "float32"}
    assert cubes == {2048, 4096, 8192}
    for layout in ("NN", "NT"):
        assert ("bfloat16, odd sizes", Gemm(4095, 4093, 4097, BF16, layout)) in found
    assert ("float32, one row", Gemm(1, 8192, 8192, FP32, "NT")) in found
    for _, problem in found:
        named = contenders(problem)
        assert len(set(named)) == len(named) and [c.is_baseline for c in named].count(True) == 1
        assert {c.level for c in named if c.is_own} == {6, None}
    asked = {(c.product, c.asked) for c in contenders(CUBE)}
    assert {(TRITON, name) for name in INPUT_PRECISIONS} <= asked
    assert {(JAX, name) for name in DOT_ALGORITHMS} <= asked
    assert {(CUBLAS, "32F_EMULATED_16BFX9"), (CUBLAS, "32F_EMULATED_16BFX9, eager")} <= asked
    assert {c.product for c in contenders(Gemm(8, 8, 8, BF16))} == {MATMUL, FASTGEMM, COMPILE, TRITON, JAX}
    emulated = {c.asked for c in contenders(Gemm(8, 8, 8, torch.float64)) if c.product == CUBLAS}
    assert emulated == {"64F_EMULATED_FIXEDPOINT", "64F_EMULATED_FIXEDPOINT, eager"}


def absent(contender, instance):
    raise NotInstalledError("not installed")


def refused(contender, instance):
    raise ValueError("no such\nmode")


def wrong(contender, instance):
    a, b = instance.operands
    return Prepared(lambda: (a @ b) * 1.01, "wrong")


@pytest.fixture
def rivals(monkeypatch):
    """Peers that need no compiler: one is not installed, one raises, one is wrong, one has its own stream."""

    def elsewhere(contender, instance):
        a, b = instance.operands
        return Prepared(lambda: a @ b, contender.product, on_stream=False)

    makers = {TRITON: absent, CUBLAS: refused, COMPILE: wrong, JAX: elsewhere}
    monkeypatch.setattr(study, "MAKERS", {**study.MAKERS, **makers})


def test_on_a_cpu(rivals, tmp_path):
    report = run_peers(
        "cpu", budget=0.001, cases=[("float32", CUBE), ("bfloat16", Gemm(8, 8, 8, BF16, "NT"))]
    )
    assert report.right and report.method["presets"] == [PRESET]
    rows = select(report.results, dtype="float32")
    assert len(rows) == len(contenders(CUBE))
    by = {(row.kernel, row.choice): row for row in rows}
    assert by[TRITON, "ieee"].message == "not installed"
    assert by[CUBLAS, "32F_EMULATED_16BFX9"].message == "refused: ValueError: no such mode"
    off = by["wrong", "max-autotune, ieee"]
    assert off.message.startswith("wrong: ") and off.component_error > 1e-6 and off.back_to_back is None
    jax = by[JAX, "F32_F32_F32"]
    assert jax.rate is None and jax.back_to_back_rate > 0 and jax.speedup
    torch_row = by[MATMUL, "ieee"]
    assert torch_row.role == "baseline" and torch_row.rate and torch_row.speedup is None
    assert 0 < torch_row.component_error < 1e-6 and torch_row.rows_checked == study.ROWS
    level6 = next(row for row in rows if row.level == 6)
    assert level6.rate and level6.back_to_back_rate and level6.setup_seconds > 0
    path = tmp_path / "peers.json"
    path.write_text(report.to_json())
    assert read_report(path).to_json() == report.to_json()
    with (tmp_path / "peers.csv").open("w") as file:
        report.write_csv(file)
    table = peers_table(report)
    assert table.wide.row_count == len(report.results) + 2


def test_an_own_result_out_of_its_bound_fails(rivals, monkeypatch):
    monkeypatch.setattr(study, "MAKERS", {**study.MAKERS, FASTGEMM: wrong})
    report = run_peers("cpu", budget=0.001, cases=[("float64", Gemm(8, 8, 8, torch.float64))])
    assert not report.right
    assert all(row.message.startswith("wrong: ") for row in select(report.results, role="rung"))


def test_nan_is_wrong():
    instance = instantiate(CUBE)
    exact = study.Exact(instance)
    result = instance.operands[0] @ instance.operands[1]
    assert exact.errors(result, "ieee")[1] < 1
    result[0, 3] = torch.nan  # the first row is always checked
    row = Measurement.of(instance, "", None)
    prepared = Prepared(lambda: result, "")
    assert not study._is_right(exact, prepared, result, Contender(JAX, "X"), row) and row.right


def test_set_up_ends_when_its_seconds_are_used_up(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(study.time, "perf_counter", lambda: clock.now)

    def slow(contender, instance):
        clock.now += 3
        return own.matmul(contender, instance)

    monkeypatch.setattr(study, "MAKERS", {JAX: slow, TRITON: slow})
    instance, setup = instantiate(CUBE), study.Setup(5)
    rows = [Measurement.of(instance, "", None) for _ in range(4)]
    found = [
        setup.prepare(Contender(name), instance, row)
        for name, row in zip([JAX] * 3 + [TRITON], rows, strict=True)
    ]
    assert [one is not None for one in found] == [True, True, False, True]
    assert rows[2].message == "left out: 5 s of set-up were used up" and rows[1].setup_seconds == 3


def test_a_batch_is_waited_for_within_its_context():
    done = []

    @contextlib.contextmanager
    def inside():
        done.append("in")
        yield
        done.append("out")

    finish = lambda result: done.append(result)  # noqa: E731
    call = Prepared(lambda: done.append("call") or "result", "", inside, finish)
    assert BatchTimer().sample(call, 2) >= 0
    assert done == ["in", None, "call", "call", "result", "out"]


def test_emulated_modes_of_cublas(monkeypatch):
    calls = []

    def answer(name, status=0):
        return lambda *arguments: calls.append((name, *arguments)) or status

    library = SimpleNamespace(
        cublasCreate_v2=answer("create"),
        cublasSetStream_v2=answer("stream"),
        cublasDestroy_v2=answer("destroy"),
    )
    library.cublasSetWorkspace_v2 = answer("workspace")
    monkeypatch.setattr(cublas, "_library", lambda: library)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *sizes, **more: empty(1))
    with pytest.raises(RuntimeError, match="has no emulation"):
        cublas.Emulation("32F_EMULATED_16BFX9", eager=True)
    library.cublasSetEmulationStrategy = answer("strategy")
    library.cublasGemmEx = answer("gemm", 15)
    multiply = cublas.Emulation("64F_EMULATED_FIXEDPOINT", eager=True)
    assert calls[-1][0] == "strategy" and calls[-1][2] == 2
    a, b, out = (torch.zeros(3, 3, dtype=torch.float64) for _ in range(3))
    with pytest.raises(RuntimeError, match="cublasGemmEx: not supported"):
        multiply(a, b, out)
    assert calls[-1][-2] == 79


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    ("product", "asked"), [(TRITON, "bf16x6"), (JAX, "BF16_BF16_F32_X6"), (COMPILE, "max-autotune")]
)
def test_rivals_on_a_gpu(product, asked):
    pytest.importorskip({TRITON: "triton", JAX: "jax", COMPILE: "torch"}[product])
    instance = instantiate(Gemm(301, 203, 77, layout="NT"), device="cuda")
    exact, setup = study.Exact(instance), study.Setup(100)
    row = Measurement.of(instance, "", None)
    found = setup.prepare(Contender(product, asked, "bf16x6"), instance, row)
    assert found, row.message
    assert study._is_right(exact, *found, Contender(product, asked, "bf16x6"), row), row.message
