"""Tests fastgemm.explain on the kernels of the table, fastgemm.simulate, and the command line.

tests/simt/test_counters.py checks the counters of each kernel.
"""

import csv
import json
import time

import fastgemm
import pytest
import torch
from click.testing import CliRunner
from compiled import compiled_for
from explain_model import NAIVE, only
from fastgemm import _explain
from fastgemm._explain.counts import Problem
from fastgemm.cli import main
from reference import by_name, needs_simulator

pytestmark = needs_simulator

LIBRARIES = ("torch", "cublas", "cublaslt")
ROWS = [
    row
    for row in fastgemm.kernels(device="cuda")
    if not row.name.startswith(LIBRARIES) and row.role != "shortcut"  # this launches other rows
    if "none" in row.groups and not row.needs_scales  # explain makes neither groups nor scales
]


def test_accesses_have_their_operand_place_and_lanes():
    report = fastgemm.explain("gemm", level=1, shape=(128, 128, 128), trans_b=True)
    assert report.kernel == "naive" and report.layout == "NT" and "NT" in report.title
    a = only(report.sites, buffer="a")
    assert (a.file, a.lanes_per_request, a.requests) == (NAIVE, 32, 128 * 128 // 32 * 128)
    assert a.function.startswith("gemm_naive_kernel<float") and "multiply_add" in str(report)
    assert (a.sectors_per_request, only(report.sites, kind="store").sectors_per_request) == (1, 4)
    # If B is stored as (N, K), the addresses of adjacent lanes are a row apart.
    assert only(report.sites, buffer="b").sectors_per_request == 32


def test_a_level_with_a_packed_weight():
    report = fastgemm.explain("gemm", level=2, shape=(32, 64, 128), dtype=torch.bfloat16, weight="nvfp4")
    assert report.kernel == "packed_tiled" and report.to_dict()["weight"] == "nvfp4"
    assert report.title == "gemm bfloat16 32x64x128 NT, nvfp4 weight: level 2, packed_tiled"
    # A unit has 4096 bytes of codes and a scale for each of 64 rows and 8 groups; all of it is read.
    x, weight, result = 32 * 128 * 2, 64 * 128 // 2 + 64 * 8, 32 * 64 * 2
    assert report.roofline.bytes_compulsory == pytest.approx(x + weight + result, rel=0.01)
    named = fastgemm.explain("gemm", kernel="packed_tiled", shape=(32, 64, 128))
    assert named.weight == "int4", "if a kernel takes packed weights only"


def test_the_row_that_ran_after_a_helper_is_named():
    report = fastgemm.explain("gemm", shape=(8, 64, 128), weight="int4")
    assert [launch.kernel for launch in report.launches] == ["dequantize", report.kernel]
    assert (report.kernel, report.level) == ("narrow", 6) and report.idea


@pytest.mark.parametrize("dtype", [torch.bool, torch.float8_e4m3fn, torch.complex128])
def test_transpose_of_any_element(dtype):
    report = fastgemm.explain("transpose", level=2, shape=(64, 64), dtype=dtype)
    read = only(report.sites, space="global", kind="load")
    assert (read.bytes, read.sectors_per_request) == (dtype.itemsize, dtype.itemsize)
    assert report.totals.bytes_used == 2 * 64 * 64 * dtype.itemsize == report.roofline.bytes_compulsory


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.op}-{row.name}")
def test_every_kernel_is_explained(row):
    """Every launch must have lines of this project's source, and the number of registers from nvcc."""
    dtypes = (torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.int32, torch.int16)
    code = "none" if "none" in row.codes else "int4"
    taken = [dtype for dtype in dtypes if row.takes(dtype, code)]
    dtype = next((dtype for dtype in taken if "precision" not in by_name(row.name, dtype)), taken[0])
    choice = {of: x for of, x in by_name(row.name, dtype).items() if of != "out_dtype"}
    shape = (64, 64, 256) if row.op == "gemm" else (256, 256)
    report = fastgemm.explain(row.op, shape=shape, dtype=dtype, **choice)
    assert (report.kernel, report.level, report.idea) == (row.name, row.level, row.summary)
    assert not report.problems and report.error is None
    assert report.sites and all(
        site.file.startswith(("csrc/cuda/", "csrc/core/")) and site.line for site in report.sites
    )
    assert not any(site.file.startswith("csrc/cuda/device/") for site in report.sites)
    written = [buffer for buffer in report.launches[-1].buffers if buffer.name == "out"]
    assert written and report.totals.bytes_used >= report.roofline.bytes_compulsory // 2
    assert row.name in str(report) and row.name in report._repr_html_()
    assert all(launch.occupancy.blocks >= 1 for launch in report.launches)
    assert all(compiled_for("9.0", launch.function, launch.kernel) for launch in report.launches)


def test_a_large_product_takes_seconds():
    start = time.process_time()  # the time of all threads
    report = fastgemm.explain("gemm", kernel="vectorized", shape=(512, 512, 512))
    assert time.process_time() - start < 20
    assert report.totals.global_requests > 0


def test_counts_of_a_sample_are_those_of_the_whole_grid():
    """64 of 1024 equal blocks are counted."""
    report = fastgemm.explain("gemm", level=1, shape=(512, 512, 16))
    assert report.launches[0].sampled and report.launches[0].blocks == 1024
    assert only(report.sites, buffer="a").requests == 512 * 512 // 32 * 16


def test_refusals_are_those_of_the_op():
    with pytest.raises(ValueError, match="nearest names"):
        fastgemm.explain("gemm", kernel="tild", shape=(8, 8, 8))
    with pytest.raises(RuntimeError):
        fastgemm.explain("gemm", kernel="float4_padded65", shape=(8, 8, 8), dtype=torch.float64)


# --- simulate


def test_simulate_restores_after_an_exception_and_does_not_nest():
    with pytest.raises(ZeroDivisionError), fastgemm.simulate("H100"):
        raise ZeroDivisionError
    with fastgemm.simulate():
        with pytest.raises(RuntimeError, match="already running"), fastgemm.simulate():
            pass
        with pytest.raises(RuntimeError, match="already running"):
            fastgemm.explain("gemm", level=1, shape=(8, 8, 8))
        fastgemm.matmul(torch.ones(4, 4), torch.ones(4, 4), kernel="naive_uncoalesced")
    with pytest.raises(ValueError, match="unknown gpu"), fastgemm.simulate("V100"):
        pass


# --- the command line


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(command: str, code: int = 0):
        result = CliRunner().invoke(main, ["explain", *command.split()])
        assert result.exit_code == code, result.output + repr(result.exception)
        return result

    return run


def test_cli_prints_the_source_beside_its_counters_and_draws_both_pictures(invoke, tmp_path):
    out = invoke("gemm --level 1 --shape 64 --plot tiles").stdout
    (line,) = [line for line in out.splitlines() if "load b, 4 B" in line]
    assert "4.00" in line and "multiply_add" in line
    for part in ("totals", "occupancy of an H200", "roofline of an H200", "lowest", "8 blocks a multiproc"):
        assert part in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiles.png", "tiles.svg"]


def test_cli_compares(invoke, tmp_path):
    result = invoke("transpose --level 3 --compare shared --shape 64 --json r.json --csv r.csv --plot r.svg")
    assert "from shared to padded:" in result.stdout and "wavefronts over ideal 16.5 -> 1.00" in result.stdout
    assert "written: r.json, r.csv, r.svg" in result.stderr
    reports = json.loads((tmp_path / "r.json").read_text())["reports"]
    assert [report["kernel"] for report in reports] == ["shared", "padded"]
    rows = list(csv.DictReader((tmp_path / "r.csv").open()))
    assert {row["kernel"] for row in rows} == {"shared", "padded"}
    assert {float(row["conflict"]) for row in rows if row["conflict"]} == {32.0, 1.0}
    assert "<svg" in (tmp_path / "r.svg").read_text()


def test_cli_writes_only_json_to_stdout(invoke):
    found = json.loads(invoke("transpose --level 2 --dtype int8 --shape 64x32 --json -").stdout)
    assert found["command"] == "explain"
    (report,) = found["reports"]
    assert [report[of] for of in ("op", "kernel", "shape", "dtype")] == [
        "transpose",
        "shared",
        [64, 32],
        "int8",
    ]


def test_cli_exits_with_1_when_the_kernel_is_at_fault(invoke, monkeypatch):
    real = _explain.explain

    def faulty(*arguments, **options):
        report = real(*arguments, **options)
        problem = Problem("race", "two threads write 'tile'", ("x.cu:3",), (0, 0, 0), (1, 0, 0), 1)
        object.__setattr__(report.launches[0], "problems", (problem,))
        return report

    monkeypatch.setattr(_explain, "explain", faulty)
    result = invoke("gemm --level 1 --shape 32", code=1)
    assert "race: two threads write 'tile' at x.cu:3" in result.stdout
    assert "1 problems found" in result.stderr or "1 problem found" in result.stderr


def test_cli_exits_with_1_when_the_kernel_does_not_take_the_problem(invoke):
    assert "float4_padded65" in invoke("gemm --kernel float4_padded65 --dtype fp64 --shape 8", code=1).stderr
