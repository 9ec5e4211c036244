"""Tests the tables that level=None reads: their measurement, their C++ source, and the choices from them."""

from __future__ import annotations

from types import SimpleNamespace

import fastgemm
import torch
from fastgemm import _introspect
from fastgemm.bench import describe, interleave
from fastgemm.bench.problems import Instance
from pages import ROOT
from points import read_points, write_points
from reports import Script
from scripts import tool
from static_tables import generate as static_tables
from static_tables import grid as tuning_grid
from static_tables import series as tuning_series
from studies import weak_spots

HEAD, POINTS = read_points(ROOT / "benchmarks/fits/h200_tuning.json")


def test_static_tables_are_generated_from_measurements(tmp_path, monkeypatch):
    tables = tool("make_static_tables")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    grids = {"gemm": [(1, 8, 8, 8), (1, 16, 1, 16)], "transpose": [(1, 8, 9, 0)], "add": [(1, 1, 8, 0)]}
    monkeypatch.setattr(tuning_grid, "GRIDS", grids)
    wanted = tuning_series.Wanted(["gemm", "transpose", "add"], ["float32", "bits16"], [1])
    assert tuning_series.measure(wanted, 0.001, 1.0, limit=0) == []
    points = tuning_series.measure(wanted, 0.001, 1.0)
    assert [(p["op"], p["m"], p["dtype"]) for p in points] == [
        ("gemm", 16, "float32"),
        ("gemm", 8, "float32"),
        ("transpose", 8, "bits16"),
        ("add", 1, "float32"),
    ]
    path, head = tmp_path / "x_tuning.json", {"environment": describe("cpu")}
    write_points(path, head, tables.merge(path, points))
    again = [points[2] | {"kernel": "measured_again"}]
    write_points(path, head, tables.merge(path, again))
    assert len(read_points(path)[1]) == len(points)
    text = static_tables.generate([path], tmp_path)
    assert 'Kernels[] = {"' in text and '"measured_again"' in text
    assert "{1, 1, 8, 9, 0, false, false, " in text
    assert "Op::gemm" not in text, "products on a CPU are predicted"
    assert "Op::transpose" in text and "Op::add" in text and fastgemm.build_info()["cpu_model"] in text
    assert "return {};" in static_tables.generate([], tmp_path)


def gpu_point(**seconds):
    sizes = {"threads": 0, "batch": 1, "m": 2048, "n": 2048, "k": 2048}
    return {"op": "gemm", "dtype": "float32", **sizes, "seconds": seconds}


def test_a_gpu_prefers_the_library_unless_another_kernel_is_clearly_faster():
    def winner(**seconds):
        return static_tables.gpu_winner(gpu_point(**seconds))

    assert winner(torch=1e-4, own=0.995e-4) == "torch"
    assert winner(torch=1e-4, own=0.98e-4) == "own"
    assert winner(torch=1e-5, own=0.985e-5) == "torch"  # such a short time is noisy
    assert winner(torch=1e-4, cublaslt_3=0.9e-4) == "cublaslt_3"
    assert winner(torch=5e-6, cublaslt_1=5e-6) == "cublaslt_1"  # which needs less host time
    assert winner(cublaslt_1=1e-4, cublaslt_2=1.2e-4, own=0.9e-4) == "own"
    assert winner(cublaslt_1=1e-4, own=1.1e-4) == "cublaslt_1"
    assert winner(own=1e-4, other=2e-4) == "own"


def test_a_table_holds_speeds_of_libraries_and_of_kernels_that_win_somewhere():
    points = [
        gpu_point(torch=2e-4, own=1e-4, other=4e-4, never=3e-4),
        gpu_point(cublaslt_1=1e-4, cublaslt_2=2e-4, other=0.5e-4, own=8e-4),
    ]
    columns = static_tables.gpu_columns(points)
    assert columns == ["torch", "cublaslt_1", "own", "other"]
    assert static_tables.gpu_speeds(points[0], columns) == [0, -159, 100, -100]
    assert static_tables.gpu_speeds(points[1], columns) == [0, 0, -159, 100]
    alone = [gpu_point(own=1e-4, other=2e-4)]
    assert static_tables.gpu_columns(alone) == ["own"]
    array, table = static_tables.cpp_table("kX", "a GPU", points)
    assert '{"torch", "cublaslt_1", "own", "other"}' in array
    assert "{0, 1, 2048, 2048, 2048, false, false, 2, {0, -159, 100, -100}}," in array
    assert table.endswith('{"a GPU", Op::gemm, DType::f32, Precision::ieee, 2, 4, kXKernels, kX},')


class FakeSession:
    """A GPU with a given time for each kernel."""

    device = "cuda"

    def __init__(self, seconds):
        self.timer = Script(seconds)
        self.timer.overhead = 0.0


def test_a_gpu_point_leaves_out_hopeless_kernels_and_serves_every_precision(monkeypatch):
    times = {"torch": 1e-4, "bf16x6": 0.5e-4, "fp16x3": 0.25e-4, "bf16x3": 0.3e-4, "naive_like": 2e-3}
    levels = {"torch": 7}
    rows = [
        SimpleNamespace(
            name=name, level=levels.get(name, 6), precision=name if name.endswith("x3") else "ieee"
        )
        for name in times
    ]
    monkeypatch.setattr(tuning_series, "candidates_of", lambda *_: rows)
    monkeypatch.setattr(
        tuning_series,
        "instantiate",
        lambda p, device: Instance(p, (), SimpleNamespace(device=torch.device("cuda"))),
    )
    asked = []

    def ours(instance, kernel):
        asked.append((kernel, instance.problem.precision))
        return lambda: kernel

    monkeypatch.setattr(Instance, "ours", ours)
    session = FakeSession(times)
    points = tuning_series.Series("gemm", "float32", None, session, 0.001, 1.0).measure((1, 64, 64, 64), "TN")
    assert {("fp16x3", "fp16x3"), ("bf16x3", "bf16x3"), ("bf16x6", None)} <= {*asked}
    assert session.timer.calls.count("naive_like") == 2
    assert [p.get("precision") for p in points] == [None, "bf16x3", "fp16x3"]
    assert [set(p["seconds"]) for p in points] == [
        {"torch", "bf16x6"},
        {"bf16x6", "bf16x3"},
        {"bf16x6", "fp16x3"},
    ]
    assert all(p["a_transposed"] and not p["b_transposed"] for p in points)


def test_the_parts_of_the_grid():
    parts = tuning_grid.gpu_parts()
    assert set(parts) == set(tuning_grid.PARTS)
    everything = tuning_grid.grid_of("gemm", "cuda")
    assert len(everything) == len(set(everything)) == len({p for part in parts.values() for p in part})
    assert tuning_grid.grid_of("gemm", "cuda", ["odd"]) == sorted(
        parts["odd"], key=lambda p: tuning_grid.work_of("gemm", p[0])
    )


def test_the_problems_that_libraries_do_badly_are_points_of_the_grid():
    points = {*tuning_grid.grid_of("gemm", "cuda")}
    for case in weak_spots.cases():
        problem = case.problem
        sizes = problem.batch, problem.m, problem.n, problem.k
        assert (sizes, problem.layout) in points, problem


def key_of(p):
    result = "int32" if p["dtype"] == "int8" else p["dtype"]
    layout = p.get("a_transposed", False), p.get("b_transposed", False)
    sizes = p["batch"], p["m"], p["n"], p["k"]
    return (
        p["op"],
        "cuda",
        p["dtype"],
        result,
        p.get("precision", "ieee"),
        *layout,
        False,
        p["threads"],
        *sizes,
    )


def test_a_measured_problem_takes_what_was_fastest():
    gpu = HEAD["environment"]["gpu_model"]
    for p in POINTS:
        assert _introspect.ranked(key_of(p), gpu)[0] == static_tables.gpu_winner(p), p


def test_static_tables_prefer_own_kernels_within_two_per_cent():
    def pick(**seconds):
        calls = {name: (lambda name=name: name) for name in seconds}
        samples = interleave(calls, estimates=seconds, timer=Script(seconds))
        return static_tables.winner(samples, {"five": 5, "six": 6, "torch": 7}, seconds)

    assert pick(five=1.0, six=1.01, torch=0.99) == "six"
    assert pick(five=1.0, six=1.1, torch=0.99) == "five"
    assert pick(five=1.0, six=1.1, torch=0.9) == "torch"
