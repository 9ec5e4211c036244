"""Tests comparisons of many problems with torch: the presets, the result of each case, and the means."""

from dataclasses import replace

import pytest
import torch
from fastgemm.bench import Gemm, Transpose, instantiate
from fastgemm.bench.presets import PRESETS, Case, from_shape, preset_cases
from fastgemm.bench.problems import Instance, label
from fastgemm.bench.sweep import group_means, run_sweep
from reports import small_sweep
from studies.reports import read_report

BF16, FP32 = torch.bfloat16, torch.float32


def test_from_shape():
    assert from_shape("gemm", (2, 3, 4), FP32) == Gemm(2, 3, 4)
    assert from_shape("gemm", (5, 2, 3, 4), FP32) == Gemm(2, 3, 4, batch=5)
    assert from_shape("transpose", (5, 2, 3), torch.int8) == Transpose(2, 3, torch.int8, 5)
    assert label(from_shape("gemm", (2, 3, 4), FP32, "TN")) == "2x3x4 TN"
    with pytest.raises(ValueError, match="MxNxK"):
        from_shape("gemm", (2, 3), FP32)


@pytest.mark.parametrize("preset", PRESETS)
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
