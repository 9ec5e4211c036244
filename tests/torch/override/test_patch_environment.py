"""Tests FASTGEMM_PATCH, which patches programs without a change of their code."""

import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import _fastgemm_autoload
import pytest
from fastgemm._drop_in import enable, exit_report
from pages import ROOT
from patches import needs_library
from processes import copy_of_package, run_forked, run_python

pytestmark = needs_library


@pytest.fixture(scope="module")
def entry_points(tmp_path_factory) -> Path:
    """A folder where importlib.metadata finds pyproject.toml's entry points, even if fastgemm is not installed."""
    folder = tmp_path_factory.mktemp("entry_points")
    tomllib = pytest.importorskip("tomllib")  # since Python 3.11
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    written = folder / "fastgemm_here-0.dist-info"
    written.mkdir()
    (written / "METADATA").write_text("Metadata-Version: 2.1\nName: fastgemm_here\nVersion: 0\n")
    (written / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
            for group, points in groups.items()
        )
    )
    return folder


def run_with(entry_points: Path, code: str, *more: Path, options: tuple[str, ...] = (), **environment: str):
    """Runs a program in a process that has not imported torch or fastgemm."""
    path = f"import sys\nsys.path[:0] = {[*map(str, more), str(entry_points)]}\n"
    return run_python([*options, "-c", path + code], **environment)


def run_forked_with(value: str, code: str):
    """Runs a program in which fastgemm reads its variable again, as at its import."""
    head = f"import os, torch, fastgemm\nos.environ['FASTGEMM_PATCH'] = {value!r}\n"
    return run_forked(
        head
        + "from fastgemm._drop_in import enable as _everywhere\n_everywhere.enable_by_environment()\n"
        + code
    )


# Two kernels are registered for a product: torch's, and a patch's in front of it.
PROGRAM = """
import torch
a, b = torch.randn(37, 65, dtype=torch.float64), torch.randn(65, 21, dtype=torch.float64)
with torch.profiler.profile(acc_events=True) as profile:
    c = torch.mm(a, b)
assert torch.allclose(c, sum(a[:, k, None] * b[None, k] for k in range(65)))
ranges = [event.name for event in profile.events() if event.name.startswith("fastgemm")]
lines = torch._C._dispatch_dump("aten::mm").splitlines()
kernels = sum(line.startswith("CPU") for line in lines)
print("patched" if kernels == 2 and len(ranges) == 1 and "fastgemm.gemm[" in ranges[0] else (kernels, ranges))
print("fastgemm" in sys.modules)
"""
PATCHED, UNPATCHED, UNTOUCHED = "patched\nTrue\n", "(1, [])\nTrue\n", "(1, [])\nFalse\n"


@pytest.mark.parametrize(
    ("first", "environment", "expected"),
    [
        ("", {"FASTGEMM_PATCH": "1"}, PATCHED),
        # This also holds if torch must not load extensions.
        ("import fastgemm\n", {"FASTGEMM_PATCH": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, PATCHED),
    ],
)
def test_a_program_without_a_line_of_its_own(first, environment, expected, entry_points):
    done = run_with(entry_points, first + PROGRAM, options=("-W", "error"), **environment)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr[-3000:]
    assert "warn" not in done.stderr.lower()


@pytest.mark.parametrize("value", ["", "0", None])
def test_without_the_variable_fastgemm_is_not_imported(value, monkeypatch):
    monkeypatch.delenv("FASTGEMM_PATCH", raising=False)
    if value is not None:
        monkeypatch.setenv("FASTGEMM_PATCH", value)
    monkeypatch.setattr(_fastgemm_autoload, "_import_the_package", lambda: pytest.fail("it is imported"))
    monkeypatch.setattr(enable, "set_everywhere", lambda *_: pytest.fail("it is patched"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _fastgemm_autoload.load()
        enable.enable_by_environment()


@pytest.mark.parametrize("value", [" 1", "yes", "Report"])
def test_another_value_is_ignored_with_a_warning(value, monkeypatch):
    monkeypatch.setenv("FASTGEMM_PATCH", value)
    monkeypatch.setattr(enable, "set_everywhere", lambda *_: pytest.fail("it is patched"))
    with pytest.warns(UserWarning, match=f"FASTGEMM_PATCH must be 1, report or 0, got {value!r}: ignored"):
        enable.enable_by_environment()


def test_a_fastgemm_that_cannot_be_imported_is_a_warning(entry_points, tmp_path):
    (tmp_path / "fastgemm").mkdir()
    (tmp_path / "fastgemm" / "__init__.py").write_text("raise ImportError('it is broken')\n")
    (tmp_path / "fastgemm" / "_drop_in").mkdir()
    done = run_with(entry_points, PROGRAM, tmp_path, FASTGEMM_PATCH="1")
    assert (done.returncode, done.stdout) == (0, UNTOUCHED), done.stderr[-3000:]
    assert "FASTGEMM_PATCH is set, but fastgemm cannot be imported: it is broken" in done.stderr


# Replaces torch's call of this function at the end of its import.
LOAD = "import _fastgemm_autoload; _fastgemm_autoload.load()"


@pytest.mark.parametrize("program", ["beside", "itself", "imports it first"])
def test_a_file_of_the_same_name_is_left_to_the_program(program, tmp_path):
    """A program, or a file beside it, is named fastgemm.py, and Python finds it before the package."""
    own = tmp_path / "fastgemm.py"
    main = own if program == "itself" else tmp_path / "program.py"
    own.write_text(f"mine = True\nprint('{'this' if main == own else 'the own'} file runs')\n{LOAD}\n")
    if main != own:
        body = "import fastgemm; assert fastgemm.mine" if program == "imports it first" else LOAD
        main.write_text(f"print('this file runs')\n{body}\n")
    done = run_python([str(main)], FASTGEMM_PATCH="1")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("this file runs") == 1
    assert done.stdout.count("the own file runs") == ("imports" in program)
    warning = f"FASTGEMM_PATCH is set, but `import fastgemm` finds {own}, which is not the package "
    assert done.stderr.count(warning) == 1
    assert "Give that file another name" in done.stderr


def test_a_warning_that_is_an_error_says_why(tmp_path):
    (tmp_path / "fastgemm.py").write_text("")
    program = tmp_path / "program.py"
    program.write_text(LOAD)
    done = run_python(["-W", "error:FASTGEMM_PATCH", str(program)], FASTGEMM_PATCH="1")
    assert done.returncode == 1 and "cannot be imported" not in done.stderr
    assert "UserWarning: FASTGEMM_PATCH is set, but `import fastgemm` finds" in done.stderr


REPORT = """
import torch
for _ in range(1234):
    torch.ones(9, 9) @ torch.ones(9, 9)
torch.addmm(torch.ones(9), torch.ones(9, 9), torch.ones(9, 9))
torch.ones(9, 9).char() @ torch.ones(9, 9).char()
"""


def reported(stderr: str) -> list[list[list[str]]]:
    """The output of each process of a program: lines with the number of calls, the op, and its kernel."""
    processes: list[list[list[str]]] = []
    for line in stderr.splitlines():
        if line.startswith("fastgemm: FASTGEMM_PATCH=report, process "):
            rest = line.partition(":")[2].partition(":")[2]
            processes.append([[rest.strip()]] if rest else [])
        elif line.startswith("  "):
            processes[-1].append(line.split(maxsplit=2))
    return processes


def test_what_was_routed_is_told_at_exit():
    done = run_forked_with("report", REPORT)
    assert done.returncode == 0 and not done.stdout, done.stderr[-2000:]
    (table,) = reported(done.stderr)
    assert table[0] == ["calls", "op", "computed by"]
    assert [row[:2] for row in table[1:]] == [["1,234", "mm"], ["1", "addmm"], ["1", "mm"]]
    assert table[3][2] == "passed on to torch: dtype int8"
    assert len(done.stderr.splitlines()) == 5


def test_a_program_that_multiplies_nothing_says_so_in_one_line():
    done = run_forked_with("report", "")
    assert done.returncode == 0
    assert reported(done.stderr) == [[["no product was routed"]]]
    assert len(done.stderr.splitlines()) == 1


def test_a_report_outlives_a_closed_stderr():
    done = run_forked_with("report", REPORT + "import sys\nsys.stderr.close()")
    assert done.returncode == 0 and not done.stdout


def test_a_report_is_one_write(monkeypatch):
    """Processes that end together share stderr; the newline must not be a write of its own."""
    written: list[str] = []
    stderr = SimpleNamespace(write=written.append, flush=lambda: written.append("flushed"))
    monkeypatch.setattr(sys, "stderr", stderr)
    exit_report._Report(lambda counts: None).tell()
    monkeypatch.undo()
    assert len(written) == 2 and written[0].endswith("no product was routed\n") and written[1] == "flushed"


CHILDREN = """
import sys
sys.path[:0] = [{entry_points!r}]
import multiprocessing, os, torch
def multiply(times):
    torch.set_num_threads(1)
    for _ in range(times):
        torch.ones(7, 7) @ torch.ones(7, 7)
if __name__ == "__main__":
    multiply(8)
    for method, times in ("fork", 3), ("fork", 0), ("spawn", 4):
        child = multiprocessing.get_context(method).Process(target=multiply, args=(times,))
        child.start()
        child.join()
        assert child.exitcode == 0
    if os.fork() == 0:
        multiply(5)
        raise SystemExit
    os.wait()
"""


def test_processes_tell_their_own_products(entry_points, tmp_path):
    """Each process reports once, forked or new. A child process reports only if it multiplied."""
    main = tmp_path / "program.py"
    main.write_text(CHILDREN.format(entry_points=str(entry_points)))
    done = run_python([str(main)], FASTGEMM_PATCH="report")
    assert done.returncode == 0, done.stderr[-2000:]
    assert sorted(int(table[1][0]) for table in reported(done.stderr)) == [3, 4, 5, 8]


ORDER = """
import fastgemm
from reference import kernels_that_ran
a, passing = torch.randn(9, 9), fastgemm.patch(kernel="warp_specialized")
fastgemm.tuning._remember(fastgemm.tuning.gemm_key(a, a), "microkernel")  # what level=None takes here

def ran():
    return kernels_that_ran(lambda: a @ a)

with passing:
    assert ran() == ["microkernel"]  # the environment takes it
with fastgemm.patch(level=1):
    assert ran() == ["naive"]
enabled = fastgemm.enable(level=2)
with passing:
    second = ran()  # what is enabled takes it
assert enabled.kernels == {second[0]: 1} and second[0] not in ("microkernel", "naive")
enabled = fastgemm.enable(kernel="warp_specialized")
with passing:
    assert ran() == ["microkernel"]
assert not passing.routed.total and sum(passing.routed.passed_on.values()) == 3
assert not enabled.total and sum(enabled.passed_on.values()) == 1
fastgemm.disable()
assert ran() == ["microkernel"]
"""


def test_patches_go_before_what_is_enabled_and_that_before_the_environment():
    done = run_forked_with("1", ORDER)
    assert done.returncode == 0, done.stderr[-2000:]


ENABLE = """
import fastgemm
fastgemm.disable()
try:
    fastgemm.enable()
except RuntimeError as error:
    print(error)
"""


def test_without_a_library_the_variable_does_nothing_but_warn_and_enable_says_so(entry_points, tmp_path):
    without_library = copy_of_package(tmp_path, "_introspect*.so", "libfastgemm.so")
    done = run_with(entry_points, PROGRAM + ENABLE, without_library, FASTGEMM_PATCH="report")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith(UNPATCHED)
    message = "this build of fastgemm has no library for torch "
    assert done.stderr.count(f"fastgemm: FASTGEMM_PATCH=report, but {message}") == 1
    said = done.stdout.removeprefix(UNPATCHED).rstrip()
    assert said.startswith(f"fastgemm.enable: {message}") and said.endswith("builds one for this torch")
