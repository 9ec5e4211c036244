"""Tests that Python code called from torch's C++ never ends the process: exceptions of a patch, a kernel or a
callback reach the caller, and torch's queries to a subclass are passed on.

Each case runs in its own process.
"""

import pytest
from processes import run_forked

SETUP = """
import warnings; warnings.simplefilter("ignore")
import pytest, torch, fastgemm
from torch.nn import functional
parts = [torch.randn(3, 4), torch.randn(5, 4)]
a, b = torch.randn(6, 7), torch.randn(7, 5)

class Stop(Exception):
    pass

def stop(*_):
    raise Stop
"""
LIVES = {
    "an op on a jagged tensor with a gradient": """
x = torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)
with fastgemm.patch():
    y = x.sin()
    assert y.shape[0] == 2 and y.stride()[-1] == 1 and y.numel() == 32 and y.is_contiguous()
    y.values().sum().backward()
assert x.grad is not None
""",
    "a layer with a gradient, of a jagged tensor": """
x = torch.nested.nested_tensor(parts, layout=torch.jagged)
layer = torch.nn.Linear(4, 2)
expected = layer(x)
with fastgemm.patch() as routed:
    result = layer(x)
    result.values().sum().backward()
torch.testing.assert_close(result.values(), expected.values())
assert layer.weight.grad is not None
""",
    "sizes of every kind, first seen by a patch": """
x = torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)
with fastgemm.patch(), fastgemm.patch():
    for ask in ("sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "is_contiguous",
                "is_strides_like_format", "is_non_overlapping_and_dense"):
        getattr(torch.ops.aten, ask).default
    str(x.shape), str(x.stride()), x.numel(), x.storage_offset(), x.dim(), x.device, x.layout
    x.is_contiguous(memory_format=torch.contiguous_format), x.is_pinned(), repr(x), x.sum(), x.unbind()
""",
    "the answer about torch's flags raises": """
# It is asked in the middle of C++ code, which torch ends with a RuntimeError that has the traceback as its text.
from fastgemm import _introspect
_introspect.set_framework_probe(stop)
a.requires_grad_()
for call in (lambda: fastgemm.matmul(a.detach(), b, kernel="torch"), lambda: fastgemm.gemm(a, b, kernel="torch")):
    with pytest.raises(RuntimeError, match="Stop"):
        call()
with fastgemm.patch(kernel="torch"), pytest.raises(RuntimeError, match="Stop"):
    torch.mm(a, b)
_introspect.set_framework_probe(lambda *_: True)
out = fastgemm.matmul(a, torch.randn(7, 9), kernel="torch")
_introspect.set_framework_probe(stop)
with pytest.raises(RuntimeError, match="Stop"):  # in a thread of autograd's, or in this one
    out.sum().backward()
_introspect.set_framework_probe(lambda *_: 1 / 0)
with pytest.raises(RuntimeError, match="ZeroDivisionError"):
    fastgemm.matmul(torch.randn(8, 9), torch.randn(9, 10), kernel="torch")
""",
    "a kernel that autocast calls raises": """
from fastgemm._ops import autocast as _autocast
_autocast._lower = stop
with torch.autocast("cpu"), pytest.raises(Stop):
    torch.ops.fastgemm.gemm(a, b)  # the bare ops have kernels in C++ where there is a library for this torch
""",
    "a kernel for negative views raises": """
from fastgemm._tracing import conjugates as _lazy
_lazy._resolved = stop
with pytest.raises(Stop):
    fastgemm.matmul(a, b, out=torch._neg_view(torch.empty(6, 5)))
with pytest.raises(Stop):
    fastgemm.add_(torch._neg_view(a), a)
""",
    "a gradient's formula raises": """
from fastgemm._ops import gemm as _gemm
_gemm._gemm_gradients = stop
a.requires_grad_()
transform = torch.func.grad(lambda a: fastgemm.matmul(a, b).sum())
with fastgemm.patch():
    for call in (lambda: torch.ops.fastgemm.gemm(a, b).sum().backward(), lambda: transform(a.detach())):
        with pytest.raises(Stop):
            call()
""",
    "a gradient in C++ raises": """
a, b = torch.randn(600, 600, requires_grad=True), torch.randn(600, 600)
def fails(c):
    fastgemm.tuning.limit_workspace(0)
    with pytest.raises(torch.OutOfMemoryError, match="microkernel"):
        c.sum().backward()
    fastgemm.tuning.limit_workspace(None)
    assert a.grad is None
fails(fastgemm.matmul(a, b, kernel="microkernel"))
with fastgemm.patch(kernel="microkernel"):
    fails(a @ b)
""",
}


@pytest.mark.parametrize("case", LIVES)
def test_the_process_lives(case):
    done = run_forked(SETUP + LIVES[case] + "\nprint('alive')")
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-2500:]
