"""The ladder command: it runs every rung of the kernel table, and checks their order and precision."""

from dataclasses import replace

import fastgemm
import pytest
import torch
from fastgemm.bench import Add, Gemm, Transpose, instantiate
from fastgemm.bench import ladder as ladder_module
from fastgemm.bench.ladder import order_violations, precision_notes, run_ladder, steps
from fastgemm.bench.problems import Instance
from fastgemm.bench.records import Measurement, select
from fastgemm.bench.session import gpu_tensor_peak
from fastgemm.bench.sweep import kernel_name
from reference import needs_simulator

BF16 = torch.bfloat16
LADDERS = [Gemm(40, 40, 40), Gemm(24, 24, 24, BF16), Transpose(50, 60), Add(50, 60)]


@pytest.mark.parametrize("problem", LADDERS, ids=str)
def test_ladder_covers_the_kernel_table(problem):
    report = run_ladder([problem], budget=0.002)
    assert report.right
    table = [r for r in fastgemm.kernels(problem.op, "cpu", problem.dtype) if r.available]
    rungs = select(report.results, role="rung")
    assert [row.level for row in rungs] == sorted({row.level for row in table if row.role == "rung"})
    for row in rungs:
        assert row.rate > 0 and row.seconds.median > 0 and row.speedup.median > 0
    shown = {row.kernel for row in report.results}
    assert {row.name for row in table if row.level < 7 and row.role != "shortcut"} <= shown
    assert select(report.results, role="baseline")[0].speedup is None


def test_steps_run_what_they_name():
    instance = instantiate(Gemm(16, 16, 16))
    for step in steps(instance):
        assert step.kernel == step.choice.get("kernel", instance.chosen())
        assert instance.ours(**step.choice)() is instance.out
    names = {level: kernel_name(instance, (("level", level),)) for level in (1, 5, 7)}
    assert names == {1: "naive", 5: "microkernel", 7: instance.chosen()}
    with pytest.raises(ValueError, match="level must be 1 to 7"):
        instance.chosen(8)


@pytest.mark.parametrize(
    ("rates", "broken"),
    [
        ((1, 2, 3, 4, 5, 4.95, 5.1), []),
        ((1, 3, 3, 4, 5, 5, 5), ["level 3 is not faster than level 2"]),
        ((1, 2, 3, 4, 5, 4.5, 5), ["level 6 reaches 0.90 of level 5"]),
        ((1, 2, 3, 4, 5, 5, 4), ["level 7 reaches 0.80 of the best level"]),
    ],
)
def test_order_violations(rates, broken):
    rows = [Measurement(level=level, rate=rate) for level, rate in enumerate(rates, 1)]
    assert order_violations(rows) == broken


@pytest.fixture
def cuda_table(monkeypatch):
    """The table's rows for a GPU, as if one were present. Tests may remove rows from the list."""
    rows = [replace(row, unavailable=None) for row in fastgemm.kernels("gemm", "cuda")]

    def table(op, device, dtype=torch.float32):
        return [row for row in rows if row.takes(dtype)]

    monkeypatch.setattr(ladder_module, "kernels", table)
    return rows


def test_a_ladder_leaves_out_rows_of_lower_precision(cuda_table):
    """Rows that round float32 operands are not compared with IEEE products, torch's included."""
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
        (Gemm(24, 16, 40, BF16), {"wgmma_specialized", "wgmma", "mma_sync", "wmma"}),
        (Gemm(24, 16, 40, precision="tf32"), {"wgmma_specialized", "wgmma", "mma_sync", "wmma"}),
        (Gemm(24, 16, 40, torch.float64), {"dmma", "dmma_m8n8k4", "wmma"}),
        (Gemm(24, 16, 88, precision="fp16x3"), {"fp16x3", "bf16x6"}),
        (Gemm(24, 16, 40, torch.int32), {"int8x10"}),
    ],
    ids=["bf16", "tf32", "fp64", "fp16x3", "int32"],  # the same in every process of pytest-xdist
)
def test_ladder_of_the_cuda_kernels(cuda_table, problem, highest):
    cuda_table[:] = [row for row in cuda_table if row.level < 7]
    with fastgemm.simulate():
        report = run_ladder([problem], budget=0.001)
    assert report.right and highest <= {row.kernel for row in select(report.results, level=6)}
    assert [row.level for row in select(report.results, role="rung")] == list(range(1, 7))


@needs_simulator
def test_a_ladder_shows_the_rung_that_a_level_picks(cuda_table, monkeypatch):
    cuda_table[:] = [row for row in cuda_table if row.name in ("wmma", "mma_sync")]
    monkeypatch.setattr(Instance, "chosen", lambda self, level=None: "wmma")
    with fastgemm.simulate():
        report = run_ladder([Gemm(16, 16, 16, BF16)], budget=0.001)
    assert [row.kernel for row in select(report.results, role="rung")] == ["wmma"]


@pytest.mark.parametrize(
    ("name", "problem", "peak"),
    [
        ("NVIDIA H200", Gemm(1, 1, 1, BF16), 989.4e12),
        ("NVIDIA H200", Gemm(1, 1, 1, precision="tf32"), 494.7e12),
        ("NVIDIA H200", Gemm(1, 1, 1), None),
        ("NVIDIA H200", Gemm(1, 1, 1, torch.int32), None),
        ("Some GPU", Gemm(1, 1, 1, torch.int8), None),
    ],
)
def test_limits_of_tensor_cores(monkeypatch, name, problem, peak):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: name)
    assert gpu_tensor_peak(problem) == peak
