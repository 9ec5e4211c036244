"""How level 6 is measured: precision, limits, the baseline of int8, the preset."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from types import SimpleNamespace

import fastgemm
import pytest
import torch
from fastgemm.bench import Gemm, check, cublas, gpu_presets, instantiate
from fastgemm.bench import ladder as ladder_module
from fastgemm.bench.checking import Reference
from fastgemm.bench.ladder import precision_notes, run_ladder, steps
from fastgemm.bench.limits import gpu_tensor_peak
from fastgemm.bench.problems import LAYOUTS, torch_precision
from fastgemm.bench.records import Measurement, select
from fastgemm.bench.sweep import default_means
from fastgemm.bench.timing import Summary
from reference import needs_simulator


def rounded_to_tf32(x: torch.Tensor) -> torch.Tensor:
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def test_check_knows_tf32():
    exact = instantiate(Gemm(64, 64, 2048))
    a, b = (rounded_to_tf32(x) for x in exact.operands)

    def call():
        return torch.matmul(a, b, out=exact.out)

    assert not check(call, Reference(exact)).right
    tf32 = replace(exact, problem=replace(exact.problem, precision="tf32"))
    outcome = check(call, Reference(tf32))
    assert outcome.right and outcome.worst < 0.7

    def without_one_product():
        return torch.matmul(a[:, 1:], b[1:], out=exact.out)

    assert not check(without_one_product, Reference(tf32)).right


def test_torch_has_the_precision_of_the_problem_meanwhile():
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    for precision in ("tf32", "ieee", None):
        with torch_precision(Gemm(1, 1, 1, precision=precision)):
            assert matmul.fp32_precision == (precision or before)
        assert matmul.fp32_precision == before


def gemm_ex_of_the_manual(handle, op_a, op_b, m, n, k, alpha, a, _, lda, b, __, ldb, beta, c, *type_and_ldc):
    """What cublasGemmEx does with int8: C = alpha op(A) op(B) + beta C, all column-major."""

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
def test_cublas_gemm_ex(monkeypatch, layout):
    library = SimpleNamespace(cublasGemmEx=gemm_ex_of_the_manual)
    monkeypatch.setattr(cublas, "_library", lambda: library)
    monkeypatch.setattr(torch.cuda, "current_blas_handle", lambda: 1)
    instance = instantiate(Gemm(20, 12, 28, torch.int8, layout, library="cublasGemmEx"))
    assert instance.baseline == "cublasGemmEx"
    assert check(instance.torch(), Reference(instance)).right
    library.cublasGemmEx = lambda *arguments: 7
    with pytest.raises(RuntimeError, match="status 7"):
        instance.torch()()


def test_a_ladder_leaves_out_what_lacks_precision(monkeypatch):
    """Rows that round float32 operands have no place beside IEEE products, torch's included."""
    here = {row.name: replace(row, unavailable=None) for row in fastgemm.kernels("gemm", "cuda")}

    def table(op, device, dtype=torch.float32):
        return [row for row in here.values() if row.takes(dtype)]

    monkeypatch.setattr(ladder_module, "kernels", table)
    assert here["wgmma"].precision == "tf32" and here["bf16x6"].precision == "ieee"
    for precision, row in ((None, None), ("ieee", None), ("tf32", "wgmma"), ("fp16x3", "fp16x3")):
        instance = instantiate(Gemm(4, 4, 4, precision=precision))
        found, notes = {step.kernel for step in steps(instance)}, precision_notes(instance)
        assert "bf16x6" in found and {"wgmma", "fp16x3"} & found == ({row} if row else set())
        if row is None:
            assert all(any(f"--precision {name}" in note for note in notes) for name in ("tf32", "fp16x3"))
        else:
            assert notes[0].endswith(f"level 6 in {precision}") and len(notes) == 1
    half = instantiate(Gemm(4, 4, 4, torch.float16))
    assert "wgmma" in {step.kernel for step in steps(half)} and not precision_notes(half)


@needs_simulator
@pytest.mark.parametrize(
    ("problem", "highest"),
    [
        (Gemm(40, 48, 56, torch.bfloat16), {"wgmma_specialized", "wgmma", "mma_sync", "wmma"}),
        (Gemm(40, 48, 56, precision="tf32"), {"wgmma_specialized", "wgmma", "mma_sync", "wmma"}),
        (Gemm(40, 48, 56, torch.float64), {"dmma", "dmma_m8n8k4", "wmma"}),
        (Gemm(40, 48, 88), {"bf16x6"}),
        (Gemm(40, 48, 88, precision="fp16x3"), {"fp16x3", "bf16x6"}),
        (Gemm(40, 48, 56, torch.int32), {"int8x10"}),
    ],
    ids=["bf16", "tf32", "fp64", "fp32", "fp16x3", "int32"],  # the same in every process
)
def test_ladder_of_the_cuda_kernels(monkeypatch, problem, highest):
    here = [replace(row, unavailable=None) for row in fastgemm.kernels("gemm", "cuda") if row.level < 7]
    monkeypatch.setattr(
        ladder_module, "kernels", lambda op, device, dtype=torch.float32: [r for r in here if r.takes(dtype)]
    )
    with fastgemm.simulate():
        report = run_ladder([problem], budget=0.001)
    assert report.right and highest <= {row.kernel for row in select(report.results, level=6)}
    assert [row.level for row in select(report.results, role="rung")] == list(range(1, 7))


@pytest.mark.parametrize(
    ("name", "problem", "peak"),
    [
        ("NVIDIA H200", Gemm(1, 1, 1, torch.bfloat16), 989.4e12),
        ("NVIDIA H200", Gemm(1, 1, 1, precision="tf32"), 494.7e12),
        ("NVIDIA H200", Gemm(1, 1, 1), None),
        ("NVIDIA H200", Gemm(1, 1, 1, torch.int32), None),
        ("Some GPU", Gemm(1, 1, 1, torch.int8), None),
    ],
)
def test_limits_of_tensor_cores(monkeypatch, name, problem, peak):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: name)
    assert gpu_tensor_peak(problem) == peak


def test_tensor_core_preset_covers_what_level_6_multiplies():
    cases = gpu_presets.tensor_cores()
    found = {(c.problem.dtype, c.problem.precision, c.problem.layout) for c in cases}
    kinds = [(torch.bfloat16, None), (torch.float16, None), (torch.float32, "tf32"), (torch.float64, None)]
    assert {(*kind, layout) for kind in kinds for layout in LAYOUTS} <= found
    assert {c.problem.baseline for c in cases} == {"torch.matmul", "torch._int_mm", "cublasGemmEx"}
    names = {row.name for row in fastgemm.kernels("gemm", "cuda", torch.bfloat16) if row.level == 6}
    assert names >= set(gpu_presets.TENSOR_CORE_RUNGS)


def test_level_none_is_held_against_the_better_of_own_and_library():
    instance = instantiate(Gemm(1, 1, 1))
    seconds = {"level 6": 2.0, "fastest": 4.0, "torch": 3.0}
    rows = [Measurement.of(instance, name, None, group="g", choice=name) for name in seconds]
    for row in rows:
        row.seconds = Summary.of([seconds[row.kernel]])
    assert default_means(rows) == {"g": {"share": 0.5, "least": 0.5, "problems": 1}}
    rows[2].role = "baseline"
    assert default_means(rows[1:]) == {}, "nothing to choose from"
    assert default_means(rows[:2])["g"]["share"] == 0.5, "no library has this product"
