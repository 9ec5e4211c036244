"""Tests the tables of weak_spots, peers and accuracy with made-up reports of a GPU."""

from dataclasses import replace

import pytest
import torch
from fastgemm.bench import Gemm
from fastgemm.bench.records import Measurement, Report
from fastgemm.bench.timing import Summary
from render.accuracy import BLOCKS, multiple
from render.pages import OF_FILES
from render.spec import program
from reports import GPU, gpu_row
from studies.accuracy import run_accuracy
from studies.accuracy.contenders import BASELINE, Contender
from studies.accuracy.records import IntegerProduct, SpecialValue

METHOD = {"text": "as measured", "back_to_back": "in batches", "timer": "cuda events"}


def weak_spots() -> Report:
    rows: list[Measurement] = []

    def trio(problem, group, kernel, own, default, library=True, **more) -> list[Measurement]:
        found = [
            gpu_row(problem, group, kernel, own, 6, **more),
            gpu_row(problem, group, "chosen", default, **more),
        ]
        if library:
            return [*found, gpu_row(problem, group, "torch.matmul", 50.0, None, "baseline", **more)]
        for row in found:
            row.speedup = None
        return found

    limit = {"limit": 60.0, "limit_name": "FMA peak"}
    for n, rate in ((4096, 120.0), (8192, 130.0)):
        rows += trio(Gemm(n, n, n, precision="ieee"), "float32", "bf16x6", rate, 0.99 * rate, **limit)
    rows += trio(Gemm(4096, 4096, 4096, torch.int32), "int32", "int8x10", 150.0, 75.0, library=False)
    rows += trio(Gemm(8192, 8192, 8192, precision="ieee"), "back to back", "bf16x6", 110.0, 109.0, joules=5.0)
    return Report("bench", GPU, {**METHOD, "presets": ["weak_spots"]}, rows)


def test_weak_spots():
    report = weak_spots()
    means, problems, sustained = (
        OF_FILES[f"gpu_weak_spots{name}"].text(report) for name in ("_means", "", "_sustained")
    )
    assert (
        "| float32 | `bf16x6` | 2 | 130 TFLOPS | 217 % of FMA peak | `torch.matmul` | 2.50 | 2.40 | 0.99 | 0.99 |"
        in means
    )
    assert "| int32 | `int8x10` | 1 | 150 TFLOPS | - | torch has none | - | - | 0.50 | 0.50 |" in means
    product = "| 4096x4096x4096 | `bf16x6` | 120 TFLOPS | 200 % of FMA peak | `torch.matmul` | 2.40 |"
    assert product in problems and "NVIDIA Test (driver 580" in problems
    assert "| level 6 | `bf16x6` | 110 TFLOPS | 2.20 | 1800 | 650 | 5 | 100.00 |" in sustained
    assert "Back to back: in batches. Energy comes from the GPU's counter." in sustained


def peers() -> Report:
    rows = []
    for n, own, jax in ((2048, 90.0, 35.0), (4096, 120.0, 80.0)):
        for kernel, role, choice, rate in (
            ("torch.matmul", "baseline", "ieee", 50.0),
            ("bf16x6", "rung", "level 6, ieee", own),
            ("JAX", "peer", "BF16_BF16_F32_X6", jax),
            ("Triton", "peer", "bf16x3", None),
        ):
            row = gpu_row(Gemm(n, n, n), "float32", kernel, rate or 1.0, None, role)
            row.choice, row.seconds, row.telemetry = choice, None, None
            row.back_to_back, row.back_to_back_rate = Summary.of([1.0]), rate
            row.rate = None if kernel == "JAX" else rate
            row.component_error, row.setup_seconds = (n * 1e-10, 1.5) if rate else (None, None)
            row.speedup = Summary.of([rate / 50]) if rate and role != "baseline" else None
            row.message = "" if rate else "not installed"
            rows.append(row)
    environment = {**GPU, "peers": {"Triton": None, "JAX": "0.11.2"}}
    return Report("bench", environment, {**METHOD, "presets": ["peers"], "setup_seconds": 25.0}, rows)


def test_peers():
    text = OF_FILES["gpu_peers"].text(peers())
    head = "| product | asked for | 2048, cold | 4096, cold | 2048, back to back | 4096, back to back |"
    assert head in text
    assert "| **fastgemm** | `level 6, ieee` | 90.0 | 120 | 90.0 | 120 | 2.08 | 4.1e-07 | 3.0 |" in text
    assert "| JAX | `BF16_BF16_F32_X6` | - | - | 35.0 | 80.0 | 1.06 |" in text
    assert "- not installed (Triton `bf16x3`, float32 2048; Triton `bf16x3`, float32 4096)" in text
    assert "as measured; and in batches" in text and "Triton not installed, JAX 0.11.2." in text


@pytest.fixture(scope="module")
def of_cpu():
    return run_accuracy(
        "cpu", shapes=[(20, 30, 40), (20, 30, 500), (7, 9, 41)], seed=2, rivals=[BASELINE], integers=[]
    )


@pytest.fixture
def accuracy(of_cpu):
    """A report like that of a GPU: the errors of a CPU with the names of a GPU's kernels."""
    rivals = [Contender("bf16x6"), Contender("fp16x3", "fp16x3"), Contender("torch.matmul", "tf32")]
    report = replace(of_cpu, environment={**of_cpu.environment, **GPU}, results=list(of_cpu.results))
    report.special = [SpecialValue("NaN", "torch.matmul", "ieee", 50, 0)]
    for rival, factor in zip(rivals, (0.5, 1.25, 2000.0), strict=True):
        of = {"kernel": rival.kernel, "precision": rival.precision, "threads": 0}
        report.results += [
            replace(e, normwise=e.normwise * factor, componentwise=e.componentwise * factor, **of)
            for e in of_cpu.results
        ]
        report.special.append(SpecialValue("NaN", rival.kernel, rival.precision, 50, int(factor == 1.25)))
    report.integers = [IntegerProduct("int8x10", 3, 4, 5, 0)]
    return report


def test_accuracy(accuracy, of_cpu):
    text = "\n".join(block.text(accuracy) for block in BLOCKS.values())
    for part in (
        "| normwise, K = | kernel | 40 | 500 |",
        "| normal | `bf16x6` | 0.50 | 0.50 |",
        "| spiked | `fp16x3` | **1.25** | **1.25** |",
        "| `fp16x3` | 7 x 9 | 41 | **1.25** (",
        "| cuBLAS SGEMM | ieee |",
        "| cuBLAS, tf32 | tf32 |",
        "**2e+03**",
        "| `fp16x3` | fp16x3 | **no**: 1 of 50 |",
        "wrong elements: 0 of 12 (`int8x10`; 3x4x5)",
    ):
        assert part in text, part
    assert "Errors are divided by the error of torch.matmul" in BLOCKS["cpu_accuracy_ratios"].text(of_cpu)
    assert [multiple(v) for v in (0.5, 1.0, 1.004, 1.01, 12.34, 345.6, 6789.0)] == [
        *("0.50", "1.00", "1.00", "**1.01**", "**12.3**", "**346**", "**7e+03**")
    ]


def test_a_kernel_that_rejects_short_sums(accuracy):
    """The kernel has no error for short sums. Tables show a dash, and worst cases leave these sums out."""
    accuracy.results = [e for e in accuracy.results if e.kernel != "bf16x6" or e.k > 100]
    assert "| normal | `bf16x6` | - | 0.50 |" in BLOCKS["accuracy_ratios"].text(accuracy)
    assert "| `bf16x6` | 7 x 9 |" not in BLOCKS["accuracy_sizes"].text(accuracy)
    assert "| `bf16x6` | 20 x 30 | 500 | 0.50 (" in BLOCKS["accuracy_sizes"].text(accuracy)


@pytest.mark.parametrize(
    ("presets", "command"),
    [
        (["weak_spots"], "python benchmarks/run.py weak_spots"),
        (["squares", "odd"], "fastgemm bench --preset squares --preset odd"),
        ([], "fastgemm bench"),
    ],
)
def test_a_page_names_a_command_of_today(presets, command):
    assert program(Report("bench", GPU, {"presets": presets}, [])) == command
