"""Tests tuning and measuring on a GPU."""

from __future__ import annotations

import itertools
import json
import random

import fastgemm
import pytest
import torch
from click.testing import CliRunner
from fastgemm import _introspect, tuning
from fastgemm._choice import autotuned
from fastgemm.cli import main
from processes import run_python
from reference import DEVICES, levels

if "cuda" not in DEVICES:
    pytest.skip("no GPU that a CUDA kernel of this build can use", allow_module_level=True)

pytestmark = pytest.mark.parametrize("device", ["cuda"])


# Tuning


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTGEMM_CACHE_DIR", str(tmp_path))
    tuning.clear_cache()
    yield tmp_path / "autotune.json"
    tuning.clear_cache()


def test_autotune_measures_stores_and_is_used(cache):
    a, b = torch.randn(256, 512), torch.randn(512, 128)
    tuned = fastgemm.autotune(a, b, budget=0.05)
    names = {row.name for row in fastgemm.kernels("gemm", "cuda", torch.float32) if row.role == "rung"}
    assert {timing.kernel for timing in tuned.timings} <= names
    assert len(tuned.timings) >= 5
    assert 1e-7 < tuned.timings[0].seconds < 1e-3
    key = tuning.gemm_key(a, b)
    assert tuning.chosen_kernel(key) == tuned.kernel
    stored = json.loads(cache.read_text())["sets"]
    assert stored == {tuning.environment("cuda"): [[list(key), tuned.kernel]]}
    assert torch.cuda.get_device_name() in tuning.environment("cuda")
    tuning.clear_cache()
    assert autotuned.load() == 1
    assert tuning.chosen_kernel(key) == tuned.kernel


def test_autotune_changes_the_choice(cache, monkeypatch):
    def naive_wins(calls, *_):
        return {name: [1.0 if name == "naive" else 2.0] for name in calls}

    monkeypatch.setattr(tuning, "time_all", naive_wins)
    a, b = torch.randn(60, 3000), torch.randn(3000, 50)
    naive = fastgemm.matmul(a, b, kernel="naive")
    for view_a, view_b in itertools.product((a, a.t().contiguous().t()), (b, b.t().contiguous().t())):
        assert not torch.equal(fastgemm.matmul(view_a, view_b, level=5), naive)
        fastgemm.autotune(view_a, view_b)
        assert torch.equal(fastgemm.matmul(view_a, view_b), naive)
        assert torch.equal(fastgemm.matmul(view_a, view_b, level=7), naive)
    fastgemm.autotune(a)
    assert tuning.chosen_kernel(tuning.transpose_key(a)) == "naive"


def test_autocast_does_not_change_what_is_measured(cache, monkeypatch):
    """The products would be those of bfloat16, stored under the key of float32."""
    types = []

    def time_all(calls, *_):
        types.extend(call().dtype for call in calls.values())
        return {name: [1.0 if name == "naive" else 2.0] for name in calls}

    monkeypatch.setattr(tuning, "time_all", time_all)
    a, b = torch.randn(60, 3000), torch.randn(3000, 50)
    with torch.autocast("cuda", torch.bfloat16):
        fastgemm.autotune(a, b)
    assert set(types) == {torch.float32}
    assert tuning.chosen_kernel(tuning.gemm_key(a, b)) == "naive"


def test_a_new_process_uses_what_was_tuned(cache):
    a = torch.randn(48, 40)
    tuning._save({tuning.transpose_key(a): "naive"}, tuning.environment("cuda"))
    code = (
        "import torch, fastgemm; from fastgemm import tuning; a = torch.randn(48, 40, device='cuda');"
        "fastgemm.transpose(a); print(tuning.chosen_kernel(tuning.transpose_key(a)))"
    )
    done = run_python(["-c", code])
    assert done.stdout == "naive\n", done.stderr


# Measuring


def test_ladder_on_the_gpu():
    from fastgemm.bench import Add, Gemm, Transpose
    from fastgemm.bench.ladder import run_ladder
    from fastgemm.bench.records import select

    problems = [Gemm(257, 300, 129), Gemm(256, 256, 256, torch.int32), Transpose(300, 500), Add(300, 500)]
    report = run_ladder(problems, device="cuda", budget=0.01)
    assert report.right
    assert report.environment["device"] == torch.cuda.get_device_name()
    rungs = select(report.results, role="rung", op="gemm", dtype="float32")
    assert [row.level for row in rungs] == levels("gemm", "cuda")
    assert all(row.unit == "TFLOPS" and row.rate > 0 and row.speedup.median > 0 for row in rungs)
    integers = select(report.results, dtype="int32")
    assert integers and all(row.speedup is None for row in integers)


def test_bench_on_the_gpu():
    from studies import gpu_presets
    from studies.host_time import run_host_time
    from studies.sweep import run_study

    cases = gpu_presets.random_shapes(4, random.getrandbits(32))
    report = run_study(cases, device="cuda", budget=0.01)
    assert report.right
    assert "outliers" in report.summary
    assert run_study(gpu_presets.sweep(12_000)[:1], device="cuda", sustained=True).right
    host = run_host_time("cuda")
    small = [row for row in host.results if row.choice not in ("in turn", "alone")]
    ways = {"torch.mm", "torch.ops.fastgemm._matmul", "fastgemm.matmul", "torch.mm in a patch", "torch.add"}
    assert ways <= {row.kernel for row in small}
    assert len(host.results) > len(small)  # the layers of a model
    assert all(1e-7 < row.seconds.median < 1e-3 for row in host.results)


def test_the_command_line_measures_on_the_gpu_by_default(tmp_path, monkeypatch):
    from click.testing import CliRunner
    from fastgemm.cli import main

    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["ladder", "--quick", "--size", "256", "--json", "l.json"])
    assert result.exit_code == 0, result.output
    assert torch.cuda.get_device_name() in result.stdout
    assert json.loads((tmp_path / "l.json").read_text())["environment"]["device_type"] == "cuda"


# fastgemm tune


@pytest.fixture
def untuned(cache):
    _introspect.reset_predictions()
    yield cache.with_name("predictions.json")
    _introspect.reset_predictions()


def test_tune_measures_this_gpu(untuned):
    pytest.importorskip("scipy")
    found = fastgemm.tune(seconds=5)
    assert found.gpu == _introspect.gpu() and found.saved and _introspect.knowledge() == "tuned"
    assert 5 <= found.seconds < 10 and len(found.points) >= 20
    for point in found.points:
        assert all(1e-6 < seconds < 1 for seconds in point.seconds.values()), point
    assert {"float64", "float32", "tf32", "float16", "bfloat16", "int8", "int32"} == set(found.after)
    for series, quality in found.after.items():
        assert 1 <= quality.free < 1.5, (series, quality)

    code = "from fastgemm import _introspect as i; import torch; torch.cuda.init(); print(i.knowledge())"
    done = run_python(["-c", code])
    assert (done.stdout, done.stderr) == ("tuned\n", "")

    result = CliRunner().invoke(main, ["tune", "--forget"])
    assert result.output == f"{found.gpu}: forgotten\n"
    assert _introspect.knowledge() != "tuned"


def test_tune_on_the_command_line(untuned):
    pytest.importorskip("scipy")
    result = CliRunner().invoke(main, ["tune", "--seconds", "2", "--dtype", "bf16", "--json", "-"])
    assert result.exit_code == 0, result.output
    assert {problem[0] for problem, _ in json.loads(result.stdout)["points"]} == {"bfloat16"}
    text = CliRunner().invoke(main, ["info"]).stdout
    assert "tuned: " in text and f"{_introspect.gpu()}: compute capability" in " ".join(text.split())


def test_an_import_that_finds_what_was_tuned_does_not_start_the_driver(untuned):
    """A process that imported fastgemm may fork, and the child may use the GPU."""
    pytest.importorskip("scipy")
    assert fastgemm.tune(seconds=1, dtypes=["int8"]).saved
    code = (
        "import fastgemm, multiprocessing as mp, torch\n"
        "def use(q): q.put(torch.ones(3, device='cuda').sum().item())\n"
        "q = mp.get_context('fork').Queue(); p = mp.get_context('fork').Process(target=use, args=(q,))\n"
        "p.start(); print(q.get(timeout=60)); p.join()"
    )
    done = run_python(["-c", code])
    assert done.stdout == "3.0\n", done.stderr


def test_large_transposes_are_never_left_to_torch():
    """Holds with or without a table of this GPU: torch's copy of a transposed view has a third of the rate."""
    for dtype in (torch.int8, torch.bfloat16, torch.float32, torch.float64):
        for shape in ((8192, 8192), (8191, 8193)):
            a = torch.empty(shape, dtype=dtype, device="cuda")
            assert tuning.chosen_kernel(tuning.transpose_key(a)) != "torch"
