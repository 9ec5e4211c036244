"""Tests benchmarks/run.py on a CPU: small runs of every preset, presets that fail, and presets without time."""

from __future__ import annotations

from fractions import Fraction

import fastgemm
import presets.invariant
import presets.linear
import presets.portable
import pytest
import run
import torch
from click.testing import CliRunner
from contests import Contest, Preset, Settings, of_contests
from exact import Exact, errors_of
from fastgemm.bench.records import Measurement, Report, select
from fastgemm.bench.timing import CpuTimer
from render.pages import OF_FILES
from studies import tables, turns
from studies.accuracy import read_accuracy
from studies.reports import read_report

ELSEWHERE = ("tensor_parallel",)  # tests/examples runs this
ALL = [n for n, each in run.PRESETS.items() if "cpu" in each.seconds and n not in ELSEWHERE]


def measure(*arguments: str, out, code: int = 0):
    result = CliRunner().invoke(run.main, [*arguments, "--device", "cpu", "--out", str(out)])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The reports of all presets, by name, and what was printed."""
    out = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", lambda function, **options: function)
        patch.setattr("studies.turns.TurnTimer.BATCH", 2)
        for module in ("host_time", "overhead"):
            patch.setattr(f"studies.{module}.BATCHES", 2)
        patch.setattr("studies.timers.HostTimer.BATCH", 2)
        printed = measure(*ALL, "--first", "1", "--budget", "0.001", out=out).output
        measure("residues", "--budget", "0.001", out=out)  # this is small on a CPU in any case
    (folder,) = out.iterdir()
    read = {
        path.stem: (read_accuracy if path.stem == "accuracy" else read_report) for path in folder.iterdir()
    }
    return {name: reader(folder / f"{name}.json") for name, reader in read.items()}, printed


def test_every_preset_writes_a_report_that_says_where_it_was_measured(results):
    reports, printed = results
    assert list(reports) and {*reports} == {*ALL}
    for name, report in reports.items():
        assert report.right and report.results, name
        assert report.method["preset"] == name and report.environment["commit"] is not None
        assert f"== {name}, " in printed
    assert "not measured: nothing" in printed and "complex64 256x256x256: fastgemm" in printed


SHOWN = (
    "host",
    "overhead",
    "first_product",
    "models",
    "invariant_models",
    "transformer",
    "packed",
    "grouped",
    "fp8",
)
CONTENDERS = {
    "complex": {"fastgemm", "level 6", "torch"},
    "symmetric": {"fastgemm", "general", "symmetric", "torch"},
    "invariant": {"invariant", "fastgemm", "torch"},
    "residues": {"fastgemm", "torch"},
    "linear": {"fastgemm", "apart", "eager", "compiled"},
    "portable": {presets.portable.own_build(), "torch"},
    "newton_schulz": {"torch", "fastgemm", "torch.compile"},
}


@pytest.mark.parametrize("name", CONTENDERS)
def test_contenders_are_timed_in_turn_and_checked(results, name):
    first, *others = results[0][name].results
    rows = [first, *(row for row in others if (row.label, row.dtype) == (first.label, first.dtype))]
    assert {row.choice for row in rows} == CONTENDERS[name]
    (baseline,) = select(rows, role="baseline")
    for row in rows:
        assert row.seconds.median > 0 and (row.speedup is None) == (row is baseline)
    own = next(row for row in rows if row.role == "rung")
    assert own.kernel and own.baseline == baseline.choice
    if name in ("complex", "symmetric", "invariant", "portable"):
        assert all(0 < row.component_error < 1e-2 for row in rows)


def test_summaries_of_some_presets(results):
    reports, printed = results
    assert select(reports["invariant"].results, choice="invariant")[0].more == {"same_bits": True}
    symmetric = {row.choice: row.more for row in reports["symmetric"].results}
    assert symmetric["fastgemm"]["over"]["general"] > 0 and not symmetric["general"]
    layer = select(reports["linear"].results, choice="fastgemm")[0]
    assert layer.group == "gelu" and {*layer.more["over"]} == {"apart", "compiled"}
    assert all(0 < row.more["error"] < 1e-3 for row in reports["newton_schulz"].results)
    assert {"import fastgemm", "first transpose"} < {row.kernel for row in reports["first_product"].results}
    for text in ("fastgemm.matmul, compiled", "16 in a call", "ns a product", "ns a call", "ns, in turn"):
        assert text in printed
    for name in ("host", "overhead"):  # each has lines for two types and three numbers of rows
        assert len(turns.lines(reports[name].results)) == 6 * len(turns.WAYS)
        assert tables.turns_table(reports[name]).wide.row_count == 6 * len(turns.WAYS)


def test_pages_can_show_what_was_measured(results):
    reports, _ = results
    gpu_only = {"packed_rungs"}  # a CPU has no rungs of packed weights
    shown = {
        name: block
        for name, block in OF_FILES.items()
        if block.file in {*CONTENDERS, *SHOWN} and name not in gpu_only
    }
    for name, block in shown.items():
        text = block.text(reports[block.file])
        assert ("| --- |" in text or name == "models_best") and " by `" in text, name
    assert "| complex64 | 256 | NN |" in shown["complex_products"].text(reports["complex"])
    assert len({block.file for block in shown.values()}) == len(CONTENDERS) + len(SHOWN)


def test_residues(results):
    """The preset measures times and errors, and checks that integers are exact."""
    rows = results[0]["residues"].results
    for row in rows:
        assert row.seconds or all(0 < error < 50 for error in row.more["errors"]), row
    narrow = [row.choice for row in select(rows, group="narrow_integers")]
    assert narrow[1:3] == ["uint8 x uint8 to int32", "uint8 x int8 to int32"]
    assert {row.choice for row in select(rows, group="int64")} == {"fastgemm", "level 5"}
    assert select(rows, group="wide, errors", dtype="float32")


def test_references_are_more_exact_than_float64():
    a, b = torch.randn(2, 37, dtype=torch.float64), torch.randn(37, 3, dtype=torch.float64)
    exact = Exact(a, b)
    for i, row in enumerate(a.tolist()):
        for j, column in enumerate(b.mT.tolist()):
            right = sum(Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True))
            found = exact.value[i, j]
            assert abs(Fraction(float(found)) + Fraction(float(found - float(found))) - right) < 2**-58


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.bfloat16, torch.uint8], ids=str)
def test_an_error_is_seen(dtype):
    a, b = ((torch.randn(64, 64, dtype=torch.complex128) * 9).to(torch.complex64) for _ in range(2))
    a, b = (x if dtype.is_complex else x.real.abs().to(dtype) for x in (a, b))
    exact = Exact(a, b)
    right = (a.to(torch.complex128) @ b.to(torch.complex128)) if dtype.is_complex else a.double() @ b.double()
    right = right.to(torch.int32 if dtype == torch.uint8 else dtype)
    assert exact.check(right, "").get("right", True)
    for wrong in (right + 4, right.conj() * -1, right.roll(1, 0)):
        assert not exact.check(wrong, "")["right"]
    if dtype.is_floating_point:
        assert not exact.check(right * torch.nan, "")["right"]


def test_errors_of_residues_are_those_of_the_worst_and_the_mean():
    a, b = torch.randn(64, 64, dtype=torch.float64), torch.randn(64, 64, dtype=torch.float64)
    right, draws = a @ b, [Exact(a, b)] * 2
    seen = errors_of(torch.stack([right, right]), draws)["more"]["errors"]
    wrong = errors_of(torch.stack([right, right * (1 + 2**-45)]), draws)["more"]["errors"]
    assert seen[0] < 8 < wrong[0] and seen[1] < wrong[1]


def products(**ways) -> list[Measurement]:
    a = torch.eye(4)
    calls = {name: (lambda way=way: way(a)) for name, way in ways.items()}
    return Contest(calls, (4, 4, 4), "float32", beside=("other",) if "other" in ways else ()).run(
        0.001, CpuTimer()
    )


def no_product(a):
    raise RuntimeError("not implemented")


def test_a_library_without_the_product_is_left_out():
    (row,) = products(own=torch.clone, torch=no_product)
    assert row.choice == "own" and row.seconds and row.speedup is None
    with pytest.raises(RuntimeError):
        products(own=no_product, torch=torch.clone)


def test_ratios_beside_the_baseline():
    rows = {row.choice: row for row in products(own=torch.clone, other=torch.neg, torch=torch.abs)}
    assert {*rows["own"].more["over"]} == {"other"} and not rows["other"].more and not rows["torch"].more


def test_an_error_affects_only_its_problem():
    def contest(device, good):
        return Contest(
            {"own": (lambda: torch.eye(2)) if good else lambda: no_product(0)}, (2, 2, 2), "float32"
        )

    report = of_contests("some", {"cpu": [(True,), (False,), (True,)]}, contest)(
        Settings("cpu", budget=0.001)
    )
    assert [row.right for row in report.results] == [True, False, True]
    assert report.results[1].message == "raised RuntimeError: not implemented"


def test_rows_that_depend_on_others_are_wrong(monkeypatch):
    real = fastgemm.matmul

    def dependent(a, b, **options):
        return real(a, b, **options) + a.mean()

    monkeypatch.setattr(fastgemm, "matmul", dependent)
    contest = presets.invariant.contest("cpu", torch.float64, (8, 8, 8))
    row = contest.run(0.001, CpuTimer())[0]
    assert not row.right and row.more == {"same_bits": False}


def test_a_layer_that_is_wrong(monkeypatch):
    real = fastgemm.linear
    monkeypatch.setattr(fastgemm, "linear", lambda *operands, **options: real(*operands, **options) + 0.1)
    monkeypatch.setattr(torch, "compile", lambda function: function)
    rows = presets.linear.contest("cpu", "float32", (4, 8, 8), "silu", True).run(0.001, CpuTimer())
    assert {row.choice for row in rows if not row.right} == {"fastgemm", "apart"}
    assert rows[0].group == "silu + residual"


def test_two_builds_share_a_file(tmp_path, monkeypatch):
    report = lambda: read_report(next(tmp_path.rglob("portable.json")))  # noqa: E731
    for build in ("portable", "hopper", "hopper"):
        monkeypatch.setattr(presets.portable, "own_build", lambda build=build: build)
        measure("portable", "--budget", "0.001", out=tmp_path)
    assert sorted(row.choice for row in report().results) == ["hopper", "portable", "torch"]
    assert report().environment["portable_commit"] == report().environment["commit"]


@pytest.fixture
def few(monkeypatch):
    """Presets that take no time. Tests replace their measurements."""

    def fine(settings):
        environment = {"device_type": "cuda", "device": "NVIDIA H100"}
        return Report("some", environment, {"seconds": settings.seconds}, [Measurement(label="x")])

    found = {name: Preset({"cpu": 10.0}, fine) for name in ("first", "second", "third")}
    monkeypatch.setattr(run, "PRESETS", found)
    return found


def files(tmp_path) -> list[str]:
    return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json"))


def test_presets_share_the_minutes(few, tmp_path):
    measure("--minutes", "0.25", out=tmp_path)
    assert files(tmp_path) == [f"h100/{name}.json" for name in ("first", "second", "third")]
    shares = [read_report(tmp_path / file).method["seconds"] for file in files(tmp_path)]
    assert shares[0] == pytest.approx(5, rel=0.1) and shares[2] == 10, "the time that the first presets leave"
    assert "not measured: first second third" in measure("--minutes", "0.01", out=tmp_path).output


def test_an_error_in_a_preset_affects_no_other_preset(few, tmp_path):
    few["first"] = Preset({"cpu": 1.0}, lambda settings: no_product(settings))
    report = Report("x", {"device_type": "cuda", "device": "GPU 7"}, {}, [Measurement(right=False)])
    few["second"] = Preset({"cpu": 1.0}, lambda settings: report)
    output = measure(out=tmp_path, code=1).output
    assert "first: RuntimeError: not implemented" in output and "second: some results are wrong" in output
    assert files(tmp_path) == ["gpu-7/second.json", "h100/third.json"]


def test_an_interrupted_run_keeps_what_it_has(few, tmp_path):
    def interrupted(settings):
        raise KeyboardInterrupt

    few["second"] = Preset({"cpu": 1.0}, interrupted)
    output = measure(out=tmp_path, code=130).output
    assert "interrupted in second" in output and "not measured: second third" in output
    assert files(tmp_path) == ["h100/first.json"]


def test_usage(tmp_path):
    assert "peers is not for --device cpu" in measure("peers", out=tmp_path, code=2).output
    assert "Invalid value" in measure("fast", out=tmp_path, code=2).output
    measure("portable", "--budget", "0.001", "--raw", out=tmp_path)
    assert '"samples":[' in next(tmp_path.rglob("portable.json")).read_text()
