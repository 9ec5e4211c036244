"""fastgemm.enable and disable, and FASTGEMM_PATCH: patches of a whole process."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fastgemm
import pytest
import torch
from pages import ROOT
from patches import entered
from processes import copy_of_package, run_python
from reference import assert_right, every_device, expected_gemm, kernels_that_ran
from torch.nn import functional

pytestmark = pytest.mark.skipif(
    not fastgemm._overrides.register(), reason="there is no library for this torch"
)
ELSEWHERE = {"cpu": "warp_specialized", "cuda": "microkernel"}  # takes nothing on a device


@pytest.fixture(autouse=True)
def disabled_afterwards():
    yield
    fastgemm.disable()
    assert entered() == 0


def kernel_of(level: int, device: str) -> str:
    return next(row.name for row in fastgemm.kernels("gemm", device) if row.level == level)


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@every_device
def test_every_thread_is_patched_until_it_is_disabled(device):
    """Those that were there before, and new ones."""
    a, go = draw(9, 9), threading.Event()

    def work():
        go.wait()
        return a @ a

    with ThreadPoolExecutor(2) as before:
        early = [before.submit(work) for _ in range(2)]
        a @ a
        routed = fastgemm.enable(level=1)
        assert isinstance(routed, fastgemm.Routed)
        go.set()
        results = [task.result() for task in early]
    with ThreadPoolExecutor(1) as after:
        results += [after.submit(work).result(), a @ a]
        fastgemm.disable()
        a @ a, after.submit(work).result()
    assert all(torch.equal(result, fastgemm.matmul(a, a, level=1)) for result in results)
    assert routed.kernels == {kernel_of(1, device): 4}
    assert kernels_that_ran(lambda: a @ a) == []


@every_device
def test_products_and_gradients(device):
    x, w, bias = draw(2, 6, 40).requires_grad_(), draw(5, 40).requires_grad_(), draw(5)
    grad = draw(2, 6, 5)
    routed = fastgemm.enable(level=2)
    result = functional.linear(x, w, bias)
    result.backward(grad)
    fastgemm.disable()
    assert_right(result.detach(), expected_gemm(x.detach(), w.detach().t(), bias.broadcast_to(2, 6, 5)))
    assert_right(x.grad, expected_gemm(grad, w.detach()))
    assert_right(w.grad, expected_gemm(grad.flatten(0, 1).t(), x.detach().flatten(0, 1)))
    assert routed.ops.total() == 3
    assert routed.kernels == {kernel_of(2, device): 3}


@every_device
def test_a_patch_goes_first(device):
    a = draw(9, 9)
    routed = fastgemm.enable(level=1)
    a @ a
    with fastgemm.patch(level=2) as inside:
        a @ a
        with ThreadPoolExecutor(1) as pool:  # in which there is no patch
            pool.submit(lambda: a @ a).result()
    a @ a
    assert routed.kernels == {kernel_of(1, device): 3}
    assert inside.kernels == {kernel_of(2, device): 1}


@every_device
def test_what_patches_pass_on_is_taken(device):
    a = draw(9, 9)
    routed = fastgemm.enable(level=1)
    with fastgemm.patch(kernel=ELSEWHERE[device]) as outer, fastgemm.patch(kernel=ELSEWHERE[device]) as inner:
        result = a @ a
    assert torch.equal(result, fastgemm.matmul(a, a, level=1))
    for patch in (outer, inner):
        assert not patch.total
        assert [op for op, _ in patch.passed_on] == ["mm"]
    assert routed.kernels == {kernel_of(1, device): 1}
    assert not routed.passed_on


@every_device
def test_what_nobody_takes_is_torchs_and_told_by_all(device):
    a = torch.randn(4, 4, dtype=torch.complex64)
    routed = fastgemm.enable()
    with fastgemm.patch() as inside:
        result = a @ a
    fastgemm.disable()
    assert torch.equal(result, a @ a)
    assert routed.passed_on == inside.passed_on == {("mm", "dtype complex64"): 1}
    assert not routed.total


@every_device
def test_what_is_enabled_inside_of_a_patch_stays(device):
    a = draw(9, 9)
    with fastgemm.patch(level=2) as inside:
        routed = fastgemm.enable(level=1)
        a @ a
    a @ a
    assert inside.kernels == {kernel_of(2, device): 1}
    assert routed.kernels == {kernel_of(1, device): 1}


@every_device
def test_disabled_inside_of_a_patch_the_patch_goes_on(device):
    a = draw(9, 9)
    routed = fastgemm.enable(level=1)
    with fastgemm.patch(level=2) as inside:
        fastgemm.disable()
        a @ a
    assert kernels_that_ran(lambda: a @ a) == []
    assert inside.total == 1
    assert not routed.total


@every_device
def test_called_again_it_replaces_the_choice(device):
    a = draw(9, 9)
    first = fastgemm.enable(level=1)
    a @ a
    second = fastgemm.enable(kernel=kernel_of(2, device))
    a @ a
    a @ a
    assert first is not second
    assert first.kernels == {kernel_of(1, device): 1}
    assert second.kernels == {kernel_of(2, device): 2}
    fastgemm.disable()  # both
    assert kernels_that_ran(lambda: a @ a) == []


def test_disable_without_enable():
    fastgemm.disable()
    fastgemm.disable()
    assert kernels_that_ran(lambda: torch.ones(3, 3) @ torch.ones(3, 3)) == []


@every_device
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"level": 8}, ValueError, "level must be 1 to 7"),
        ({"level": "5"}, TypeError, "level must be an int"),
        ({"level": True}, TypeError, "level must be an int"),
        ({"precision": "fp8"}, ValueError, "precision must be one of"),
        ({"kernel": "nothing"}, ValueError, "no gemm kernel 'nothing'"),
        ({"kernel": "naive", "level": 2}, ValueError, "of level 1, not 2"),
    ],
)
def test_bad_arguments_change_nothing(arguments, error, message, device):
    a = draw(9, 9)
    with pytest.raises(error, match=message):
        fastgemm.enable(**arguments)
    assert kernels_that_ran(lambda: a @ a) == []
    routed = fastgemm.enable(level=1)
    with pytest.raises(error, match=message):
        fastgemm.enable(**arguments)
    a @ a
    assert routed.kernels == {kernel_of(1, device): 1}


@every_device
def test_a_precision_is_kept(device):
    a = torch.randn(64, 4096)
    routed = fastgemm.enable(precision="bf16x3")
    result = a @ a.t()
    assert torch.equal(result, fastgemm.matmul(a, a.t(), precision="bf16x3"))
    assert routed.ops == {"mm": 1}


@every_device
@pytest.mark.parametrize("start", ["enable", "patch"])
def test_without_counting(start, device):
    a = draw(9, 9)
    if start == "enable":
        routed = fastgemm.enable(level=1, count=False)
        ran = kernels_that_ran(lambda: (a @ a, (a + 0j) @ (a + 0j)))
    else:
        with fastgemm.patch(level=1, count=False) as routed:
            ran = kernels_that_ran(lambda: (a @ a, (a + 0j) @ (a + 0j)))
    assert ran == [kernel_of(1, device)]
    assert not routed.total
    assert not routed.passed_on
    assert str(routed) == "routed 0"


@every_device
def test_compiled_code(device):
    torch.compiler.reset()
    model, x = torch.nn.Linear(16, 8).to(device), torch.randn(6, 16)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    routed = fastgemm.enable(level=1)
    torch.testing.assert_close(compiled(x), model(x))
    assert routed.kernels == {kernel_of(1, device): 2}


@every_device
def test_threads_multiply_while_it_is_switched(device):
    """Each product is right, whatever holds when it is computed, and counted once or not at all."""
    a, stop, wrong = draw(12, 12), threading.Event(), []
    expected, calls = a @ a, [0] * 3

    def work(number):
        while not stop.is_set():
            if not torch.allclose(a @ a, expected):
                wrong.append(number)
            calls[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    counts = []
    for level in itertools.islice(itertools.cycle([1, 2, 3]), 150):
        counts.append(fastgemm.enable(level=level))
        if level == 3:
            fastgemm.disable()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sum(routed.total for routed in counts) <= sum(calls)


# FASTGEMM_PATCH


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
with torch.profiler.profile() as profile:
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
    ("value", "first"), [("2", ""), (" 1", "import torch\n"), ("yes", "import fastgemm\n")]
)
def test_another_value_is_ignored_with_a_warning(value, first, entry_points):
    done = run_with(entry_points, first + PROGRAM, FASTGEMM_PATCH=value)
    assert printed(done) == (True, [""], 1)
    assert done.stderr.count(f"FASTGEMM_PATCH must be 1 or 0, got {value!r}: ignored") == 1


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
    (tmp_path / "fastgemm.py").write_text("raise ImportError('it is broken')\n")
    done = run_with(entry_points, PROGRAM, tmp_path, FASTGEMM_PATCH="1")
    assert printed(done) == (False, [""], 1)
    warning = "FASTGEMM_PATCH is set, but fastgemm cannot be imported: it is broken"
    assert warning in done.stderr


def test_the_processes_of_a_patched_one(entry_points):
    """A forked one has it from its parent, a new one from the environment."""
    program = """
import torch, multiprocessing, os
def ranges():
    torch.set_num_threads(1)
    with torch.profiler.profile() as profile:
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
sys.path.insert(0, {tests!r})
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
assert len(second) == 1 and second != ["microkernel"] and enabled.kernels == {{second[0]: 1}}
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
    done = run_with(entry_points, ORDER.format(tests=str(Path(__file__).parent)), FASTGEMM_PATCH="1")
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def without_library(tmp_path_factory) -> Path:
    return copy_of_package(tmp_path_factory.mktemp("package"), "_introspect*.so", "libfastgemm.so")


def test_without_a_library_the_variable_does_nothing_but_warn(entry_points, without_library):
    done = run_with(entry_points, PROGRAM, without_library, FASTGEMM_PATCH="1")
    assert printed(done) == (True, [""], 1)
    assert done.stderr.count("fastgemm: FASTGEMM_PATCH=1, but this build of fastgemm has no library for") == 1


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
