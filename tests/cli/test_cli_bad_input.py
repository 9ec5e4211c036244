"""Every command line and every failure of the system must give exit code 0, 1 or 2, without a traceback."""

import errno
import os
import subprocess
import sys
import types
from collections.abc import Iterator

import click
import pytest
import torch
from click.testing import CliRunner, Result
from fastgemm.bench import problems
from fastgemm.cli import main
from hypothesis import example, given, settings
from hypothesis import strategies as st
from processes import run_forked

FULL = "/dev/full"
needs_full = pytest.mark.skipif(not os.path.exists(FULL), reason="there is no /dev/full")

# Each command in its quickest form. Tests append options, which override these.
QUICK = {
    "ladder": ["--op", "add", "--size", "8", "--budget", "0.001", "--no-files", "--device", "cpu"],
    "bench": ["--op", "add", "--shape", "4x4", "--budget", "0.001", "--device", "cpu"],
    "explain": ["add", "--shape", "8x8"],
    "info": [],
    "tune": ["--seconds", "1"],
}
BAD_NUMBERS = ["nan", "inf", "-inf", "-1", "0", "1e400", "1e-400", "0x10", "9" * 30, "9" * 5000, str(2**63)]
BAD_DIGITS = ["²", "१", "\uff11", "Ⅷ", "½", "²x²", "१x१", "\uff14x\uff14"]
BAD_NAMES = ["", " ", "-", "--", ".", "..", "[/]", "[bold]", "%s", "{0}", "None", "naïve", "\ud800", "a\x00b"]
BAD_NAMES += ["x" * 5000]
BAD_PATHS = [
    "/",
    "/nowhere/a.json",
    "/dev/null/a.svg",
    "/proc/a.png",
    FULL,
    "x/",
    "loop",
    "folder",
    "folder/a",
]
BAD_FILES = [*BAD_NAMES, *BAD_PATHS]
BAD = [*BAD_NUMBERS, *BAD_DIGITS, *BAD_FILES]


def parameters(kind: type[click.Parameter]) -> Iterator[tuple[str, click.Parameter]]:
    for name, command in main.commands.items():
        yield from ((name, parameter) for parameter in command.params if isinstance(parameter, kind))


OPTIONS = [(command, p.opts[-1]) for command, p in parameters(click.Option) if not p.is_flag]
FLAGS = [
    (command, name)
    for command, p in parameters(click.Option)
    if p.is_flag
    for name in p.opts + p.secondary_opts
]
ARGUMENTS = [(command, p.name) for command, p in parameters(click.Argument)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, quick):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    # Some values are valid. fastgemm tune would then measure the device for that many seconds.
    monkeypatch.setattr("fastgemm._tune.cpu.collect", lambda *_: [])
    monkeypatch.setattr("fastgemm._tune.collect", lambda *_: [])
    return tmp_path


OUT_OF_MEMORY = RuntimeError("can't allocate memory")


def refuse(*_, **__):
    raise OUT_OF_MEMORY


def run(*arguments: str) -> Result:
    threads = torch.get_num_threads()
    result = CliRunner().invoke(main, list(arguments))
    torch.set_num_threads(threads)
    shown = f"{arguments}: {result.output[-2000:]} {result.exception!r}"
    assert result.exit_code in (0, 1, 2), shown
    assert result.exception is None or isinstance(result.exception, SystemExit), shown
    assert "Traceback" not in result.output, shown
    assert (result.exit_code == 0) != ("Error:" in result.stderr), shown
    return result


def test_every_command_and_option_is_here():
    assert set(QUICK) == set(main.commands)
    for command in QUICK:
        assert run(command, *QUICK[command]).exit_code == (command == "tune")  # here it measures nothing
    assert len(OPTIONS) > 30 and len(FLAGS) > 8


@pytest.mark.parametrize(("command", "option"), OPTIONS, ids=str)
def test_bad_values_of_every_option(command, option):
    for value in BAD_FILES if option in ("--json", "--csv", "--plot") else BAD:
        run(command, *QUICK[command], option, value)
    assert run(command, *QUICK[command], option).exit_code == 2


@pytest.mark.parametrize(("command", "option"), OPTIONS, ids=str)
@settings(max_examples=10)
@given(value=st.text(st.characters(exclude_categories=()), max_size=6) | st.floats().map(str))
def test_any_text_as_the_value_of_every_option(command, option, value):
    run(command, *QUICK[command], f"{option}={value}")


@pytest.mark.parametrize(("command", "flag"), FLAGS, ids=str)
def test_every_flag(command, flag):
    run(command, *QUICK[command], flag)
    assert run(command, *QUICK[command], f"{flag}=1").exit_code == 2


@pytest.mark.parametrize(("command", "argument"), ARGUMENTS, ids=str)
def test_bad_values_of_every_argument(command, argument):
    for value in BAD:
        run(command, *QUICK[command], value)
        run(command, value)


@pytest.mark.parametrize(
    ("command", "option", "value", "code"),
    [
        ("bench", "--budget", "nan", 2),
        ("ladder", "--budget", "inf", 2),
        ("ladder", "--threads", "40000", 2),
        ("bench", "--shape", f"4x{2**70}", 2),
        ("bench", "--plot", "", 2),
        ("bench", "--json", "", 2),
        ("bench", "--csv", "loop", 2),
        ("bench", "--csv", "x" * 5000, 2),
        ("explain", "--plot", "", 2),
        ("explain", "--plot", "a.txt", 2),
        ("explain", "--compare", "²", 2),
        ("explain", "--compare", "", 2),
        ("explain", "--compare", "8", 2),
        ("explain", "--kernel", "", 2),
        ("explain", "--precision", "", 2),
        ("ladder", "--size", str(2**35), 1),  # more than the memory
        ("ladder", "--size", str(2**40), 1),  # more elements than can be counted
    ],
)
def test_what_is_refused_before_it_runs(command, option, value, code):
    assert run(command, *QUICK[command], option, value).exit_code == code


@settings(max_examples=20)
@given(
    name=st.text(
        st.characters(exclude_characters="/\x00", exclude_categories=["Cs"])
        | st.integers(0xDC80, 0xDCFF).map(chr),  # Python's form of a byte that is no UTF-8
        min_size=1,
        max_size=20,
    )
)
@example(name="[bold].json")
@example(name="\udcff.json")
def test_a_file_of_any_name_is_written_and_named(name, tmp_path):
    if name in (".", "..", "-", "folder", "loop") or len(name.encode(errors="surrogateescape")) > 200:
        return
    result = run("bench", *QUICK["bench"], f"--json={name}")
    if result.exit_code == 0:
        assert (tmp_path / name).exists()
        assert f"written: {name}" in result.stderr or not name.isprintable()


# Failures of the system.


def separately(*arguments: str, before: str = "", **environment: str) -> subprocess.CompletedProcess:
    """Runs the command in a separate process, which ends as it does for a user."""
    words = ["fastgemm", *arguments]
    start = f"sys.argv = {words!r}; runpy.run_module('fastgemm', run_name='__main__', alter_sys=True)"
    return run_forked(f"import io, os, resource, runpy, sys; {before}; {start}", **environment)


TO_FULL = f"os.dup2(os.open({FULL!r}, os.O_WRONLY), 1)"
# As with python -u, output is unbuffered, so nothing remains to be written at the end.
UNBUFFERED = "sys.stdout = io.TextIOWrapper(open(1, 'wb', 0, closefd=False), write_through=True)"
NO_READER = "reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 1)"
AT_MOST_A_BLOCK = "resource.setrlimit(resource.RLIMIT_FSIZE, (512, resource.RLIM_INFINITY))"


def test_no_standard_output_at_all():
    done = separately("--version", before="os.close(1); sys.stdout = sys.__stdout__ = None")
    assert "Traceback" not in done.stderr and done.returncode in (0, 1)


@pytest.mark.parametrize("option", ["--json", "--csv"])
@pytest.mark.parametrize("command", ["bench", "explain"])
def test_a_closed_standard_output_is_refused_before_anything_is_measured(command, option, monkeypatch):
    from fastgemm.cli import options

    monkeypatch.setattr(options, "sys", types.SimpleNamespace(stdout=None))
    result = run(command, *QUICK[command], option, "-")
    assert result.exit_code == 2 and "standard output is closed" in result.stderr


@pytest.mark.parametrize("command", ["ladder", "bench", "explain"])
def test_one_option_alone_writes_to_standard_output(command):
    result = run(command, *QUICK[command], "--json", "-", "--csv", "-")
    assert result.exit_code == 2 and "standard output is already taken by --" in result.stderr
    assert not result.stdout


def test_errors_not_about_output_keep_their_type(monkeypatch):
    from fastgemm.cli import info

    def fail() -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/no/such/file")

    monkeypatch.setattr(info, "build_info", fail)
    with pytest.raises(FileNotFoundError):
        main(["info"], standalone_mode=False)


@needs_full
@pytest.mark.parametrize("option", ["--json", "--csv", "--plot"])
@pytest.mark.parametrize("command", ["ladder", "bench", "explain"])
def test_a_full_disk_is_named(command, option, folder):
    (folder / "full.svg").symlink_to(FULL)
    result = run(command, *QUICK[command], option, "full.svg")
    assert result.exit_code == 1
    assert "cannot write full.svg: No space left on device" in result.stderr


@needs_full
@pytest.mark.parametrize(
    ("before", "arguments"),
    [
        (TO_FULL, ["--help"]),
        (TO_FULL, ["explain", *QUICK["explain"], "--csv", "-"]),
        (f"{TO_FULL}; {UNBUFFERED}", ["explain", *QUICK["explain"], "--json", "-"]),
        (AT_MOST_A_BLOCK, ["info", "--json"]),
    ],
)
def test_a_full_stdout_is_named(before, arguments):
    reason = "File too large" if before == AT_MOST_A_BLOCK else "No space left on device"
    done = separately(*arguments, before=before, CUDA_VISIBLE_DEVICES="")  # the driver writes files, too
    assert (done.returncode, done.stderr) == (1, f"Error: cannot write stdout: {reason}\n")


def test_forget_with_a_full_stdout(monkeypatch):
    def full(*_, **__) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("fastgemm.cli.tune._tune.forget", lambda _: ("a GPU", True))
    monkeypatch.setattr("rich.console.Console.print", full)
    assert run("tune", "--forget").stderr == "Error: cannot write stdout: No space left on device\n"


def test_a_closed_pipe_is_no_error():
    done = separately("info", before=NO_READER)
    assert (done.returncode, done.stderr) == (1, "")


def test_what_stdout_cannot_encode():
    for arguments in (["info"], ["explain", *QUICK["explain"]]):
        ascii_only = "sys.stdout.reconfigure(encoding='ascii')"  # the effect of PYTHONIOENCODING
        done = separately(*arguments, before=ascii_only, FASTGEMM_CACHE_DIR="cache\udcff")
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")], ids=repr
)
def test_out_of_memory_is_no_wrong_result(monkeypatch, error):
    real, calls = problems.ops.matmul, []

    def short_of_memory(a, b, **options):
        calls.append(a)
        if options.get("level") == 2 and len(a) == 9:
            raise error
        return real(a, b, **options)

    monkeypatch.setattr(problems.ops, "matmul", short_of_memory)
    options = ["--device", "cpu", "--op", "gemm", "--level", "2", "--json", "r.json"]
    result = run("bench", *options, "--shape", "9x8x8", "--shape", "8x8x8", "--budget", "0.001")
    assert result.exit_code == 1 and calls
    assert f"failed:\ngemm float32 9x8x8, kernel blocked: raised {type(error).__name__}" in result.stderr
    assert "wrong results" not in result.stderr and "WRONG" not in result.stdout
    assert "FAILED" in result.stdout and os.path.getsize("r.json") > 0


def test_out_of_memory_while_timing_or_before_names_the_problem(monkeypatch):
    real, calls = problems.ops.matmul, []

    def short_of_memory(a, b, **options):
        if options.get("kernel") == "packed":
            calls.append(a)
            if len(calls) > 1:  # the memory sufficed for the check, but not for the samples
                raise OUT_OF_MEMORY
        return real(a, b, **options)

    command = ["bench", "--budget", "0.001", "--device", "cpu", "--shape", "8"]
    monkeypatch.setattr(problems.ops, "matmul", short_of_memory)
    result = run(*command, "--kernel", "blocked", "--kernel", "packed")
    assert "failed:\ngemm float32 8x8x8, kernel packed: raised RuntimeError: can't alloc" in result.stderr
    monkeypatch.setattr(problems, "random_matrix", refuse)
    said = "gemm float32 8x8x8, raised RuntimeError: can't allocate memory (no kernel had run"
    assert said in run(*command).stderr


def test_wrong_results_and_failures_are_listed_separately(monkeypatch):
    real = problems.ops.matmul

    def faulty(a, b, **options):
        if options.get("level") == 3:
            raise RuntimeError("no memory")
        out = real(a, b, **options)
        return out.add_(1) if options.get("level") == 2 else out

    monkeypatch.setattr(problems.ops, "matmul", faulty)
    result = run("ladder", *QUICK["ladder"], "--op", "gemm")
    wrong, failed = result.stderr.split("failed:\n")
    assert result.exit_code == 1 and "wrong results:\ngemm float32 8x8x8, kernel blocked" in wrong
    assert "raised RuntimeError: no memory" in failed and "blocked" not in failed


@pytest.mark.parametrize("error", [OSError(11, "Resource temporarily unavailable"), MemoryError()], ids=repr)
def test_what_the_system_refuses_while_measuring(monkeypatch, error):
    def refuse(*_, **__):
        raise error

    targets = {"ladder": "run_ladder", "bench": "run_sweep", "explain": "_explain.explain"}
    for command, target in targets.items():
        monkeypatch.setattr(f"fastgemm.cli.{command}.{target}", refuse)
        assert run(command, *QUICK[command]).exit_code == 1


def test_a_plot_without_matplotlib_ends_before_the_measurement(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    targets = {"ladder": "run_ladder", "bench": "run_sweep", "explain": "_explain.explain"}
    for command, target in targets.items():
        monkeypatch.setattr(f"fastgemm.cli.{command}.{target}", lambda *_, **__: pytest.fail("it measures"))
        result = run(command, *QUICK[command], "--plot", "x.svg")
        assert result.exit_code == 1
        assert result.stderr == "Error: fastgemm: a plot needs matplotlib; pip install 'fastgemm[cli]'\n"
