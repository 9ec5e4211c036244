"""Tests the command line: its output, its files and its exit codes."""

import csv
import json
import os
from pathlib import Path

import click
import fastgemm
import pytest
import torch
from click.testing import CliRunner
from fastgemm._explain import symbols
from fastgemm.bench.load import Load
from fastgemm.bench.presets import Case, from_shape
from fastgemm.bench.records import select
from fastgemm.cli import main
from fastgemm.cli.bench import with_precision
from processes import run_forked
from reference import DEVICES
from studies.reports import read_report

CPU_NAMES = {op: {row.name for row in fastgemm.kernels(op, "cpu")} for op in ("gemm", "transpose", "add")}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command. Commands that measure use the shortest samples."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fastgemm.cli.options.best_device", lambda: "cpu")  # the GPU's: test_cuda_tuning.py

    def invoke(command: str, code: int = 0):
        words = command.split()
        words += ["--budget", "0.001"] if words[0] in ("ladder", "bench") else []
        result = CliRunner().invoke(main, words)
        assert result.exit_code == code, result.output + repr(result.exception)
        return result

    return invoke


@pytest.fixture
def wrong_kernel(monkeypatch):
    """Makes level 2 of gemm return a product with one wrong element."""
    from fastgemm.bench import problems

    real = problems.ops.matmul

    def wrong(a, b, **options):
        out = real(a, b, **options)
        if options.get("level") == 2:
            out[0, 0] += 1
        return out

    monkeypatch.setattr(problems.ops, "matmul", wrong)


# --- ladder and bench


def test_ladder_writes_its_files(run, tmp_path):
    result = run("ladder --size 32")
    for name in ("naive", "microkernel", "GFLOPS", "GB/s", "torch.matmul"):
        assert name in result.stdout
    assert "written: fastgemm-ladder.json" in result.stderr
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == [f"fastgemm-ladder.{e}" for e in ("json", "png", "svg")]
    report = read_report(tmp_path / "fastgemm-ladder.json")
    assert report.command == "ladder" and report.environment["torch"] == torch.__version__
    labels = {(row.op, row.label) for row in report.results}
    assert labels == {("gemm", "32x32x32"), ("transpose", "32x32")}
    assert {row.level for row in report.results if row.op == "gemm"} >= {1, 2, 3, 4, 5, 6, 7}
    assert all(row.seconds.q1 <= row.seconds.median <= row.seconds.q3 for row in report.results)


@pytest.mark.parametrize("option", ["--json -", "--json named", "--csv named", "--plot named.svg"])
def test_ladder_writes_its_files_unless_others_are_named(run, option, tmp_path, quick):
    run(f"ladder --op add --size 8 {option}")
    assert not list(tmp_path.glob("fastgemm-ladder*"))


def test_ladder_no_files(run, tmp_path):
    run("ladder --op transpose --shape 20x30 --dtype int8 --no-files")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", ["fp64", "bf16", "int8", "int32"])
def test_ladder_of_other_types(run, dtype):
    result = run(f"ladder --op gemm --size 24 --dtype {dtype} --threads 1 --no-files")
    assert "1 thread" in result.stdout


def test_ladder_json_on_stdout_is_only_json(run, quick):
    assert json.loads(run("ladder --op add --size 16 --json - --plot x.svg").stdout)["results"]


def test_wrong_results_are_named(run, wrong_kernel, quick):
    result = run("ladder --op gemm --size 16 --json r.json --plot r.svg", code=1)
    assert "WRONG" in result.stdout
    assert "kernel blocked" in result.stderr and "elements wrong" in result.stderr
    rows = read_report(Path("r.json")).results
    assert [(row.level, row.seconds) for row in rows if not row.right] == [(2, None)]
    assert "elements wrong" in run("bench --shape 8x8x8 --level 2", code=1).stderr
    run("bench --shape 8x8x8 --level 2 --no-check")


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ("fastgemm.cli.bench.run_sweep", RuntimeError("no memory for this"), "no memory for this"),
        ("fastgemm.bench.records.Report.to_json", OSError(28, "No space left", "r.json"), "No space left"),
    ],
)
def test_a_run_that_fails_exits_with_1(run, monkeypatch, target, error, message):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(target, fail)
    assert message in run("bench --shape 4 --json r.json", code=1).stderr


class Asked(Exception):
    """Raised in place of a command's work, with the work's arguments."""


SHAPES = {
    "gemm": {"16": (16, 16, 16), "8x9x10": (8, 9, 10), "8 9 10": (8, 9, 10), "2X8x9x10": (2, 8, 9, 10)},
    "transpose": {"16": (16, 16), "8x9": (8, 9), "8 9": (8, 9), "2 8 9": (2, 8, 9)},
    "add": {"16": (16, 16), "8x9": (8, 9), "8 9": (8, 9)},
}


@pytest.mark.parametrize("op", SHAPES)
@pytest.mark.parametrize("command", ["bench", "ladder", "explain"])
def test_one_grammar_of_shapes(command, op, monkeypatch):
    def ask(first, **options):
        raise Asked(
            options["shape"] if command == "explain" else getattr(first[0], "problem", first[0]).shape
        )

    target = {"bench": "run_sweep", "ladder": "run_ladder", "explain": "_explain.explain"}[command]
    monkeypatch.setattr(f"fastgemm.cli.{command}.{target}", ask)
    options = [op] if command == "explain" else ["--op", op, "--device", "cpu", "--json", "-"]
    for shape, sizes in SHAPES[op].items():
        if command == "explain" and len(sizes) > len(SHAPES[op]["16"]):
            continue  # the op has no batches
        for words in ([shape], shape.split()):
            result = CliRunner().invoke(main, [command, "--shape", *words, *options])
            assert isinstance(result.exception, Asked), result.output
            assert result.exception.args == (sizes,), words


def test_several_shapes_may_be_given(run):
    run("bench --shape 8 9 10 --shape=4x5 6 --shape 7 --json b.json")
    rows = select(read_report(Path("b.json")).results, role="baseline")
    assert [row.label for row in rows] == ["8x9x10", "4x5x6", "7x7x7"]


def test_bench_names_kernels_and_writes_csv(run, quick):
    run(
        "bench --shape 16x24x32 --shape 3x4x5x6 --dtype fp32 --dtype int8 --layout NT --layout TT "
        "--csv b.csv --plot b"
    )
    rows = list(csv.DictReader(Path("b.csv").read_text().splitlines()))
    ours = [row for row in rows if row["role"] != "baseline"]
    assert len(ours) == 2 * 2 * 2
    assert all(row["kernel"] in CPU_NAMES["gemm"] for row in ours)
    assert {row["baseline"] for row in rows} == {"torch.matmul", "torch._int_mm"}


def test_precision_of_bench_is_that_of_its_float32_products():
    makes = from_shape("gemm", (8,), torch.float32), from_shape("gemm", (8,), torch.float64)
    cases = with_precision([Case(problem, "group") for problem in makes], "cuda", "tf32")
    assert [case.problem.precision for case in cases] == ["tf32", None]
    with pytest.raises(click.UsageError, match="float32 on a GPU"):
        with_precision(cases[1:], "cuda", "tf32")


@pytest.mark.parametrize("width", [60, 80, 110])
def test_summaries_of_commands_are_whole(width):
    text = main.get_help(click.Context(main, terminal_width=width, info_name="fastgemm"))
    assert max(map(len, text.splitlines())) <= width
    for name, command in main.commands.items():
        assert f" {name} {command.short_help}" in " ".join(text.split())


OF_CUDA = [
    row
    for row in fastgemm.kernels(device="cuda")
    if row.name not in CPU_NAMES[row.op]
    and "none" in row.groups
    and not row.needs_scales  # no command makes these
]
# The command depends only on these properties of a row.
OF_CUDA = [*{(row.op, row.level == 7, row.dtypes, row.codes, row.precision): row for row in OF_CUDA}.values()]


@pytest.mark.skipif("cuda" in DEVICES, reason="there is a GPU")
@pytest.mark.parametrize("row", OF_CUDA, ids=lambda row: f"{row.op} {row.name}")
def test_without_a_gpu_a_cuda_kernel_is_sent_to_the_simulator(run, row, monkeypatch):
    text = run(f"bench --op {row.op} --kernel {row.name}", code=2).stderr
    assert "--device cuda" not in text and f"a kernel of {row.op} on cuda, not on cpu; " in text
    if row.level == 7 or row.dtypes == ("int16",):  # a library's kernel, and a type that no command takes
        assert text.endswith("; torch sees no CUDA device\n")
        return
    command = text.split("; fastgemm ")[-1].removesuffix(" simulates it\n")
    assert command.startswith(f"explain {row.op} ")
    monkeypatch.setattr(symbols, "_tool", lambda: None)  # looking up source lines would take most of the time
    run(f"{command} --shape {'80' if 'none' in row.codes else '80 80 256'}")


@pytest.mark.skipif("cuda" in DEVICES, reason="there is a GPU")
def test_a_device_that_cannot_be_used_is_a_usage_error(run):
    assert "--device cuda: torch sees no CUDA device" in run("ladder --device cuda", code=2).stderr


def test_default_files_are_known_to_be_writable_before_anything_is_measured(run, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("fastgemm.cli.ladder.run_ladder", None)
    message = run("ladder", code=2).stderr
    assert "nothing can be written to the folder" in message and "--no-files" in message


@pytest.mark.parametrize("command", ["ladder --op gemm --size 16 --no-files", "bench --shape 8"])
def test_a_busy_machine_is_named(run, command, monkeypatch):
    for others, busy in ((0.0, False), (os.cpu_count(), True)):
        load = Load(os.cpu_count(), others, stolen=0.0, average=0.5)
        monkeypatch.setattr("fastgemm.bench.load.LoadMeter.load", lambda _, load=load: load)
        text = " ".join(run(command).stdout.split())
        said = f"the machine was busy, so that figures are rough: other programs kept {others:.1f} of its"
        assert (f"note: {said}" in text) == ("busy" in text) == busy


def test_ladder_says_why_level_7_is_below_torch(run, quick, monkeypatch):
    why = lambda row, *_: f"level 7 took {row.kernel}: why"  # noqa: E731
    monkeypatch.setattr("fastgemm.bench.ladder.why_below_torch", why)
    text = run("ladder --op transpose --size 16 --json l.json --plot l.svg").stdout
    (said,) = read_report(Path("l.json")).summary["transpose"]["below_torch"]
    assert [line for line in text.splitlines() if line.endswith(": why")] == [f"note: {said}"]


# --- info


def test_info_ends_with_what_level_none_does_and_what_to_do_next(run):
    lines = run("info").stdout.splitlines()
    assert len(lines) <= 40  # in a small terminal only the end may remain visible
    can, rows = sum(row.available for row in fastgemm.kernels()), len(fastgemm.kernels())
    assert lines[-1] == f"fastgemm info --kernels: all {rows} kernels, of which {can} can run here"
    end = "\n".join(lines[lines.index("") :])
    for name in ("measured", "level=None", "next", "autotune cache"):
        assert f"\n {name} " in end or f"\n{name}: " in end
    assert "CUDA" not in end


def test_info_of_kernels_and_as_json(run):
    text = run("info --kernels").stdout
    for row in fastgemm.kernels():
        assert row.name in text
        assert row.unavailable is None or row.unavailable in " ".join(text.split())
    assert "level=None" not in text
    found = json.loads(run("info --json").stdout)
    assert found["build"]["version"] == fastgemm.__version__
    assert len(found["kernels"]) == len(fastgemm.kernels())
    assert found["autotune_cache"].endswith("autotune.json")


def test_a_bug_report_says_what_it_needs_and_no_paths(run, monkeypatch):
    monkeypatch.setenv("FASTGEMM_CPU_ISA", "native")
    text = run("info --bug-report").stdout
    for shown in (
        "operating system",
        "Python",
        f"torch: {torch.__version__}",
        "kernels on cpu",
        "table hash",
    ):
        assert shown in text
    assert "FASTGEMM_CPU_ISA=native" in text and "FASTGEMM_CACHE_DIR=(set)" in text
    assert str(fastgemm.tuning.cache_file().parent) not in text and str(Path.home()) not in text.split()


def test_version_and_module_entry_point():
    assert fastgemm.__version__ in CliRunner().invoke(main, ["--version"]).output
    done = run_forked(
        "import runpy, sys; sys.argv = ['', '--version']; runpy.run_module('fastgemm', None, '__main__')"
    )
    assert done.stdout.startswith("fastgemm, version")
