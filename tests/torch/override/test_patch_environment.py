"""FASTGEMM_PATCH: programs that are patched without a line of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import ROOT
from patches import needs_library
from processes import copy_of_package, run_python

pytestmark = needs_library


@pytest.fixture(scope="module")
def entry_points(tmp_path_factory) -> Path:
    """A folder in which importlib.metadata finds the entry points of pyproject.toml, installed or not."""
    folder = tmp_path_factory.mktemp("entry_points")
    tomllib = pytest.importorskip("tomllib")  # of Python 3.11
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
    """Runs a program, in which fastgemm has not been imported."""
    path = f"import sys\nsys.path[:0] = {[*map(str, more), str(entry_points)]}\n"
    return run_python([*options, "-c", path + code], **environment)


PROGRAM = """
import torch
a, b = torch.randn(37, 65, dtype=torch.float64), torch.randn(65, 21, dtype=torch.float64)
with torch.profiler.profile(acc_events=True) as profile:
    c = torch.mm(a, b)
expected = sum(a[:, k, None] * b[None, k] for k in range(65))
assert torch.allclose(c, expected)
ranges = [event.name for event in profile.events() if event.name.startswith("fastgemm")]
lines = torch._C._dispatch_dump("aten::mm").splitlines()
print("fastgemm" in sys.modules, ranges, sum(line.startswith("CPU") for line in lines))
"""


def printed(done) -> tuple[bool, list[str], int]:
    assert done.returncode == 0, done.stderr[-3000:]
    imported, _, rest = done.stdout.strip().partition(" ")
    ranges, _, registered = rest.rpartition(" ")
    return imported == "True", ranges.strip("[]").replace("'", "").split(", "), int(registered)


def test_a_program_that_does_not_import_fastgemm(entry_points):
    done = run_with(entry_points, PROGRAM, options=("-W", "error"), FASTGEMM_PATCH="1")
    imported, ranges, registered = printed(done)
    assert imported
    assert len(ranges) == 1
    assert ranges[0].startswith("fastgemm.gemm[")
    assert registered == 2  # torch's own kernel, and the one in front of it
    assert "warn" not in done.stderr.lower()


@pytest.mark.parametrize("value", ["", "0", None])
def test_without_the_variable_fastgemm_is_not_imported(value, entry_points, monkeypatch):
    monkeypatch.delenv("FASTGEMM_PATCH", raising=False)
    environment = {} if value is None else {"FASTGEMM_PATCH": value}
    imported, ranges, registered = printed(
        run_with(entry_points, PROGRAM, options=("-W", "error"), **environment)
    )
    assert not imported
    assert ranges == [""]
    assert registered == 1


@pytest.mark.parametrize(
    ("value", "first"), [("2", ""), (" 1", "import torch\n"), ("yes", "import fastgemm\n"), ("Report", "")]
)
def test_another_value_is_ignored_with_a_warning(value, first, entry_points):
    done = run_with(entry_points, first + PROGRAM, FASTGEMM_PATCH=value)
    assert printed(done) == (True, [""], 1)
    assert done.stderr.count(f"FASTGEMM_PATCH must be 1, report or 0, got {value!r}: ignored") == 1


@pytest.mark.parametrize("autoload", ["1", "0"])
def test_a_program_that_imports_fastgemm_itself(autoload, entry_points):
    """Also where torch is told to load no extensions."""
    done = run_with(
        entry_points,
        "import fastgemm\n" + PROGRAM,
        options=("-W", "error"),
        FASTGEMM_PATCH="1",
        TORCH_DEVICE_BACKEND_AUTOLOAD=autoload,
    )
    _, ranges, registered = printed(done)
    assert len(ranges) == 1 and ranges[0].startswith("fastgemm.gemm[")
    assert registered == 2


def test_a_fastgemm_that_cannot_be_imported_is_a_warning(entry_points, tmp_path):
    (tmp_path / "fastgemm").mkdir()
    (tmp_path / "fastgemm" / "__init__.py").write_text("raise ImportError('it is broken')\n")
    (tmp_path / "fastgemm" / "_everywhere.py").write_text("")
    done = run_with(entry_points, PROGRAM, tmp_path, FASTGEMM_PATCH="1")
    assert printed(done) == (False, [""], 1)
    warning = "FASTGEMM_PATCH is set, but fastgemm cannot be imported: it is broken"
    assert warning in done.stderr


OWN = """
import sys
print("this file runs")
sys.path[:0] = [{entry_points!r}]
{body}
import torch
assert torch.equal(torch.ones(9, 9) @ torch.ones(9, 9), torch.full((9, 9), 9.0))
"""


@pytest.mark.parametrize("program", ["beside", "itself", "imports it first"])
def test_a_file_of_the_same_name_is_left_to_the_program(program, entry_points, tmp_path):
    """A file fastgemm.py beside a program, or the program itself: Python finds it before the package."""
    own = tmp_path / "fastgemm.py"
    main = own if program == "itself" else tmp_path / "program.py"
    body = "import fastgemm; assert fastgemm.mine" if program == "imports it first" else "import torch"
    if main != own:
        own.write_text("mine = True\nprint('the own file runs')\nimport torch\n")
    main.write_text(OWN.format(entry_points=str(entry_points), body=body))
    done = run_python([str(main)], FASTGEMM_PATCH="1")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("this file runs") == 1
    assert done.stdout.count("the own file runs") == ("imports" in program)
    warning = f"FASTGEMM_PATCH is set, but `import fastgemm` finds {own}, which is not the package "
    assert done.stderr.count(warning) == 1
    assert "Give that file another name" in done.stderr


def test_a_warning_that_is_an_error_leaves_torch_importable_or_says_why(entry_points, tmp_path):
    (tmp_path / "fastgemm.py").write_text("")
    program = tmp_path / "program.py"
    program.write_text(OWN.format(entry_points=str(entry_points), body="import torch"))
    done = run_python(["-W", "error:FASTGEMM_PATCH", str(program)], FASTGEMM_PATCH="1")
    assert done.returncode == 1 and "cannot be imported" not in done.stderr
    assert "UserWarning: FASTGEMM_PATCH is set, but `import fastgemm` finds" in done.stderr


REPORT = """
import torch
for _ in range(1234):
    torch.ones(9, 9) @ torch.ones(9, 9)
torch.addmm(torch.ones(9), torch.ones(9, 9), torch.ones(9, 9))
torch.ones(9, 9).char() @ torch.ones(9, 9).char()
{more}
"""


def reported(stderr: str) -> dict[int, list[list[str]]]:
    """What the processes of a program say, by number: lines of calls, op, and what computed them."""
    processes: dict[int, list[list[str]]] = {}
    for line in stderr.splitlines():
        if line.startswith("fastgemm: FASTGEMM_PATCH=report, process "):
            head, _, rest = line.removeprefix("fastgemm: FASTGEMM_PATCH=report, process ").partition(":")
            processes[int(head)] = lines = [[rest.strip()]] if rest else []
        elif line.startswith("  "):
            lines.append(line.split(maxsplit=2))
    return processes


def test_what_was_routed_is_told_at_exit(entry_points):
    done = run_with(entry_points, REPORT.format(more=""), FASTGEMM_PATCH="report")
    assert done.returncode == 0 and not done.stdout, done.stderr[-2000:]
    (table,) = reported(done.stderr).values()
    assert table[0] == ["calls", "op", "computed by"]
    assert [row[:2] for row in table[1:]] == [["1,234", "mm"], ["1", "addmm"], ["1", "mm"]]
    assert table[3][2] == "passed on to torch: dtype int8"
    assert len(done.stderr.splitlines()) == 5


def test_a_program_that_multiplies_nothing_says_so_in_one_line(entry_points):
    done = run_with(entry_points, "import torch\n", FASTGEMM_PATCH="report")
    assert done.returncode == 0
    assert list(reported(done.stderr).values()) == [[["no product was routed"]]]
    assert len(done.stderr.splitlines()) == 1


CHILDREN = """
import multiprocessing, os
def multiply(times):
    torch.set_num_threads(1)
    for _ in range(times):
        torch.ones(7, 7) @ torch.ones(7, 7)
for method in "fork", "spawn":
    for times in 3, 0:
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
    """Each once: of those that another process started only if they multiplied."""
    main = tmp_path / "program.py"
    head = (
        f"import sys\nsys.path[:0] = [{str(entry_points)!r}]\nimport torch\nif __name__ == '__main__':\n    "
    )
    body = (REPORT.format(more=CHILDREN)).strip().replace("\n", "\n    ")
    functions = "def multiply(times):\n    for _ in range(times): torch.ones(7, 7) @ torch.ones(7, 7)\n"
    main.write_text(head.replace("if __name__", functions + "if __name__") + body + "\n")
    done = run_python([str(main)], FASTGEMM_PATCH="report")
    assert done.returncode == 0, done.stderr[-2000:]
    counts = sorted(int(table[1][0].replace(",", "")) for table in reported(done.stderr).values())
    assert counts == [3, 3, 5, 1234]


def test_a_report_outlives_a_closed_stderr(entry_points):
    done = run_with(entry_points, REPORT.format(more="sys.stderr.close()"), FASTGEMM_PATCH="report")
    assert done.returncode == 0 and not done.stdout


def test_the_processes_of_a_patched_one(entry_points):
    """A forked one has it from its parent, a new one from the environment."""
    program = """
import torch, multiprocessing, os
def ranges():
    torch.set_num_threads(1)
    with torch.profiler.profile(acc_events=True) as profile:
        torch.ones(9, 9) @ torch.ones(9, 9)
    return [event.name for event in profile.events() if event.name.startswith("fastgemm")]
def tell(pipe):
    pipe.send(ranges())
found = []
here, there = multiprocessing.Pipe()
child = multiprocessing.get_context("fork").Process(target=tell, args=(there,))
child.start()
found.append(here.recv() if here.poll(60) else "nothing")
child.join()
assert child.exitcode == 0
found.append(ranges())
assert all(len(names) == 1 and names[0].startswith("fastgemm.gemm[") for names in found), found
"""
    done = run_with(entry_points, program, FASTGEMM_PATCH="1")
    assert done.returncode == 0, done.stderr[-2000:]


ORDER = """
import torch, fastgemm
from fastgemm import tuning
from reference import kernels_that_ran
a = torch.randn(9, 9)
tuning._remember(tuning.gemm_key(a, a), "microkernel")  # what level=None takes here

def ran():
    return kernels_that_ran(lambda: a @ a)

assert ran() == ["microkernel"]
with fastgemm.patch(level=1) as routed:
    assert ran() == ["naive"]
assert routed.total == 1
with fastgemm.patch(kernel="warp_specialized") as passing:
    assert ran() == ["microkernel"]  # the environment takes it
enabled = fastgemm.enable(level=2)
second = ran()
assert len(second) == 1 and second != ["microkernel"] and enabled.kernels == {second[0]: 1}
with fastgemm.patch(kernel="warp_specialized") as passing:
    assert ran() == second  # what is enabled takes it
    with fastgemm.patch(level=1) as routed:
        assert ran() == ["naive"]
assert not passing.total and sum(passing.passed_on.values()) == 1 and routed.total == 1
enabled = fastgemm.enable(kernel="warp_specialized")
assert ran() == ["microkernel"]
assert not enabled.total and sum(enabled.passed_on.values()) == 1
with fastgemm.patch(kernel="warp_specialized") as passing:
    assert ran() == ["microkernel"]
assert sum(passing.passed_on.values()) == 1 and sum(enabled.passed_on.values()) == 2
fastgemm.disable()
assert ran() == ["microkernel"]
"""


def test_patches_go_before_what_is_enabled_and_that_before_the_environment(entry_points):
    done = run_with(entry_points, ORDER, FASTGEMM_PATCH="1")
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def without_library(tmp_path_factory) -> Path:
    return copy_of_package(tmp_path_factory.mktemp("package"), "_introspect*.so", "libfastgemm.so")


def test_without_a_library_the_variable_does_nothing_but_warn(entry_points, without_library):
    for value in "1", "report":
        done = run_with(entry_points, PROGRAM, without_library, FASTGEMM_PATCH=value)
        assert printed(done) == (True, [""], 1)
        warning = f"fastgemm: FASTGEMM_PATCH={value}, but this build of fastgemm has no library for"
        assert done.stderr.count(warning) == 1


def test_without_a_library_enable_says_so(entry_points, without_library):
    code = """
import torch, fastgemm
fastgemm.disable()
try:
    fastgemm.enable()
except RuntimeError as error:
    print(error)
"""
    done = run_with(entry_points, code, without_library)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("fastgemm.enable: this build of fastgemm has no library for torch ")
    assert done.stdout.rstrip().endswith("; use fastgemm.patch")
