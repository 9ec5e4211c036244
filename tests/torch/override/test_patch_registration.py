"""Tests the kernels of patches: they are registered once, beside those of others, also in forks and at exits."""

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import fastgemm
import pytest
from patches import needs_library
from processes import run_forked

pytestmark = needs_library

FORK = """
import os, torch, fastgemm
torch.set_num_threads(1)
a = torch.randn(9, 9, dtype=torch.float64)
patch = fastgemm.patch(level=1)
with patch as routed:
    a @ a
    child = os.fork()
    a @ a
    with fastgemm.patch(level=2) as inner:
        a @ a
    if child == 0:
        status = (routed.kernels != {"naive": 2}) + 2 * (inner.total != 1)
if child == 0:
    a @ a
    os._exit(status + 4 * (routed.total != 2))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert routed.kernels == {"naive": 2}
"""
REGISTERED_ONCE = """
import torch
PRODUCTS = [f"aten::{op}{overload}" for op in ("mm", "bmm", "addmm", "baddbmm")
            for overload in ("", ".out", ".dtype", ".dtype_out")]
PRODUCTS += ["aten::addmm_", "aten::baddbmm_", "aten::_addmm_activation", "aten::_addmm_activation.out"]
PRODUCTS += [f"aten::_scaled_mm{version}{overload}" for version in ("", "_v2") for overload in ("", ".out")
             if torch._C._dispatch_has_kernel(f"aten::_scaled_mm{version}{overload}")]
OTHERS = ["aten::mv", "aten::dot", "aten::addbmm", "aten::add.Tensor"]
def kernels(op, key):
    return sum(line.split(":")[0].removesuffix(" (inactive)") == key
               for line in torch._C._dispatch_dump(op).splitlines())
def registered():
    return {(op, key): kernels(op, key) for op in PRODUCTS + OTHERS for key in ("CPU", "CUDA", "Meta")}
before = registered()  # before the first patch, nothing is fastgemm's
import fastgemm
a = torch.randn(4, 4)
for _ in range(3):
    with fastgemm.patch(), fastgemm.patch():
        a @ a
    fastgemm.enable()
    fastgemm.disable()
after = registered()
for (op, key), count in before.items():
    own = op in PRODUCTS and key != "Meta" and count > 0
    assert after[op, key] == count + own, (op, key, count, after[op, key])
assert after["aten::mm", "CPU"] == 2
"""
FOREIGN_KERNEL = """
import torch, fastgemm
a, calls = torch.randn(4, 4), []
def mine(x, y):
    calls.append(1)
    return torch.full((4, 4), 7.0)
library = torch.library.Library("aten", "IMPL")
def register():
    library.impl("mm", mine, "CPU", **({"allow_override": True} if NEW else {}))
import inspect
NEW = "allow_override" in inspect.signature(library.impl).parameters
"""
BEHIND = """
register()
with fastgemm.patch(level=1) as routed:  # the first of the process
    assert not (a @ a == 7).all()
    torch.mm(a.to(torch.int8), a.to(torch.int8))
assert routed.ops == {"mm": 1} and len(calls) == 1  # the patch passed the other calls on to it
assert (a @ a == 7).all() and len(calls) == 2
"""
IN_FRONT = """
with fastgemm.patch(level=1) as routed:
    a @ a
register()
with fastgemm.patch(level=1) as covered:
    assert (a @ a == 7).all()
assert not covered.total and not covered.passed_on
library._destroy()
with fastgemm.patch(level=1) as again:
    result = a @ a
torch.testing.assert_close(result, (a.double() @ a.double()).float())
assert again.ops == {"mm": 1}
"""
BEHIND_AND_GONE = """
register()
with fastgemm.patch(level=1) as routed:
    a @ a
library._destroy()
torch.testing.assert_close(a @ a, (a.double() @ a.double()).float())
"""
TORCHS_OVERRIDE = """
import warnings
warnings.simplefilter("ignore")
import torch, fastgemm
from torch._native import registry
a, calls = torch.randn(4, 4), []
def mine(x, y):
    calls.append(1)
    return torch.full((4, 4), 7.0)
def is_float32(x, y):
    return x.dtype == torch.float32
def register():
    registry.register_op_override("mine", "aten", "mm", "CPU", is_float32, mine)
    registry.reenable_op_overrides(enable_op_symbols="mm")
"""
TORCHS_BEHIND = """
register()
with fastgemm.patch(level=1) as routed:  # the first of the process
    assert not (a @ a == 7).all()
with fastgemm.patch(kernel="warp_specialized") as passed_on:
    assert (a @ a == 7).all()
assert routed.kernels == {"naive": 1} and not passed_on.total
assert (a @ a == 7).all() and len(calls) == 2
"""
TORCHS_IN_FRONT = """
with fastgemm.patch(level=1):
    a @ a
register()
with fastgemm.patch(level=1) as routed:
    assert (a @ a == 7).all()
    assert not routed.total
    a.double() @ a.double()
assert routed.kernels == {"naive": 1} and len(calls) == 1
"""
ACTIVE_AT_EXIT = """
import torch, fastgemm
def products():
    with fastgemm.patch():
        yield
kept = products()
next(kept)
fastgemm.patch(level=1).__enter__()
torch.randn(9, 9) @ torch.randn(9, 9)
"""
# The threads wait, because torch alone crashes if the process exits during a product.
THREADS_AT_EXIT = """
import threading, time, torch, fastgemm
torch.set_num_threads(1)
a, b, ready = torch.randn(9, 9), torch.randn(9, 9, requires_grad=True), threading.Barrier(5)
fastgemm.enable(level=2)
def work():
    with fastgemm.patch(level=1):
        (a @ b).sum().backward()
        ready.wait()
        time.sleep(100)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
ready.wait()
time.sleep(0.2)
fastgemm.patch().__enter__()
a @ a
"""
RUNS = {
    "fork": FORK,
    "registered once": REGISTERED_ONCE,
    "another kernel behind": FOREIGN_KERNEL + BEHIND,
    "another kernel in front": FOREIGN_KERNEL + IN_FRONT,
    "active at exit": ACTIVE_AT_EXIT,
    "threads at exit": THREADS_AT_EXIT,
}


@pytest.mark.parametrize("case", RUNS)
def test_a_process_without_output(case):
    """There must be no output, also no warnings about overridden kernels."""
    quiet = not case.startswith("another kernel")  # torch itself warns about the other kernel
    done = run_forked("import warnings\nwarnings.simplefilter('error')\n" * quiet + RUNS[case])
    assert done.returncode == 0, done.stderr[-2500:]
    assert not quiet or (done.stdout, done.stderr) == ("", "")


@pytest.mark.skipif(find_spec("torch._native") is None, reason="this torch overrides no op in Python")
@pytest.mark.parametrize("order", [TORCHS_BEHIND, TORCHS_IN_FRONT], ids=["behind", "in front"])
def test_an_override_of_torchs_own_in_python(order):
    """torch 2.13 overrides bmm on a GPU. Overrides of torch's import are behind the first patch. Later
    overrides are in front of patches, and pass on what they do not take."""
    done = run_forked(TORCHS_OVERRIDE + order)
    assert done.returncode == 0, done.stderr[-2500:]


@pytest.mark.xfail(strict=True, reason="torch invalidates the kernel that the library goes on to")
def test_another_kernel_that_is_taken_back_again():
    done = run_forked(FOREIGN_KERNEL + BEHIND_AND_GONE)
    assert done.returncode == 0, done.stderr[-2500:]


# A single library serves every version of Python since 3.10.
# Functions of the stable ABI since 3.10 (docs.python.org/3.10/c-api/stable.html). PyObject_Vectorcall is an
# example of others: 3.10 has it only as an inline function.
STABLE = {
    *("PyCapsule_GetPointer", "PyCapsule_IsValid"),
    *("PyErr_CheckSignals", "PyErr_Clear", "PyErr_Fetch", "PyErr_SetString"),
    *("PyEval_RestoreThread", "PyEval_SaveThread", "PyExc_ValueError"),
    *("PyFloat_AsDouble", "PyFloat_Type", "PyGILState_Ensure", "PyGILState_Release"),
    *("PyLong_AsLongLongAndOverflow", "PyLong_Type", "PyModule_AddStringConstant", "PyModule_Create2"),
    *("PyObject_Call", "PyTuple_GetItem", "PyTuple_GetSlice", "PyTuple_Size", "PyUnicode_AsUTF8AndSize"),
    *("Py_DecRef", "Py_IncRef", "Py_IsInitialized", "_Py_Dealloc"),
    *("_Py_FalseStruct", "_Py_NoneStruct", "_Py_NotImplementedStruct", "_Py_TrueStruct"),
}


@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm: it is one of the binutils")
def test_symbols_are_of_the_stable_abi():
    libraries = list(Path(fastgemm.__file__).parent.glob("libfastgemm_override_*.so"))
    if not libraries:
        pytest.skip("this build has no library of overrides")
    for library in libraries:
        done = subprocess.run(
            ["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True, check=True
        )
        names = {line.split()[-1] for line in done.stdout.splitlines()}
        assert {name for name in names if name.startswith(("Py", "_Py"))} <= STABLE
