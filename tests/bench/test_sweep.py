"""Many problems against torch: the presets, what becomes of a case, and the means."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import fastgemm
import pytest
import torch
from fastgemm.bench import Gemm, Transpose, cuda_timing, gpu_presets, instantiate, weak_spots
from fastgemm.bench.presets import PRESETS, Case, from_shape, preset_cases, reference
from fastgemm.bench.problems import ARITHMETIC, LAYOUTS, Instance, label
from fastgemm.bench.records import Measurement, Report, read_report, select
from fastgemm.bench.sweep import against_torch, default_means, group_means, run_sweep, share_of_allowed
from fastgemm.bench.timing import Summary
from fastgemm.cli.bench import cases_of_preset
from fastgemm.cli.tables import outlier_lines
from reference import DEVICES
from reports import GPU, small_sweep

BF16, FP32 = torch.bfloat16, torch.float32


def test_from_shape():
    assert from_shape("gemm", (2, 3, 4), FP32) == Gemm(2, 3, 4)
    assert from_shape("gemm", (5, 2, 3, 4), FP32) == Gemm(2, 3, 4, batch=5)
    assert from_shape("transpose", (5, 2, 3), torch.int8) == Transpose(2, 3, torch.int8, 5)
    assert label(from_shape("gemm", (2, 3, 4), FP32, "TN")) == "2x3x4 TN"
    with pytest.raises(ValueError, match="MxNxK"):
        from_shape("gemm", (2, 3), FP32)


@pytest.mark.parametrize("preset", [p for p in PRESETS if p != "reference"])
def test_presets(preset):
    of_layers = preset == "transformers"
    cases = preset_cases(preset, "gemm", [FP32], ["NN"], ((),), None)
    assert cases and all(case.problem.layout == ("NT" if of_layers else "NN") for case in cases)
    for op in ("transpose", "add"):
        if of_layers:
            with pytest.raises(ValueError, match="only products"):
                preset_cases(preset, op, [FP32], ["NN"], ((),), None)
        else:
            assert preset_cases(preset, op, [FP32], ["NN"], ((),), None)


def test_reference_preset_covers_types_and_both_transposes():
    cases = reference()
    assert {case.problem.dtype for case in cases if case.problem.op == "gemm"} == {*ARITHMETIC.values()}
    assert {(c.problem.rows, c.problem.dtype.itemsize) for c in cases if c.problem.op == "transpose"} == {
        (n, width) for n in (6144, 6145) for width in (1, 2, 4, 8, 16)
    }


def test_tensor_core_preset_covers_what_level_6_multiplies():
    cases = gpu_presets.tensor_cores()
    found = {(c.problem.dtype, c.problem.precision, c.problem.layout) for c in cases}
    kinds = [(BF16, None), (torch.float16, None), (FP32, "tf32"), (torch.float64, None)]
    assert {(*kind, layout) for kind in kinds for layout in LAYOUTS} <= found
    assert {c.problem.baseline for c in cases} == {"torch.matmul", "torch._int_mm", "cublasGemmEx"}
    names = {row.name for row in fastgemm.kernels("gemm", "cuda", BF16) if row.level == 6}
    assert names >= set(gpu_presets.TENSOR_CORE_RUNGS)


def weak_cases() -> list[Case]:
    arguments = ("gemm", [FP32], ["NN"], ((),), None, 0, 1)
    with pytest.raises(ValueError, match="for --device cuda"):
        cases_of_preset("cpu", "weak_spots", *arguments)
    return cases_of_preset("cuda", "weak_spots", *arguments)


def test_weak_spots_cover_what_libraries_lack():
    found = weak_cases()
    assert all(case.choices == ((("level", 6),), ()) for case in found), "own kernels, and the default"
    problems = [case.problem for case in found]
    for precision in ("ieee", "fp16x3"):
        cubes = [p for p in problems if p.precision == precision and p.m == p.n == p.k and p.batch == 1]
        expected = {(n, layout) for n in (1024, 2048, 4096, 8192, 16384) for layout in ("NN", "NT")}
        assert {(p.m, p.layout) for p in cubes} == expected | {(4096, "TN"), (4096, "TT")}
    assert {p.m for p in problems if p.dtype == torch.int32} == {1024, 2048, 4096, 8192}
    skinny = {case.problem for case in found if case.in_bytes}
    expected = {
        Gemm(m, n, 8192, dtype, layout, precision="ieee" if dtype == FP32 else None)
        for dtype, rows in weak_spots.ROWS.items()
        for layout in ("NN", "NT")
        for m in rows
        for n in ((8192, 28672) if dtype == BF16 else (8192,))
    }
    assert skinny == expected | {Gemm(8192, 8, 8192, BF16)}
    for dtype, precision in ((BF16, None), (FP32, "ieee")):
        assert Gemm(256, 256, 65536, dtype, precision=precision) in problems
        assert Gemm(128, 128, 128, dtype, batch=64, precision=precision) in problems
    assert [case.problem.m for case in found if case.sustained] == [8192]
    assert len(set(found)) == len(found)


SHRUNK = {"m": 40, "n": 24, "k": 72}


def shrunk(case: Case) -> Case:
    sizes = {name: min(getattr(case.problem, name), most) for name, most in SHRUNK.items()}
    problem = replace(case.problem, batch=min(case.problem.batch, 2), **sizes)
    return replace(case, problem=problem, sustained=False)


def test_every_case_of_weak_spots_runs_checked_and_named():
    small = dict.fromkeys(map(shrunk, weak_cases()))
    report = run_sweep(list(small), budget=0.0005)
    assert report.right and all(row.kernel and row.rate for row in report.results)
    assert {row.choice for row in report.results} == {"level 6", "fastest", ""}
    for row in select(report.results, dtype="float16") + select(report.results, label="1x24x72"):
        assert (row.unit, row.limit_name) == ("GB/s", "copy_") and row.share_of_limit
    assert {row.unit for row in select(report.results, dtype="int32")} == {"GFLOPS"}
    assert all(share["problems"] for share in report.summary["default_of_best"].values())


def test_a_case_that_raises_does_not_lose_the_others(monkeypatch, tmp_path):
    def torch_(self):
        if self.problem.m == 3:
            raise RuntimeError("no room")
        return None

    monkeypatch.setattr(Instance, "torch", torch_)
    cubes = [Case(Gemm(n, n, n), "g") for n in (2, 3, 4)]
    report = run_sweep(cubes, budget=0.001)
    assert [row.right for row in report.results] == [True, False, True] and not report.right
    assert report.results[1].message == "raised RuntimeError: no room"
    (tmp_path / "r.json").write_text(report.to_json())
    assert read_report(tmp_path / "r.json").results[1] == report.results[1]
    assert report.results[1].shape == (3, 3, 3)


def test_a_kernel_that_cannot_run_is_a_failed_row():
    cases = preset_cases("small", "gemm", [FP32], ["NN"], ((("kernel", "dot_int8"),),), 1)[:1]
    report = run_sweep(cases, budget=0.001)
    assert not report.right and "raised" in report.results[0].message


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
    (case,) = preset_cases("small", "gemm", [FP32], ["NN"], ((),), 1)[:1]
    ieee = replace(case, problem=replace(case.problem, precision="ieee"))
    for each, tune in ((case, True), (case, False), (ieee, True)):
        run_sweep([each], budget=0.001, tune=tune)
    assert seen == [(2, None), (2, "ieee")]


def test_bytes_of_a_skinny_product():
    problem = Gemm(2, 30, 20, torch.int8, batch=3)
    assert problem.bytes == 3 * (2 * 20 + 20 * 30 + 4 * 2 * 30)
    instance = instantiate(replace(problem, batch=1), in_bytes=True)
    assert instance.work == 2 * 20 + 20 * 30 + 4 * 2 * 30 and instance.unit == ("GB/s", 1e9)
    assert torch.equal(instance.copy()(), instance.operands[1]), "the larger operand"


def test_what_bounds_a_skinny_product_is_a_plain_read_where_there_is_one(monkeypatch):
    instance = instantiate(Gemm(2, 30, 20), in_bytes=True)
    monkeypatch.setattr(Instance, "device", "cuda")
    module = SimpleNamespace(plain_read=lambda x: lambda: x)
    monkeypatch.setitem(sys.modules, "fastgemm.bench.plain_read", module)
    name, call, moved = instance.memory_limit()
    assert (name, moved) == ("plain read", 4 * 30 * 20) and call() is instance.operands[1]

    def no_compiler(x):
        raise FileNotFoundError("no C compiler")

    module.plain_read = no_compiler
    name, call, moved = instance.memory_limit()
    assert (name, moved) == ("copy_", 2 * 4 * 30 * 20) and torch.equal(call(), instance.operands[1])


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
def test_a_plain_read_is_faster_than_a_copy():
    from fastgemm.bench.plain_read import plain_read

    x = torch.ones(1 << 26, dtype=torch.uint8, device="cuda")
    out = torch.empty_like(x)
    read = plain_read(x)
    assert read() is x and bool((x == 1).all())
    timer = cuda_timing.CudaTimer()
    times = [min(timer.sample(call, 1) for _ in range(5)) for call in (read, lambda: out.copy_(x))]
    assert times[0] < times[1]


def test_level_none_is_held_against_the_better_of_own_and_library():
    seconds = {"level 6": 2.0, "fastest": 4.0, "torch": 3.0}
    rows = [Measurement(kernel=n, group="g", choice=n, seconds=Summary.of([s])) for n, s in seconds.items()]
    assert default_means(rows) == {"g": {"share": 0.5, "least": 0.5, "problems": 1}}
    rows[2].role = "baseline"
    assert default_means(rows[1:]) == {}, "nothing to choose from"
    assert default_means(rows[:2])["g"]["share"] == 0.5, "no library has this product"


def timed(name: str, own: float, torch_: float) -> list[Measurement]:
    of = {"label": name, "dtype": "float32", "group": "random float32"}
    rows = [
        Measurement(kernel="own", seconds=Summary.of([own]), speedup=Summary.of([torch_ / own]), **of),
        Measurement(kernel="torch", role="baseline", seconds=Summary.of([torch_]), **of),
    ]
    return rows


def test_random_problems_are_summed_up():
    found = [timed("fast", 1e-3, 2e-3), timed("slow", 1.2e-3, 1e-3), timed("tiny", 5e-6, 4.5e-6)]
    assert share_of_allowed(found[1]) == pytest.approx(1.2 / 1.04)
    assert share_of_allowed(found[2]) == pytest.approx(5 / 5.5)
    assert share_of_allowed(found[0][:1]) is None
    overall = against_torch(found)
    assert overall["problems"] == 3 and overall["least"] == pytest.approx(1 / 1.2)
    assert overall["speedup"] == pytest.approx((2 / 1.2 * 0.9) ** (1 / 3))
    assert overall["worst"]["problem"] == "float32 slow" and overall["worst"]["kernel"] == "own"
    summary = {"measured_again": [], "outliers": [], "against_torch": overall}
    (_, line) = outlier_lines(Report("bench", GPU, {}, summary=summary))
    text = "geometric mean over torch 1.14, least 0.83; worst: float32 slow, own, 0.83 of torch, 115 %"
    assert text in line
    summary["against_torch"] = against_torch([found[0][:1]])
    assert len(outlier_lines(Report("bench", GPU, {}, summary=summary))) == 1
