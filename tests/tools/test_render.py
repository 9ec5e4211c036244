"""What tools/render_results.py makes of reports."""

from __future__ import annotations

import fastgemm
import pytest
import torch
from fastgemm.bench import Gemm, Transpose
from fastgemm.bench.gpu_presets import RUNGS_GROUP
from fastgemm.bench.problems import LAYOUTS
from fastgemm.bench.records import Report, read_report
from fastgemm.bench.sweep import default_means, group_means
from reports import GPU, gpu_row, make_site
from scripts import tool


@pytest.fixture
def site(tmp_path):
    return make_site(tmp_path)


def test_render_results(site, capsys):
    render = tool("render_results")
    assert render.main(["--check"], root=site) == 1
    assert "README.md is out of date" in capsys.readouterr().err
    assert render.main([], root=site) == 0
    assert render.main(["--check"], root=site) == 0
    readme = (site / "README.md").read_text()
    assert readme.startswith("before\n") and readme.endswith("after\n") and "old" not in readme
    assert "(docs/img/ladder_cpu.svg)" in readme and "`naive`" in readme
    assert "(img/ladder_cpu.svg)" in (site / "docs" / "a.md").read_text()
    assert fastgemm.build_info()["cpu_model"] in readme, "every figure says where it was measured"
    (site / "docs" / "img" / "ladder_cpu.svg").write_text("<svg/>")
    assert render.main(["--check"], root=site) == 1


def gpu_reports() -> dict[str, Report]:
    def pair(problem, group, kernel, rate, level=None, **more):
        ours = gpu_row(problem, group, kernel, rate, level, **more)
        return [ours, gpu_row(problem, group, "torch.matmul", 50.0, None, "baseline", **more)]

    method = {"timer": "cuda events", "text": "as measured", "seed": 7, "step": 128}
    reference, sizes, sweep = [], [], []
    for layout in LAYOUTS:
        cube, group = Gemm(4096, 4096, 4096, layout=layout), f"fp32 4096 {layout}"
        reference += [gpu_row(cube, group, f"rung{level}", 10.0 * level, level) for level in range(1, 6)]
        reference.append(gpu_row(cube, group, "torch.matmul", 50.0, None, "baseline"))
    reference += pair(Gemm(8192, 8192, 8192), "fp32 1024..16384", "rung5", 55.0, 5)
    integers = gpu_row(Gemm(8192, 8192, 8192, torch.int32), "int32", "rung5", 26.0, 5)
    integers.speedup = None  # torch has no int32 product on CUDA
    reference.append(integers)
    square = Transpose(8192, 8192)
    reference += pair(square, "transpose", "saturating", 4000.0, 5, share_of_limit=0.97)
    reference += [gpu_row(square, "transpose", "cublas_geam", 3800.0)]
    for n in (128, 256):
        sizes += pair(Gemm(n, n, n), "sizes float32", "rung5", 40.0, 5)
    for n in (1024, 8192):
        sweep += pair(Gemm(n, n, n), "sweep float32", "rung5", 40.0, 5, joules=20.0)
    tensor = []
    for n, rate in ((4096, 55.0), (8192, 60.0)):
        tensor += pair(Gemm(n, n, n, torch.bfloat16, "NT"), "bfloat16", "wgmma_specialized", rate, 6)
        tensor.append(gpu_row(Gemm(n, n, n, torch.bfloat16, "NT"), "bfloat16", "chosen", 54.0))
    tensor += pair(Gemm(4096, 4096, 4096, precision="tf32"), "tf32 NN, TT", "wgmma_specialized", 45.0, 6)
    large = Gemm(8192, 8192, 8192, torch.bfloat16)
    for name, rate in (("wmma", 20.0), ("wgmma", 40.0)):
        tensor.append(gpu_row(large, RUNGS_GROUP, name, rate, share_of_limit=rate / 80, limit=80.0))
    tensor.append(gpu_row(large, RUNGS_GROUP, "torch.matmul", 50.0, None, "baseline"))
    outlier = {"problem": "float16 3x4x5", "kernel": "slow", "first": 0.8, "settled": 0.9}
    random60 = pair(Gemm(3, 4, 5, torch.float16), "random float16", "slow", 45.0)
    worst = {"problem": "float16 3x4x5", "kernel": "slow", "speedup": 0.9, "of_allowed_time": 1.07}
    summary = {"measured_again": [outlier], "outliers": [outlier], "against_torch": {"worst": worst}}
    host = [gpu_row(Gemm(16, 16, 16), "", name, 50.0) for name in ("torch.mm", "fastgemm.matmul")]
    found = {
        "reference": Report("bench", GPU, method, reference),
        "tensor_cores": Report("bench", GPU, method, tensor),
        "sizes": Report("bench", GPU, method, sizes),
        "sweep": Report("bench", GPU, {**method, "timer": "sustained"}, sweep),
        "random60": Report("bench", GPU, method, random60, summary),
        "host": Report(
            "host-time", GPU, method, host, {"relative_to_torch_mm": {"torch.mm": 1, "fastgemm.matmul": 1.2}}
        ),
    }
    for report in found.values():
        report.summary["geometric_means"] = group_means(report.results)
        report.summary["default_of_best"] = default_means(report.results)
    return found


def test_the_picture_of_the_ladder_alone(site):
    (site / "README.md").write_text("<!-- ladder_picture:begin -->\n<!-- ladder_picture:end -->\n")
    of_cpu = read_report(site / "benchmarks" / "results" / "cpu" / "ladder.json")
    folder = site / "benchmarks" / "results" / "gpu"
    folder.mkdir()
    (folder / "ladder.json").write_text(Report("ladder", GPU, of_cpu.method, of_cpu.results).to_json())
    render = tool("render_results")
    assert render.main([], root=site) == 0
    text = (site / "README.md").read_text()
    assert "(docs/img/ladder_gpu.svg)" in text and "Measured on NVIDIA Test" in text
    assert "ladder_cpu.svg" not in text and "| level |" not in text
    assert (site / "docs" / "img" / "ladder_gpu.svg").exists()


def test_render_results_of_a_gpu(site):
    blocks = "".join(
        f"<!-- gpu_{n}:begin -->\n<!-- gpu_{n}:end -->\n"
        for n in (
            *("rungs", "reference", "random60", "host", "sizes", "sweep"),
            *("tensor_rungs", "tensor_cores", "tensor_means"),
        )
    )
    (site / "README.md").write_text(blocks)
    render = tool("render_results")
    assert render.main([], root=site) == 0
    assert (site / "README.md").read_text() == blocks, "blocks without a file stay empty"
    folder = site / "benchmarks" / "results" / "gpu"
    folder.mkdir()
    for name, report in gpu_reports().items():
        (folder / f"{name}.json").write_text(report.to_json())
    assert render.main([], root=site) == 0
    text = (site / "README.md").read_text()
    for part in (
        "| 3 | `rung3` | 30.0 | 30.0 | 30.0 | 30.0 | 0.60 | - | 1.50x | 1.50x | 1.50x | 1.50x |",
        "| float32 | 8192x8192x8192 | `rung5` | 55.0 TFLOPS | 50.0 | 1.10 |",
        "| int32 | 8192x8192x8192 | `rung5` | 26.0 TFLOPS | - | - |",
        "| transpose 8192x8192 | float32 | `saturating` | 4000 | 97 % | 1.05 |",
        "still slower than max(1.04 torch, torch + 1 us): float16 3x4x5 (0.90, `slow`). Worst case",
        "float16 3x4x5 (`slow`), 0.90 of torch's rate, 107 % of that time. Seed 7.",
        "| `fastgemm.matmul` | 1000000 | 1.20 |",
        "| level 5 | 40.0 | 40.0 |",
        "(docs/img/sweep_gpu.svg)",
        "| `wmma` | 20.0 | 25 % | 0.40 | - |",
        "| `wgmma` | 40.0 | 50 % | 0.80 | 2.00x | 90 | 96 KB |",
        "| bfloat16 NT | `wgmma_specialized` | `torch.matmul` | 55.0 (1.10) | 60.0 (1.20) | 1.15 |",
        "| tf32 NN | `wgmma_specialized` | `torch.matmul` | 45.0 (0.90) |  | 0.90 |",
        "| bfloat16 | 60 TFLOPS | `torch.matmul` | 1.15 | 1.10 | 0.94 | 0.90 |",
        "The limit, 80.0 TFLOPS, is the data sheet's.",
        "NVIDIA Test (driver 580, CUDA 13.0, cuBLAS 13.0.2), torch 2.11.0, 2026-01-01",
    ):
        assert part in text, part
    assert render.main(["--check"], root=site) == 0


def test_render_results_refuses_bad_markers(site):
    render = tool("render_results")
    (site / "README.md").write_text("<!-- ladder:begin -->\n")
    with pytest.raises(SystemExit, match="no partner"):
        render.main([], root=site)
    (site / "README.md").write_text("<!-- nothing:begin -->\n<!-- nothing:end -->\n")
    with pytest.raises(SystemExit, match="unknown block"):
        render.main([], root=site)


def test_rates_of_the_portable_path():
    portable = tool("render_results").portable
    assert portable.sections([]) == "Not measured yet."
    env = {"device": "NVIDIA Test", "driver": "580", "cuda": "13.0", "cublas": "13.1", "torch": "2.11"}
    env |= {"date": "2026-01-01T00:00:00", "commit": "abc"}
    times = {"portable_seconds": 2e-3, "hopper_seconds": 1e-3, "torch_seconds": None}
    rows = [
        {"name": "bf16x6", "dtype": "float32", "shape": [1000, 1000, 1000], **times, "torch_seconds": 4e-3},
        {"name": "int8x10", "dtype": "int32", "shape": [1000, 1000, 2000], **times},
    ]
    text = portable.sections([{"environment": env, "results": rows}])
    assert "| float32 1000x1000x1000 | `bf16x6` | TFLOPS | 1 | 2 | 0.5 | 0.50 | 2.00 |" in text
    assert "| int32 1000x1000x2000 | `int8x10` | TOPS | 2 | 4 | - | 0.50 | - |" in text
    assert text.endswith("torch 2.11, 2026-01-01, commit abc.")
    text = portable.sections([{"environment": env | {"portable_commit": "def"}, "results": rows}])
    assert text.endswith("commit def (portable), abc (sm_90a).")


def test_support_names_every_rung_of_levels_5_and_6():
    support = tool("render_results").support
    text = support.kernels_section()
    for row in fastgemm.kernels("gemm", device="cuda"):
        listed = row.role == "rung" and row.level in (5, 6)
        assert (f"`{row.name}`" in text) == listed, row.name
    generations = support.generations_section().splitlines()[2:]
    wgmma = [line.split(" | ")[0] for line in generations if "wgmma" in line]
    assert wgmma == ["| 9.0"], "one generation has it"
    assert [line for line in generations if "| measured |" in line] == [
        line for line in generations if "wgmma" in line
    ]


def test_the_worked_example_adds_up():
    choosing = tool("render_results").choosing
    lines = [line.split(" | ") for line in choosing.terms_section().splitlines()[2:]]
    terms = [float(cells[3].strip(" |")) for cells in lines[:-1]]
    total = float(lines[-1][3].strip(" |*"))
    assert len(terms) > 3 and abs(sum(terms) - total) < 0.05 * len(lines)
    chosen = choosing.predictions_section(choosing.Path("nowhere")).splitlines()[2]
    assert f"{total:.1f}" in chosen
