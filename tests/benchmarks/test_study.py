"""Tests the pages' comparisons of many problems with torch: presets, limits, outliers and means."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace
from types import SimpleNamespace

import fastgemm
import pytest
import torch
from fastgemm.bench import Gemm, check, cuda_timing, instantiate
from fastgemm.bench.checking import Reference
from fastgemm.bench.presets import Case
from fastgemm.bench.problems import ARITHMETIC, LAYOUTS, Instance
from fastgemm.bench.records import Measurement, Report, select
from fastgemm.bench.session import Session
from fastgemm.bench.timing import Summary
from reference import DEVICES
from reports import GPU
from studies import cublas, gpu_presets, weak_spots
from studies.cpu_presets import reference
from studies.presets import OF_GPU, cases_of
from studies.sweep import Study, against_torch, default_means, run_study, share_of_allowed
from studies.tables import outlier_lines

BF16, FP32 = torch.bfloat16, torch.float32


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


def test_every_preset_of_a_gpu_has_problems_of_its_own():
    found = [tuple(cases_of(name, "cuda", seed=3)) for name in OF_GPU]
    assert all(found) and len(set(found)) == len(found)
    first, again, other = (cases_of("random60", "cuda", seed) for seed in (3, 3, 4))
    assert first == again != other


def test_weak_spots_cover_what_libraries_lack():
    found = weak_spots.cases()
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
    assert [case.problem.m for case in found if getattr(case, "sustained", False)] == [8192]
    assert len(set(found)) == len(found)


SHRUNK = {"m": 40, "n": 24, "k": 72}


def shrunk(case: Case) -> Case:
    sizes = {name: min(getattr(case.problem, name), most) for name, most in SHRUNK.items()}
    problem = replace(case.problem, batch=min(case.problem.batch, 2), **sizes)
    return replace(case, problem=problem, sustained=False)


def test_every_case_of_weak_spots_runs_checked_and_named():
    small = dict.fromkeys(map(shrunk, weak_spots.cases()))
    report = run_study(list(small), budget=0.0005)
    assert report.right and all(row.kernel and row.rate for row in report.results)
    assert {row.choice for row in report.results} == {"level 6", "fastest", ""}
    for row in select(report.results, dtype="float16") + select(report.results, label="1x24x72"):
        assert (row.unit, row.limit_name) == ("GB/s", "copy_") and row.share_of_limit
    assert {row.unit for row in select(report.results, dtype="int32")} == {"GFLOPS"}
    assert all(share["problems"] for share in report.summary["default_of_best"].values())


def test_a_plain_read_bounds_a_skinny_product_if_it_can_run(monkeypatch):
    instance = instantiate(Gemm(2, 30, 20), in_bytes=True)
    monkeypatch.setattr(Instance, "device", "cuda")
    study = Study(Session("cpu"))
    module = SimpleNamespace(plain_read=lambda x: lambda: x)
    monkeypatch.setitem(sys.modules, "studies.plain_read", module)
    name, call, moved = study.memory_limit(instance)
    assert (name, moved) == ("plain read", 4 * 30 * 20) and call() is instance.operands[1]

    def no_compiler(x):
        raise FileNotFoundError("no C compiler")

    module.plain_read = no_compiler
    name, call, moved = study.memory_limit(instance)
    assert (name, moved) == ("copy_", 2 * 4 * 30 * 20) and torch.equal(call(), instance.operands[1])


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
def test_a_plain_read_is_faster_than_a_copy():
    from studies.plain_read import plain_read

    x = torch.ones(1 << 26, dtype=torch.uint8, device="cuda")
    out = torch.empty_like(x)
    read = plain_read(x)
    assert read() is x and bool((x == 1).all())
    timer = cuda_timing.CudaTimer()
    times = [min(timer.sample(call, 1) for _ in range(5)) for call in (read, lambda: out.copy_(x))]
    assert times[0] < times[1]


def test_level_none_is_compared_with_the_better_of_own_and_library():
    seconds = {"level 6": 2.0, "fastest": 4.0, "torch": 3.0}
    rows = [Measurement(kernel=n, group="g", choice=n, seconds=Summary.of([s])) for n, s in seconds.items()]
    assert default_means(rows) == {"g": {"share": 0.5, "least": 0.5, "problems": 1}}
    rows[2].role = "baseline"
    assert default_means(rows[1:]) == {}, "no other kernel was timed"
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


def gemm_ex_of_the_manual(handle, op_a, op_b, m, n, k, alpha, a, _, lda, b, __, ldb, beta, c, *type_and_ldc):
    """Replaces cublasGemmEx with int8: C = alpha op(A) op(B) + beta C, all column-major."""

    def stored(address, rows, columns, ld):
        raw = (ctypes.c_int8 * (ld * columns)).from_address(address)
        return torch.frombuffer(raw, dtype=torch.int8).view(columns, ld)[:, :rows].T.long()

    a = stored(a, m, k, lda) if op_a == cublas.CUBLAS_OP_N else stored(a, k, m, lda).T
    b = stored(b, k, n, ldb) if op_b == cublas.CUBLAS_OP_N else stored(b, n, k, ldb).T
    (_, ldc, *_) = type_and_ldc
    out = torch.frombuffer((ctypes.c_int32 * (ldc * n)).from_address(c), dtype=torch.int32).view(n, ldc)
    alpha, beta = (ctypes.c_int32.from_address(scalar).value for scalar in (alpha, beta))
    out[:, :m] = alpha * (a @ b).T + beta * out[:, :m]
    return 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_check_of_cublas_gemm_ex(monkeypatch, layout):
    library = SimpleNamespace(cublasGemmEx=gemm_ex_of_the_manual)
    monkeypatch.setattr(cublas, "_library", lambda: library)
    monkeypatch.setattr(torch.cuda, "current_blas_handle", lambda: 1)
    instance = instantiate(Gemm(20, 12, 28, torch.int8, layout, library=gpu_presets.CUBLAS))
    assert instance.baseline == "cublasGemmEx"
    assert check(instance.torch(), Reference(instance)).right
    library.cublasGemmEx = lambda *arguments: 7
    with pytest.raises(RuntimeError, match="status 7"):
        instance.torch()()
