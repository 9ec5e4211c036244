"""Tests special cases of products and layers in eager mode, whose gradients and layers are C++, against torch."""

import sys

import fastgemm
import pytest
import torch
from fastgemm import nn
from processes import run_forked
from reference import every_device
from torch.nn import functional


@every_device
@pytest.mark.parametrize("beta", [None, 1.0, 2.0, 0.0])
def test_the_gradient_of_a_scalar_c(beta):
    a, b = torch.randn(2, 3, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    c = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda c: fastgemm.gemm(a, b, c, beta=beta), (c,))


@every_device
def test_an_input_that_is_copied_may_change_afterwards():
    """If rows are not evenly spaced, torch keeps a copy of them, not the input."""
    x, w = torch.randn(4, 2, 5).transpose(0, 1), torch.randn(6, 5, requires_grad=True)
    gradients = []
    for linear in (functional.linear, nn.linear):
        given = x.clone(memory_format=torch.preserve_format)
        assert given.stride() == x.stride()
        out = linear(given, w)
        given += 1
        gradients.append(torch.autograd.grad(out.square().sum(), w)[0])
    torch.testing.assert_close(*gradients)


@every_device
@pytest.mark.parametrize("wanted", [False, True], ids=["", "with gradients"])
def test_the_result_of_a_layer_is_no_view(wanted):
    x, w = torch.randn(2, 3, 5), torch.randn(6, 5, requires_grad=wanted)
    out = nn.linear(x, w)
    assert not out._is_view()
    with torch.no_grad():
        out = nn.linear(x, w)
    scale = torch.tensor(2.0, requires_grad=True)
    out.mul_(scale).sum().backward()
    assert scale.grad is not None


@every_device
def test_modes_see_a_product_and_views_alone():
    seen = []

    class Log(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x, w = torch.randn(2, 3, 5), torch.randn(6, 5, requires_grad=True)
    with Log():
        nn.linear(x, w)
    assert "fastgemm._gemm.default" in seen
    assert set(seen) <= {"fastgemm._gemm.default", "aten.view.default", "aten._unsafe_view.default"}


@every_device
@pytest.mark.parametrize(("a_shape", "b_shape"), [((4,), (4,)), ((3, 4), (4,)), ((4,), (2, 4, 5))])
def test_vectors(a_shape, b_shape):
    """With and without a gradient, whose views autograd records."""
    a, b = torch.randn(a_shape), torch.randn(b_shape)
    plain = fastgemm.matmul(a, b)
    torch.testing.assert_close(plain, torch.matmul(a, b))
    a.requires_grad_()
    found = fastgemm.matmul(a, b)
    assert torch.equal(found, plain) and found.requires_grad and not plain.requires_grad
    grad = torch.randn_like(plain)
    (of_a,) = torch.autograd.grad(found, a, grad)
    torch.testing.assert_close(of_a, torch.autograd.grad(torch.matmul(a, b), a, grad)[0])


@every_device
def test_out_is_written_without_a_record():
    a, out = torch.randn(3, 3), torch.ones(3, 3)
    kept = out.clone().requires_grad_()
    loss = (kept * out).sum()  # keeps `out` for its gradient
    assert fastgemm.matmul(a, a, out=out) is out
    assert fastgemm.gemm(a, a, out, out=out) is out
    assert torch.equal(out, fastgemm.gemm(a, a, fastgemm.matmul(a, a)))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.autocast(a.device.type):  # which casts no product into a tensor
        assert torch.equal(
            fastgemm.matmul(a, a, out=torch.empty(3, 3)), fastgemm.matmul(a, a, precision="ieee")
        )


@pytest.mark.parametrize(
    "call", [lambda x, w: fastgemm.matmul(x, w.t()), nn.linear], ids=["matmul", "linear"]
)
def test_compiled_autograd(call):
    from torch._dynamo import compiled_autograd

    x, w = torch.randn(4, 5, requires_grad=True), torch.randn(6, 5, requires_grad=True)
    expected = torch.autograd.grad(functional.linear(x, w).square().sum(), (x, w))
    loss = call(x, w).square().sum()
    with compiled_autograd._enable(torch.compile(backend="eager")):
        loss.backward()
    for g, e in zip((x.grad, w.grad), expected, strict=True):
        torch.testing.assert_close(g, e)
    torch._dynamo.reset()


def test_a_scalar_has_no_rows_to_multiply():
    with pytest.raises(IndexError):
        nn.conv1d(torch.tensor(1.0), torch.randn(1, 3))


def test_without_transformers_there_is_no_conv1d(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers.pytorch_utils", None)
    monkeypatch.delitem(vars(nn), "Conv1D", raising=False)
    assert not hasattr(nn, "Conv1D")


@pytest.mark.parametrize("where", ["with fastgemm.patch(): x @ x", "fastgemm.matmul(x, x)"])
def test_threads_end_with_the_interpreter(where):
    """A thread that was in a patch and ends after the interpreter must not release Python objects."""
    script = f"""
import torch, fastgemm
from concurrent.futures import ThreadPoolExecutor
x = torch.randn(64, 64)
def run(_):
    {where}
with ThreadPoolExecutor(4) as pool: list(pool.map(run, range(16)))
"""
    for _ in range(4):
        done = run_forked(script)
        assert done.returncode == 0, done.stderr[-2000:]
