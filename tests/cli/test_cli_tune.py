"""Tests ``fastgemm tune``, and the lines of ``fastgemm info`` about devices."""

import contextlib
import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from fake_cpu import FakeCpu
from fake_gpu import SECONDS, FakeGpu
from fastgemm import _introspect, _tune, tuning
from fastgemm._tune.problems import SERIES
from fastgemm.cli import known, main
from fit_cpu_costs import ZEN4

pytest.importorskip("scipy")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FASTGEMM_CACHE_DIR", str(tmp_path / "cache"))
    _introspect.reset_predictions()
    _introspect.reset_cpu_costs()

    def invoke(*arguments: str, code: int = 0):
        result = CliRunner().invoke(main, list(arguments))
        assert result.exit_code == code, result.output + repr(result.exception)
        return result

    yield invoke
    _introspect.reset_predictions()
    _introspect.reset_cpu_costs()


@pytest.fixture
def gpu(monkeypatch):
    found = FakeGpu(factors={"mma_sync": 0.6, "small_tile": 2.0, "dmma": 1.7})
    monkeypatch.setattr(_tune, "gpu_at_hand", lambda: found.target)
    return found


@pytest.fixture
def cpu(monkeypatch):
    """The answers of a machine without a GPU."""
    found = FakeCpu(factors={"pipelined": 1.4})
    monkeypatch.setattr(_tune, "cuda_obstacle", lambda: "torch sees no CUDA device")
    monkeypatch.setattr(_tune, "cpu_at_hand", lambda: found.target)
    return found


def seconds_of(rounds: int) -> list[str]:
    return ["--seconds", str(rounds * len(SERIES) * SECONDS)]


def test_tune_shows_how_much_better_choices_are(run, gpu, tmp_path):
    result = run("tune", *seconds_of(12))
    rows = {
        line.split("│")[1].strip(): line.split("│")[2:7] for line in result.stdout.splitlines() if "│" in line
    }
    assert set(rows) == {dtype if precision == "ieee" else precision for dtype, precision in SERIES}
    for problems, *means in rows.values():
        assert int(problems) == 12 and all(1 <= float(mean) < 10 for mean in means)
    assert f"{gpu.name}: {12 * len(SERIES)} problems in" in result.stdout
    assert str(tmp_path / "cache" / "predictions.json") in result.stderr.replace("\n", "")
    assert _introspect.knowledge(gpu.properties) == "tuned"


def test_tune_writes_json(run, gpu):
    run("tune", *seconds_of(2), "--json", "t.json")
    found = json.loads(Path("t.json").read_text())
    assert found["gpu"] == gpu.name and found["counts"] == list(_introspect.COUNTS)
    assert len(found["points"]) == 2 * len(SERIES)
    problem, seconds = found["points"][0]
    assert len(problem) == len(found["problem"]) and min(seconds.values()) > 0 and "library" in seconds
    assert {fit[0] for fit in found["fitted"]["kernels"]} >= {"mma_sync", "dmma", "bf16x6"}
    assert set(found["before"]) == set(found["after"]) >= {"float64", "tf32"}


def test_tune_of_some_types_whose_json_is_alone_on_stdout(run, gpu):
    types = ["--seconds", "0.5", "--dtype", "fp16", "--dtype", "int8"]
    rows = run("tune", *types).stdout
    assert "float16" in rows and "int8" in rows and "float64" not in rows and "tf32" not in rows
    assert json.loads(run("tune", *types, "--json", "-").stdout)


@pytest.mark.parametrize("arguments", [[], ["--forget"]])
def test_tune_of_a_gpu_that_is_not_there(run, monkeypatch, arguments):
    monkeypatch.setattr(_tune, "cuda_obstacle", lambda: "torch sees no CUDA device")
    message = "Error: fastgemm tune measures a GPU, and none can be used here: torch sees no CUDA device"
    assert run("tune", "--device", "cuda", *arguments, code=1).stderr == f"{message}\n"


def test_tune_on_a_cpu(run, cpu, tmp_path):
    result = run("tune", "--seconds", str(60 * cpu.SECONDS), "--dtype", "float32", "--json", "t.json")
    assert "float32" in result.stdout and f"{cpu.name}: 60 problems in" in result.stdout
    found = json.loads(Path("t.json").read_text())
    assert found["counts"] == list(_introspect.CPU_COUNTS) and len(found["points"]) == 60
    _, threads, seconds = found["points"][0]
    assert threads in (1, 4) and "torch" in seconds
    (state,) = [json.loads(run("info", "--json").stdout)["processor"]]
    assert state["knowledge"] == "tuned" and state["tuned"]["points"] == 60
    assert f"tuned: {state['tuned']['when']}, 60 problems" in lines_of(run)
    assert run("tune", "--device", "cpu", "--forget").stdout == f"{cpu.name}: forgotten\n"
    assert _introspect.cpu_knowledge() != "tuned"
    assert "nothing was tuned" in run("tune", "--forget").stdout


def test_what_info_names_for_one_product_keeps_a_kernel(run):
    command = known.ON_A_CPU.replace("1024", "17").split()[1:]
    result = run(*command, "--device", "cpu", "--budget", "0.001")
    assert "written: " in result.stderr and "autotune.json" in result.stderr.replace("\n", "")
    assert json.loads(run("info", "--json").stdout)["tuned_problems"] >= 1
    tuning.clear_cache()


# fastgemm info


@pytest.fixture
def one_gpu(gpu, monkeypatch):
    """Makes torch report a GPU that does not exist."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA Test")
    monkeypatch.setattr(_introspect, "gpu", lambda: gpu.name)
    monkeypatch.setattr(_introspect, "gpu_properties", lambda: gpu.properties)
    knowledge = _introspect.knowledge
    monkeypatch.setattr(
        _introspect, "knowledge", lambda properties=None: knowledge(properties or gpu.properties)
    )
    return gpu


def own_on_cpu(row: dict) -> bool:
    return row["device"] == "cpu" and row["role"] == "rung" and row["level"] < 7


def lines_of(run) -> str:
    return " ".join(run("info").stdout.split())


def test_info_of_a_gpu_that_was_not_measured(run, one_gpu):
    text = lines_of(run)
    for part in (
        f"{one_gpu.name}: compute capability 8.0, 1.41 GHz, 40 MiB of L2, 2039 GB/s",
        "portable path",
        "measured predicted: this GPU was not measured",
        "level=None kernels of fastgemm where they are predicted to beat the library for certain; else torch",
        "next fastgemm tune measures this GPU, in two minutes",
        "fastgemm ladder --device cpu times every level beside torch; fastgemm tune --device cpu measures",
        f"; {known.ON_A_CPU} --device cpu",
    ):
        assert part in text
    # The output ends here.
    assert text.index("fastgemm ladder --device cpu") < text.index("fastgemm tune measures")
    one_gpu.properties |= {"capability": 90, "wgmma": True}
    text = lines_of(run)
    assert "compute capability 9.0" in text and "wgmma" in text
    assert "measured: constants and library measured on an H200, scaled to this GPU" in text
    assert "next fastgemm tune measures exactly this GPU, in two minutes" in text
    one_gpu.properties |= {"capability": 0}
    assert "no kernel of this build runs on it" in lines_of(run)


def test_info_of_a_tuned_gpu(run, one_gpu):
    run("tune", *seconds_of(2))
    (found,) = json.loads(run("info", "--json").stdout)["gpus"]
    assert found["knowledge"] == "tuned" and found["tuned"]["points"] == 2 * len(SERIES)
    text = lines_of(run)
    assert f"tuned: {found['tuned']['when']}, {2 * len(SERIES)} problems" in text
    of_gpu = text[text.index(one_gpu.name) :]
    assert "fastgemm tune" not in of_gpu and "next fastgemm ladder times every level" in of_gpu


def test_info_of_a_damaged_file(run, one_gpu, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "predictions.json").write_text("{")
    assert "predicted: " in lines_of(run)


def test_info_says_whether_the_processor_was_measured(run):
    try:
        _introspect.set_cpu(ZEN4 | {"l2": 5 << 18})
        text = lines_of(run)
        assert "predicted: this family of processors was not measured" in text and "(zen4)" in text
        assert "kernels of fastgemm where they are predicted to be 24 % faster than torch" in text
        if not torch.cuda.is_available():  # the command measures a GPU first
            assert "fastgemm tune measures this processor, in two minutes" in text and known.ON_A_CPU in text
        _introspect.set_cpu(ZEN4)
        text = lines_of(run)
        assert "measured: constants and products measured on a processor of this family (zen4)" in text
        assert json.loads(run("info", "--json").stdout)["processor"] == {
            "knowledge": "measured",
            "family": "zen4",
        }
    finally:
        _introspect.set_cpu(None)


def test_info_says_what_level_none_takes(run, monkeypatch):
    """On a processor without a table, products are predicted; transposes and sums use the highest level."""
    rows = {row["op"]: row for row in json.loads(run("info", "--json").stdout)["kernels"] if own_on_cpu(row)}
    try:
        _introspect.set_cpu({"model": "Another-1-2-avx2"})
        for op in ("transpose", "add"):
            widths = ("bits32", "bits32") if op == "transpose" else ("float32", "float32")
            key = (op, "cpu", *widths, "ieee", False, False, False, 1, 1, 4096, 4096, 0)
            assert _introspect.chosen(key) == rows[op]["name"]
        problem = ("float32", "ieee", 1, 512, 512, 512, False, False)
        key = ("gemm", "cpu", "float32", "float32", "ieee", False, False, False, 1, 1, 512, 512, 512)
        assert _introspect.chosen(key) == _introspect.cpu_predictions(problem, 1)[0][0]
    finally:
        _introspect.set_cpu(None)


def test_tune_without_scipy(run, gpu, monkeypatch):
    monkeypatch.setattr(_tune, "find_spec", lambda name: None)
    assert "pip install 'fastgemm[tune]'" in run("tune", code=1).stderr
