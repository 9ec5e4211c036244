"""``fastgemm tune``, and what ``fastgemm info`` says of devices."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from fake_gpu import SECONDS, FakeGpu
from fastgemm import _introspect, _tune
from fastgemm._tune.problems import SERIES
from fastgemm.cli import known, main

pytest.importorskip("scipy")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FASTGEMM_CACHE_DIR", str(tmp_path / "cache"))
    _introspect.reset_predictions()

    def invoke(*arguments: str, code: int = 0):
        result = CliRunner().invoke(main, list(arguments))
        assert result.exit_code == code, result.output + repr(result.exception)
        return result

    yield invoke
    _introspect.reset_predictions()


@pytest.fixture
def gpu(monkeypatch):
    found = FakeGpu(factors={"mma_sync": 0.6, "small_tile": 2.0, "dmma": 1.7})
    monkeypatch.setattr(_tune, "gpu_at_hand", lambda: found.target)
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


def test_tune_json_on_stdout_is_only_json(run, gpu):
    assert json.loads(run("tune", "--seconds", str(SECONDS), "--dtype", "int32", "--json", "-").stdout)


def test_tune_of_some_types(run, gpu):
    rows = run("tune", "--seconds", "0.5", "--dtype", "fp16", "--dtype", "int8").stdout
    assert "float16" in rows and "int8" in rows and "float64" not in rows and "tf32" not in rows


def test_tune_forget(run, gpu):
    run("tune", *seconds_of(2))
    assert run("tune", "--forget").stdout == f"{gpu.name}: forgotten\n"
    assert _introspect.knowledge(gpu.properties) == "predicted"
    assert "nothing was tuned" in run("tune", "--forget").stdout


@pytest.mark.parametrize("arguments", [[], ["--forget"]])
def test_tune_without_a_gpu(run, monkeypatch, arguments):
    monkeypatch.setattr(_tune, "cuda_obstacle", lambda: "torch sees no CUDA device")
    message = "Error: fastgemm tune measures a GPU; there is none here: torch sees no CUDA device\n"
    assert run("tune", *arguments, code=1).stderr == message


def test_tune_without_scipy(run, gpu, monkeypatch):
    monkeypatch.setattr(_tune, "find_spec", lambda name: None)
    assert "pip install 'fastgemm[tune]'" in run("tune", code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seconds", "0"], "--seconds"),
        (["--seconds", "nan"], "--seconds"),
        (["--dtype", "complex128"], "gemm takes"),
        (["--forget", "--json", "x.json"], "--forget goes alone"),
        (["--forget", "--dtype", "int8"], "--forget goes alone"),
        (["--json", "no/such/folder/r.json"], "does not exist"),
    ],
)
def test_usage_errors_exit_with_2(run, gpu, arguments, message):
    assert message in run("tune", *arguments, code=2).stderr


# fastgemm info


@pytest.fixture
def one_gpu(gpu, monkeypatch):
    """torch sees the GPU that is not there."""
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


def lines_of(run) -> str:
    return " ".join(run("info").stdout.split())


def test_info_of_a_gpu_that_was_not_measured(run, one_gpu):
    text = lines_of(run)
    assert f"{one_gpu.name}: compute capability 8.0, 1.41 GHz, 40 MiB of L2, 2039 GB/s" in text
    assert (
        "portable path" in text and "predicted: own kernels where they beat what the library cannot" in text
    )


def test_info_of_a_gpu_like_the_one_that_was_measured(run, one_gpu):
    one_gpu.properties |= {"capability": 90, "wgmma": True}
    text = lines_of(run)
    assert "compute capability 9.0" in text and "wgmma" in text
    assert "measured: constants and library measured on an H200, scaled to this GPU" in text


def test_info_of_a_tuned_gpu(run, one_gpu):
    run("tune", *seconds_of(2))
    (found,) = json.loads(run("info", "--json").stdout)["gpus"]
    assert found["knowledge"] == "tuned" and found["tuned"]["points"] == 2 * len(SERIES)
    assert f"tuned: {found['tuned']['when']}, {2 * len(SERIES)} problems" in lines_of(run)


def test_info_of_a_gpu_without_kernels(run, one_gpu):
    one_gpu.properties |= {"capability": 0}
    assert "no kernel of this build runs on it" in lines_of(run)


def test_info_of_a_damaged_file(run, one_gpu, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "predictions.json").write_text("{")
    assert "predicted: " in lines_of(run)


def test_info_says_whether_the_processor_was_measured(run, monkeypatch):
    assert json.loads(run("info", "--json").stdout)["processor_measured"] == known.processor_measured()
    build = _introspect.build_info()
    monkeypatch.setattr(_introspect, "build_info", lambda: build | {"cpu_model": "Another-1-2-avx2"})
    assert "not measured: level=None goes by predictions, and transposes by the highest level" in lines_of(
        run
    )
    measured = "AuthenticAMD-25-17-avx2+avx512+avx512_vnni+avx512_bf16"
    monkeypatch.setattr(_introspect, "build_info", lambda: build | {"cpu_model": measured})
    assert "measured: kernels by the table of this type" in lines_of(run)
