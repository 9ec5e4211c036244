"""Tests the accuracy study: its error measures, its data, the report and the command."""

from __future__ import annotations

import csv
import json
import math
import random
from dataclasses import dataclass, replace
from pathlib import Path

import accuracy
import fastgemm
import pytest
import torch
from click.testing import CliRunner
from fastgemm.bench.checking import PRODUCT_ERROR
from reference import DEVICES, needs_simulator
from studies.accuracy import read_accuracy, run_accuracy, special, study
from studies.accuracy.contenders import BASELINE, Contender, contenders, integer_kernels
from studies.accuracy.data import CANCELLATION, DISTRIBUTIONS, SPIKE, Draw
from studies.accuracy.figures import FIGURES
from studies.accuracy.lookup import Study
from studies.accuracy.records import IntegerProduct, SpecialValue
from studies.accuracy.table import show

SHAPES = [(20, 30, 40), (20, 30, 500), (7, 9, 41)]


@dataclass(frozen=True)
class Spoiled(Contender):
    """A product that is computed in float64, spoiled by an error, and rounded once."""

    relative: float = 0.0
    at_random: bool = False

    def __call__(self, a, b):
        out = (a.double() @ b.double()).float()
        out[1, 2] += self.relative * (a.double().abs() @ b.double().abs())[1, 2]
        if self.at_random:
            out[0, 0] += torch.rand(())
        return out


def small(*rivals: Contender, shapes=SHAPES, integers=(), **more):
    return run_accuracy("cpu", shapes=shapes, seed=1, rivals=[BASELINE, *rivals], integers=integers, **more)


def test_errors_are_measured_as_defined():
    rivals = [Spoiled("exact"), Spoiled("one element", relative=1e-3)]
    report = small(*rivals, trials=2)
    for e in report.results:
        if e.kernel == "exact":
            assert e.normwise < 2**-24 and e.componentwise <= 2**-24 and e.right
        elif e.kernel == "one element":
            assert e.componentwise == pytest.approx(1e-3, rel=1e-3)
            assert e.of_bound > 100 and not e.right
            assert "of the bound" in e.message
        else:
            assert 2**-27 < e.componentwise < 2**-20 and e.right
        assert e.repeats
    found = Study(report)
    assert found.ratio(("exact", "ieee"), "normal", SHAPES[1], "normwise") < 1
    ratio, distribution, k = found.worst(("one element", "ieee"), (7, 9), "componentwise")
    assert ratio > 100 and distribution in DISTRIBUTIONS and k == 41
    assert report.summary["reference_error"] < 1e-3
    assert not report.right and "one element, normal 20x30x40" in report.wrong_lines()[0]


def test_what_is_wrong_with_a_contender():
    """NaN and bits that change are errors. A precision below ieee promises nothing outside of its range."""
    rivals = (
        Spoiled("nan", relative=math.nan),
        Spoiled("random", at_random=True),
        Spoiled("rough", "fp16x3", relative=1e-3),
    )
    report = small(*rivals, shapes=SHAPES[:1])
    nan, other, rough = ([e for e in report.results if e.kernel == rival.kernel] for rival in rivals)
    assert all(e.componentwise == e.normwise == math.inf and not e.right for e in nan)
    assert not other[0].repeats
    assert all(e.of_bound > 1 and e.right for e in rough)
    assert study.bound("ieee", 100) < study.bound("fp16x3", 100) < study.bound("tf32", 100)


def test_a_seed_gives_the_same_study_again():
    first, second, other = (
        run_accuracy("cpu", shapes=SHAPES[:1], seed=seed, rivals=[BASELINE], integers=[])
        for seed in (5, 5, 6)
    )
    assert first.results == second.results != other.results


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name):
    make, text = DISTRIBUTIONS[name]
    for k in (1, 2, 41, 400):
        a, b = make(Draw("cpu", 3), 50, 60, k)
        assert a.shape == (50, k) and b.shape == (k, 60)
        assert a.dtype == b.dtype == torch.float32
        assert a.isfinite().all() and b.isfinite().all() and len(text) > 10


def test_distributions_are_what_they_say():
    def drawn(name, k=2000):
        a, b = DISTRIBUTIONS[name][0](Draw("cpu", 3), 50, 60, k)
        return a.double(), b.double()

    a, b = drawn("wide")
    assert (a.abs().max() / a.abs().median()) > 2**18
    a, b = drawn("positive")
    assert (a > 0).all() and (b > 0).all()
    a, b = drawn("cancelling")
    halves = (a[:, :1000] @ b[:1000]).norm()
    assert (a @ b).norm() / halves == pytest.approx(CANCELLATION, rel=0.2)
    a, b = drawn("spiked")
    assert (a.max(dim=1).values == SPIKE).all() and (a @ b).abs().max() < 1000


def test_special_values_are_judged_as_ieee():
    draw = Draw("cpu", 4)
    for name, make in special.CASES.items():
        a, b = make(draw)
        value = a.double() @ b.double()
        exact = value.float()
        assert special.wrong_elements(exact, a, b, 0) == 0, name
        assert special.wrong_elements(torch.full_like(exact, 12345.0), a, b, 0) > 0, name
        if not value.isfinite().all():
            assert special.wrong_elements(exact.nan_to_num(), a, b, 0) == int((~value.isfinite()).sum()), name
    a, b = special.subnormal_results(draw)
    flushed = (a.double() @ b.double()).float()
    flushed[flushed.abs() < torch.finfo(torch.float32).smallest_normal] = 0
    assert special.wrong_elements(flushed, a, b, 0) > 100
    a, b = special.overflow(draw)
    saturated = (a.double() @ b.double()).clamp(-3.4e38, 3.4e38).float()
    assert special.wrong_elements(saturated, a, b, 0) > 100


def test_rows_that_promise_make_a_report_wrong():
    assert SpecialValue("NaN", "fp16x3", "fp16x3", 10, 1).right
    assert SpecialValue("NaN", "torch.matmul", "ieee", 10, 1).right
    report = small(shapes=SHAPES[:1])
    assert report.right
    report.special.append(SpecialValue("NaN", "bf16x6", "ieee", 10, 1))
    report.integers.append(IntegerProduct("int8x10", 1, 2, 3, 4))
    assert not report.right and report.wrong_lines() == [
        "bf16x6, NaN: 1 of 10 elements wrong",
        "int8x10, int32 1x2x3: 4 elements wrong",
    ]


def test_contenders_of_a_gpu(monkeypatch):
    table = [replace(row, unavailable=None) for row in fastgemm.kernels("gemm", "cuda")]
    assert {row.precision for row in table} <= set(PRODUCT_ERROR), "each precision has a bound"
    module = "studies.accuracy.contenders.kernels"
    monkeypatch.setattr(module, lambda op, device, dtype: [row for row in table if row.takes(dtype)])
    found = [(c.kernel, c.precision) for c in contenders("cuda", ("tiled", "bf16x6"))]
    assert found[0] == ("torch.matmul", "ieee")
    assert {("bf16x6", "ieee"), ("fp16x3", "fp16x3"), ("bf16x3", "bf16x3"), ("one_wave", "tf32")} < {*found}
    assert found[-2:] == [("torch.matmul", "tf32"), ("tiled", "ieee")]
    assert len({*found}) == len(found)
    assert "int8x10" in integer_kernels("cuda")
    table[:] = [replace(row, unavailable="no Hopper") if "90" in row.needs else row for row in table]
    found = [(c.kernel, c.precision) for c in contenders("cuda")]
    assert ("cp_async", "ieee") in found and ("mma_sync", "tf32") in found
    assert ("bf16x6", "ieee") in found and "one_wave" not in {kernel for kernel, _ in found}


@needs_simulator
def test_study_of_the_cuda_kernels(monkeypatch):
    """Tests the planes and their order. A GPU's errors differ, because simulated tensor cores do not truncate."""
    rivals = [Contender("bf16x6"), Contender("fp16x3", "fp16x3")]
    some = {name: DISTRIBUTIONS[name] for name in ("normal", "wide", "spiked")}
    monkeypatch.setattr(study, "DISTRIBUTIONS", some)
    with fastgemm.simulate():
        report = small(*rivals, shapes=[(17, 20, 83)], integers=["int8x10"])
    assert report.right, report.wrong_lines()
    found = Study(report)
    for distribution in some:
        bf16x6 = found.error(("bf16x6", "ieee"), distribution, (17, 20, 83))
        fp16x3 = found.error(("fp16x3", "fp16x3"), distribution, (17, 20, 83))
        assert bf16x6.of_bound < 0.5
        assert (fp16x3.of_bound < 0.5) == (distribution != "spiked"), distribution
    bad = {(row.kernel, row.case) for row in report.special if row.wrong}
    assert ("fp16x3", "a number of 2^60 that meets zeros") in bad
    assert "bf16x6" not in {kernel for kernel, _ in bad}
    assert [row.wrong for row in report.integers] == [0]


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
def test_ieee_on_tensor_cores_errs_no_more_than_cublas():
    """Tests the rule of "ieee". In short sums of wide data one product dominates, and cuBLAS rounds it once."""
    shapes = [(768, 1024, 96), (768, 1024, 512), (768, 1024, 4096)]
    report = run_accuracy("cuda", shapes=shapes, seed=random.getrandbits(32))
    assert report.right, report.wrong_lines()
    found = Study(report)
    # `batched` adds all of k one after another by FMA, and so errs more (docs/precision.md).
    level6 = {row.name for row in fastgemm.kernels("gemm", "cuda", torch.float32) if row.level == 6} - {
        "batched"
    }
    for contender in (c for c in found.rivals if c[1] == "ieee" and c[0] in level6):
        for distribution in DISTRIBUTIONS:
            for shape in shapes:
                assert found.ratio(contender, distribution, shape, "componentwise") < 1.25, (contender, shape)
                allowed = 1.75 if distribution == "wide" else 1.25
                assert found.ratio(contender, distribution, shape, "normwise") < allowed, (contender, shape)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str, code: int = 0):
        result = CliRunner().invoke(accuracy.main, ["--device", "cpu", *arguments])
        assert result.exit_code == code, result.output + repr(result.exception)
        return result

    return invoke


def test_command(run):
    shapes = ["--shape", "20x30x40", "--shape", "20x30x80"]
    files = ["--json", "a.json", "--csv", "a.csv", "--plot", "a.png"]
    result = run(*shapes, "--kernel", "naive", "--seed", "7", "--threads", "1", *files)
    for text in ("torch.matmul", "pipelined", "naive", "cancelling", "NaN in an operand", "exact"):
        assert text in result.stdout
    report = read_accuracy(Path("a.json"))
    assert report.right and report.method["seed"] == 7
    assert report.to_json() == Path("a.json").read_text()
    assert {e.k for e in report.results} == {40, 80} and {e.threads for e in report.results} == {1}
    rows = list(csv.DictReader(Path("a.csv").read_text().splitlines()))
    assert len(rows) == len(report.results)
    assert float(rows[0]["normwise"]) == pytest.approx(report.results[0].normwise, rel=1e-3)
    assert Path("a.png").stat().st_size > 1000
    assert json.loads(run("--shape", "8", "--json", "-").stdout)["command"] == "accuracy"


def test_command_fails_on_a_wrong_product(run, monkeypatch):
    real = fastgemm.ops.matmul

    def wrong(a, b, **options):
        out = real(a, b, **options)
        out[0, 0] += 1
        return out

    monkeypatch.setattr("fastgemm.ops.matmul", wrong)
    result = run("--shape", "8x8x8", "--json", "a.json", code=1)
    assert "pipelined, normal 8x8x8" in result.stderr and "int32 8x8x8" in result.stderr
    assert not read_accuracy(Path("a.json")).right


def test_a_kernel_that_rejects_short_sums_is_shown(capsys):
    report = small(Spoiled("bf16x6"))
    report.results = [e for e in report.results if e.kernel != "bf16x6" or e.k > 100]
    show(report)
    assert "bf16x6" in capsys.readouterr().out
    assert all(figure(report) for figure in FIGURES.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "2x8x8x8"], "shapes are MxNxK"),
        (["--kernel", "torch"], "is no kernel that can be compared with torch"),
        (["--kernel", "wgmma"], "is a kernel of gemm on cuda, not on cpu"),
    ],
)
def test_usage_errors(run, arguments, message):
    assert message in run(*arguments, code=2).stderr


def test_reports_of_other_commands_are_refused(tmp_path):
    (tmp_path / "r.json").write_text('{"format": 2, "command": "ladder"}')
    with pytest.raises(ValueError, match="not an accuracy report"):
        read_accuracy(tmp_path / "r.json")
