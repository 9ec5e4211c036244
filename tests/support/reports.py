"""Made-up reports of measurements, reports of tiny problems, and a timer with given samples."""

from pathlib import Path

import torch
from fastgemm.bench import Gemm, Transpose
from fastgemm.bench.ladder import run_ladder
from fastgemm.bench.presets import preset_cases
from fastgemm.bench.problems import label
from fastgemm.bench.records import Measurement, Report
from fastgemm.bench.sweep import run_sweep
from fastgemm.bench.timing import Summary

GPU = {
    "device": "NVIDIA Test",
    "device_type": "cuda",
    "driver": "580",
    "cuda": "13.0",
    "cublas": "13.0.2",
    "torch": "2.11.0",
    "date": "2026-01-01T00:00:00+00:00",
    "commit": "0123456789ab",
}


class Script:
    """A timer with given samples that records the order of the calls."""

    name = method = "script"
    min_sample, overhead = 200e-6, 0.0

    def __init__(self, seconds):
        self.seconds, self.calls = seconds, []

    def sample(self, call, repeats):
        self.calls.append(call())
        return self.seconds[call()]


def small_sweep() -> Report:
    choices = ((), (("level", 5),), (("kernel", "naive"),))
    cases = preset_cases("small", "gemm", [torch.float32], ["NN"], choices, 1)[:2]
    return run_sweep(cases, budget=0.002)


def gpu_row(problem, group, kernel, rate, level=None, role="rung", **more) -> Measurement:
    """A row as measured on a GPU. torch reaches a rate of 50 and takes 1 ms."""
    choice = "" if role == "baseline" else f"level {level}" if level else "fastest"
    row = Measurement(
        *(
            problem.op,
            problem.shape,
            label(problem),
            str(problem.dtype).removeprefix("torch."),
            problem.layout,
        ),
        *(0, kernel, level, role, group, choice, "TFLOPS", rate),
        baseline=problem.baseline,
        precision=problem.precision or "",
        **more,
    )
    row.seconds = Summary.of([0.05 / rate])
    row.speedup = Summary.of([rate / 50]) if role == "rung" else None
    row.telemetry = {"sm_clock_mhz": 1800.0, "power_w": 650.0, "power_most_w": 700.0, "throttled_by": []}
    return row


def make_site(tmp_path: Path) -> Path:
    """A folder with reports, and with pages whose blocks tools/render_results.py fills."""
    results = tmp_path / "benchmarks" / "results" / "cpu"
    results.mkdir(parents=True)
    (results / "ladder.json").write_text(
        run_ladder([Gemm(16, 16, 16), Transpose(16, 16)], budget=0.001).to_json()
    )
    (results / "reference.json").write_text(small_sweep().to_json())
    (tmp_path / "docs").mkdir()
    blocks = "".join(
        f"<!-- {n}:begin -->\nold\n<!-- {n}:end -->\n" for n in ("ladder", "reference", "kernels")
    )
    (tmp_path / "README.md").write_text(f"before\n{blocks}after\n")
    (tmp_path / "docs" / "a.md").write_text("<!-- ladder:begin -->\n<!-- ladder:end -->\n")
    return tmp_path
