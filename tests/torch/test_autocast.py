"""Tests torch.autocast: products are cast if torch.matmul's operands are, and nothing else is cast."""

import sys

import fastgemm
import pytest
import torch
from fastgemm._ops.dispatch import FINDS_GRADIENTS
from reference import DEVICES, every_device
from torch.utils._python_dispatch import TorchDispatchMode

LOWER = {"cpu": (torch.bfloat16, torch.float16), "cuda": (torch.float16, torch.bfloat16)}
CASES = [(device, dtype) for device in DEVICES for dtype in LOWER[device]]
each_lower = pytest.mark.parametrize(("device", "dtype"), CASES)

PRODUCTS = {
    "matmul": lambda m, a, b: m(a, b),
    "vector and matrix": lambda m, a, b: m(a[0], b),
    "matrix and vector": lambda m, a, b: m(a, b[:, 0]),
    "batch": lambda m, a, b: m(a.expand(3, *a.shape), b),
}


@each_lower
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("gradient", [False, True], ids=["plain", "requires_grad"])
def test_products_are_cast_like_those_of_torch(device, dtype, name, gradient):
    a, b = torch.randn(5, 7, requires_grad=gradient), torch.randn(7, 4)
    call = PRODUCTS[name]
    with torch.autocast(device, dtype):
        ours, theirs = call(fastgemm.matmul, a, b), call(torch.matmul, a, b)
        leveled = call(lambda x, y: fastgemm.matmul(x, y, level=2), a, b)
    assert ours.dtype == leveled.dtype == theirs.dtype == dtype
    torch.testing.assert_close(ours, theirs, rtol=2**-6, atol=2**-6)
    assert torch.equal(ours, call(fastgemm.matmul, a.to(dtype), b.to(dtype)))


@each_lower
def test_c_is_cast_to_the_type_of_the_result(device, dtype):
    a, b, c = torch.randn(5, 7), torch.randn(7, 4), torch.randn(4)
    low = [x.to(dtype) for x in (a, b, c)]
    with torch.autocast(device, dtype):
        assert torch.equal(fastgemm.gemm(a, b, c, beta=0.5), fastgemm.gemm(*low, beta=0.5))
        wide = fastgemm.gemm(a, b, c, out_dtype=torch.float32)
        assert torch.addmm(c, a, b).dtype == dtype
    assert torch.equal(wide, fastgemm.gemm(*low[:2], c, out_dtype=torch.float32))


@each_lower
@pytest.mark.parametrize("how", [{}, {"out_dtype": torch.float8_e4m3fn, "out_scale": "row"}], ids=str)
@pytest.mark.parametrize("activation, columns", [(None, 6), ("silu", 6), ("swiglu", 3)])
def test_a_residual_is_cast_like_the_operands(device, dtype, activation, columns, how):
    x, weight, residual = torch.randn(5, 7), torch.randn(6, 7), torch.randn(5, columns)

    def run(residual, precision=None):
        with torch.autocast(device, dtype):
            return fastgemm.linear(
                x, weight, activation=activation, residual=residual, precision=precision, **how
            )

    for got, wanted in zip(run(residual), run(residual.to(dtype)), strict=True):
        assert torch.equal(got.float(), wanted.float())
    for wrong, precision in ((residual.to(dtype), "ieee"), (residual.double(), None)):
        with pytest.raises(ValueError, match=r"fastgemm\.linear: residual has"):
            run(wrong, precision)


@each_lower
def test_operands_of_two_types_meet_in_the_lower_one(device, dtype):
    a, b = torch.randn(5, 7), torch.randn(7, 4).to(dtype)
    with torch.autocast(device, dtype):
        assert fastgemm.matmul(a, b).dtype == torch.matmul(a, b).dtype == dtype
    with pytest.raises(ValueError, match="dtype"):
        fastgemm.matmul(a, b)


@each_lower
def test_what_autocast_leaves_alone(device, dtype):
    a, b = torch.randn(5, 5), torch.randn(5, 5)
    integers = torch.randint(-9, 9, (5, 5), dtype=torch.int32)
    with torch.autocast(device, dtype):
        assert fastgemm.matmul(a.double(), b.double()).dtype == torch.matmul(a.double(), b.double()).dtype
        assert fastgemm.matmul(integers, integers).dtype == torch.int32
        assert fastgemm.add(a, b).dtype == torch.add(a, b).dtype == torch.float32
        assert fastgemm.add_(a.clone(), b).dtype == fastgemm.transpose(a).dtype == torch.float32
        out = torch.empty(5, 5)
        assert torch.equal(fastgemm.matmul(a, b, out=out), fastgemm.gemm(a, b, precision="ieee"))
        compiled = torch.compile(
            lambda out: fastgemm.matmul(a, b, out=out[1]), backend="eager", fullgraph=True
        )
        assert torch.equal(compiled(torch.empty(2, 5, 5)), out)
        assert torch.matmul(a, b, out=torch.empty(5, 5)).dtype == out.dtype == torch.float32
        assert fastgemm.matmul(a, b, precision="ieee").dtype == torch.float32  # float32 was requested
        with torch.autocast(device, enabled=False):
            assert fastgemm.matmul(a, b).dtype == torch.float32
    assert fastgemm.matmul(a, b).dtype == torch.float32


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs two kinds of devices")
def test_each_device_has_its_own():
    a = torch.randn(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert fastgemm.matmul(a.cuda(), a.cuda()).dtype == torch.float32
        assert fastgemm.matmul(a, a).dtype == torch.bfloat16
    with torch.autocast("cuda", torch.float16):
        assert fastgemm.matmul(a, a).dtype == torch.float32
        assert fastgemm.matmul(a.cuda(), a.cuda()).dtype == torch.float16


@pytest.mark.skipif("cuda" not in DEVICES, reason="float32 follows torch's tf32 setting on a GPU alone")
@pytest.mark.parametrize("device", ["cuda"])
def test_tf32_does_not_keep_operands_wide(device, monkeypatch):
    monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32")
    a = torch.randn(64, 64)
    with torch.autocast("cuda", torch.bfloat16):
        assert fastgemm.matmul(a, a).dtype == fastgemm.matmul(a, a, level=6).dtype == torch.bfloat16


@each_lower
def test_gradients_have_the_types_of_the_operands(device, dtype):
    """Saved tensors have the lower type and half the memory, because autograd sees the product after the
    casts."""
    grads, kept = [], []
    a0, b0, t = torch.randn(5, 7), torch.randn(7, 4), torch.randn(5, 4)
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.dtype) or t, lambda t: t)
    for product in (torch.matmul, fastgemm.matmul):
        a, b = a0.clone().requires_grad_(), b0.clone().requires_grad_()
        kept.clear()
        with torch.autocast(device, dtype), hooks:
            y = product(a, b)
        assert y.dtype == dtype
        y.backward(t.to(dtype))
        assert a.grad.dtype == b.grad.dtype == torch.float32
        grads.append((a.grad, b.grad))
    assert kept == [dtype, dtype]
    torch.testing.assert_close(*grads, rtol=2**-6, atol=2**-5)


class Casts(TorchDispatchMode):
    """Counts the conversions to another dtype."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._to_copy.default
        return func(*args, **(kwargs or {}))


@each_lower
@pytest.mark.parametrize("matmul", [torch.matmul, fastgemm.matmul], ids=["torch", "fastgemm"])
def test_a_weight_is_cast_once(device, dtype, matmul):
    """The copy of a parameter is cached until autocast ends. Without an override library there is no cache."""
    casts = 2 if matmul is fastgemm.matmul and not FINDS_GRADIENTS else 1
    weight = torch.randn(8, 8, device=device, requires_grad=True)
    x = torch.randn(4, 8, device=device, dtype=dtype)
    with torch.autocast(device, dtype), Casts() as seen:
        first, second = matmul(x, weight), matmul(x, weight)
    assert seen.count == casts
    assert torch.equal(first, second)
    assert first.dtype == dtype
    with torch.no_grad():
        weight.zero_()
    with torch.autocast(device, dtype):
        assert not matmul(x, weight).any()  # the copy is not kept longer


@each_lower
def test_transforms(device, dtype):
    a, b = torch.randn(3, 5, 7), torch.randn(7, 4)
    with torch.autocast(device, dtype):
        assert torch.vmap(lambda x: fastgemm.matmul(x, b))(a).dtype == dtype
        gradient = torch.func.grad(lambda x: fastgemm.matmul(x, b).float().sum())(a)
        _, tangent = torch.func.jvp(lambda x: fastgemm.matmul(x, b), (a,), (a,))
    assert gradient.dtype == torch.float32
    assert tangent.dtype == dtype


@each_lower
def test_the_ops_themselves(device, dtype):
    """Graphs of torch.export call the ops."""
    a, b = torch.randn(5, 7), torch.randn(7, 4)
    for op in (torch.ops.fastgemm.gemm, torch.ops.fastgemm._gemm, torch.ops.fastgemm._matmul):
        with torch.autocast(device, dtype):
            assert op(a, b).dtype == dtype
        assert op(a, b).dtype == torch.float32


@each_lower
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_compiled(device, dtype, inside):
    """autocast is inside the compiled function, as in torch.export, or around its call."""

    def function(a, b):
        with torch.autocast(device, dtype, enabled=inside or torch.is_autocast_enabled(device)):
            return fastgemm.matmul(a, b, level=5).float().sin()

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    a, b = torch.randn(5, 7, requires_grad=True), torch.randn(7, 4)
    with torch.autocast(device, dtype, enabled=not inside):
        got, exact = compiled(a, b), function(a, b)
    assert torch.equal(got, exact)
    assert not torch.equal(got, fastgemm.matmul(a, b, level=5, precision="ieee").sin())
    (gradient,) = torch.autograd.grad(got.sum(), a)
    torch.testing.assert_close(gradient, torch.autograd.grad(exact.sum(), a)[0])
    assert torch.equal(compiled(a, b), function(a, b))  # compiled again, or still cast
    a, b = a.detach().double(), b.double()
    with torch.autocast(device, dtype, enabled=not inside):
        assert torch.equal(compiled(a, b), fastgemm.matmul(a, b, level=5).float().sin())  # float64 stays


@every_device
def test_no_python_runs_for_autocast(device):
    """This holds without autocast, and with it if there is an override library for this torch."""
    a, functions = torch.randn(4, 4), []

    def seen(frame, event, _):
        if event == "call" and frame.f_code.co_filename == fastgemm._ops.autocast.__file__:
            functions.append(frame.f_code.co_name)

    def types():
        functions.clear()
        sys.setprofile(seen)
        try:
            results = fastgemm.matmul(a, a), fastgemm.gemm(a, a, level=2)
        finally:
            sys.setprofile(None)
        return {result.dtype for result in results}

    assert types() == {torch.float32}
    assert not functions
    with torch.autocast(device, torch.bfloat16):
        assert types() == {torch.bfloat16}
    assert functions.count("operands") == (0 if FINDS_GRADIENTS else 2)
