"""Tests the pages that tools/render_results.py makes from reports."""

from dataclasses import replace

import fastgemm
import pytest
import torch
from fastgemm._explain import text as explained_text
from fastgemm.bench import Gemm, Transpose
from fastgemm.bench.problems import LAYOUTS
from fastgemm.bench.records import Report
from fastgemm.bench.sweep import group_means
from pages import PAGES
from render import choosing, explain, groups, pages, support
from reports import GPU, gpu_row, make_site
from scripts import tool
from studies.gpu_presets import RUNGS_GROUP
from studies.reports import read_report
from studies.sweep import default_means

RENDER = tool("render_results")
BLOCKS = {*pages.OF_FILES, *pages.OF_THE_BUILD, *groups.HEADLINES, "counters"}


@pytest.fixture
def site(tmp_path):
    return make_site(tmp_path)


def test_every_block_is_on_a_page():
    on_pages = {
        found.group(2) for page in PAGES for found in pages.BLOCK.finditer(page.read_text(encoding="utf-8"))
    }
    assert on_pages == BLOCKS


def test_pages_are_what_the_results_say(site, capsys):
    assert RENDER.main(["--check"], root=site) == 1
    assert "README.md is out of date" in capsys.readouterr().err
    assert RENDER.main([], root=site) == 0
    assert RENDER.main(["--check"], root=site) == 0
    readme = (site / "README.md").read_text()
    assert readme.startswith("before\n") and readme.endswith("after\n") and "old" not in readme
    assert "(docs/img/ladder_cpu.svg)" in readme and "`naive`" in readme
    assert "(img/ladder_cpu.svg)" in (site / "docs" / "a.md").read_text()
    assert fastgemm.build_info()["cpu_model"] in readme, "every figure says where it was measured"


def a_figure_of_the_page(site):
    page = site / "README.md"
    page.write_text(page.read_text().replace("| 1.00 |", "| 1.01 |"))


def a_figure_of_the_results(site):
    path = site / "benchmarks" / "results" / "cpu" / "ladder.json"
    report = read_report(path)
    report.results[0].rate *= 2
    path.write_text(report.to_json())


def a_picture_of_other_data(site):
    (site / "docs" / "img" / "ladder_cpu.svg").write_text("<svg/>")


def a_picture_that_no_page_shows(site):
    (site / "docs" / "img" / "ladder_h200.svg").write_text("<svg/>")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (a_figure_of_the_page, "README.md"),
        (a_figure_of_the_results, "ladder_cpu.svg"),
        (a_picture_of_other_data, "ladder_cpu.svg"),
        (a_picture_that_no_page_shows, "ladder_h200.svg"),
    ],
)
def test_a_difference_is_found_and_mended(site, capsys, change, named):
    RENDER.main([], root=site)
    change(site)
    assert RENDER.main(["--check"], root=site) == 1
    assert f"{named} is out of date" in capsys.readouterr().err
    assert RENDER.main([], root=site) == 0
    assert RENDER.main(["--check"], root=site) == 0


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
    reference += pair(square, "transpose", "saturating", 4000.0, 5, limit=4000 / 0.97, limit_name="copy_")
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
        tensor.append(gpu_row(large, RUNGS_GROUP, name, rate, limit=80.0))
    tensor.append(gpu_row(large, RUNGS_GROUP, "torch.matmul", 50.0, None, "baseline"))
    outlier = {"problem": "float16 3x4x5", "kernel": "slow", "first": 0.8, "settled": 0.9}
    random60 = pair(Gemm(3, 4, 5, torch.float16), "random float16", "slow", 45.0)
    summary = {"measured_again": [outlier], "outliers": [outlier]}
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


def filled(site, names, files):
    """A page with these blocks, with and without the files of a GPU."""
    blocks = "".join(f"<!-- {name}:begin -->\n<!-- {name}:end -->\n" for name in names)
    (site / "README.md").write_text(blocks)
    assert RENDER.main([], root=site) == 0
    assert (site / "README.md").read_text() == blocks, "blocks without a file stay empty"
    folder = site / "benchmarks" / "results" / "gpu"
    folder.mkdir()
    for name, report in files.items():
        (folder / f"{name}.json").write_text(report.to_json())
    assert RENDER.main([], root=site) == 0
    return (site / "README.md").read_text()


def test_the_picture_of_the_ladder_alone(site):
    of_cpu = read_report(site / "benchmarks" / "results" / "cpu" / "ladder.json")
    text = filled(site, ["ladder_picture"], {"ladder": Report("ladder", GPU, of_cpu.method, of_cpu.results)})
    assert "(docs/img/ladder_gpu.svg)" in text and "Measured on NVIDIA Test" in text
    assert "ladder_cpu.svg" not in text and "| level |" not in text
    assert (site / "docs" / "img" / "ladder_gpu.svg").exists()


def test_tables_of_a_gpu(site):
    names = (
        "rungs",
        "reference",
        "random60",
        "host",
        "sizes",
        "sweep",
        "tensor_rungs",
        "tensor_cores",
        "tensor_means",
    )
    text = filled(site, [f"gpu_{name}" for name in names], gpu_reports())
    for part in (
        "| 3 | `rung3` | 30.0 | 30.0 | 30.0 | 30.0 | 0.60 | - | 1.50x |",
        "| float32 | 8192x8192x8192 | `rung5` | 55.0 TFLOPS | - | 1.10 |",
        "| int32 | 8192x8192x8192 | `rung5` | 26.0 TFLOPS | - | - |",
        "| float32 | transpose 8192x8192 | `saturating` | 4000 TFLOPS | 97 % of copy_ | 80.0 |",
        "These were still slower: float16 3x4x5 (0.90, `slow`). Seed 7.",
        "| `fastgemm.matmul` | 1000000 | 1.00 |",
        "| level 5 | 40.0 | 40.0 |",
        "| float32 | 8192x8192x8192 | library | `torch.matmul` | 50.0 TFLOPS | 1.00 | 1800 | 650 | 20 |",
        "(docs/img/sweep_gpu.svg)",
        "| `wmma` | 20.0 | 25 % | 0.40 |",
        "| `wgmma` | 40.0 | 50 % | 0.80 |",
        "| 8192x8192x8192 NT | `wgmma_specialized` | 60.0 TFLOPS | - | `torch.matmul` | 1.20 | `chosen` |",
        "| bfloat16 | `wgmma_specialized` | 2 | 60.0 TFLOPS | - | `torch.matmul` | 1.15 | 1.10 | 0.94 | 0.90 |",
        "NVIDIA Test (driver 580, CUDA 13.0, cuBLAS 13.0.2), torch 2.11.0, 2026-01-01",
    ):
        assert part in text, part


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- ladder:begin -->\n", "no partner"),
        ("<!-- nothing:begin -->\n<!-- nothing:end -->\n", "unknown block"),
    ],
)
def test_bad_markers_are_refused(site, text, message):
    (site / "README.md").write_text(text)
    with pytest.raises(SystemExit, match=message):
        RENDER.main([], root=site)


def moved(report, lines):
    """The report if the sources had this many more lines above the kernels."""

    def below(site):
        return replace(site, frames=tuple(replace(frame, line=frame.line + lines) for frame in site.frames))

    launches = (replace(each, sites=tuple(map(below, each.sites))) for each in report.launches)
    return replace(report, launches=tuple(launches))


def test_a_line_inserted_above_a_kernel_changes_no_page(monkeypatch):
    before, fingerprint = explain.comparison(*explain.levels(), "explain"), explain.fingerprint()
    assert "staged[i][x] = " in before
    later, sources = [moved(report, 3) for report in explain.levels()], explained_text.source_lines

    def longer(frame):
        lines = sources(replace(frame, line=frame.line - 3))
        return lines and [*["// inserted"] * 3, *lines]

    monkeypatch.setattr(explained_text, "source_lines", longer)
    monkeypatch.setattr(explain, "levels", lambda: later)
    assert explain.comparison(*later, "explain") == before
    assert explain.fingerprint() == fingerprint


def test_support_names_every_rung_of_levels_5_and_6():
    text = support.LEVELS.text(support.SERIES)
    for row in fastgemm.kernels("gemm", device="cuda"):
        listed = row.role == "rung" and row.level in (5, 6)
        assert (f"`{row.name}`" in text) == listed, row.name
    generations = support.SUPPORT.text(support.GENERATIONS).splitlines()[2:]
    wgmma = [line for line in generations if "wgmma" in line]
    assert [line.split(" | ")[0] for line in wgmma] == ["| 9.0"], "one generation has it"
    assert [line for line in generations if "| measured |" in line] == wgmma


def test_the_worked_example_adds_up():
    lines = [line.split(" | ") for line in choosing.terms().splitlines()[2:]]
    *terms, total, least = (float(cells[3].strip(" |*")) for cells in lines)
    assert len(terms) > 3 and abs(sum(terms) - total) < 0.05 * len(lines)
    assert 0 < least < total
    chosen = choosing.predictions().splitlines()[2]
    assert f"{total:.1f}" in chosen
