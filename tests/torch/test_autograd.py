"""Tests gradients in reverse mode and double backward, at every level and precision."""

import contextlib
import itertools
import warnings

import fastgemm
import pytest
import torch
from fastgemm._ops.dispatch import FINDS_GRADIENTS
from fastgemm.table import PRECISIONS
from reference import (
    DEVICES,
    FLOATS,
    LEVEL,
    LIBRARY_LEVEL,
    OPERAND_ROUNDING,
    UNIT_ROUNDOFF,
    every_device,
    kernels_that_ran,
    levels,
    row_id,
)
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode


def draw(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def both_checks(function, *inputs):
    assert gradcheck(function, inputs, check_forward_ad=True)
    assert gradgradcheck(function, inputs)


@every_device
@pytest.mark.parametrize(("trans_a", "trans_b"), list(itertools.product((False, True), repeat=2)))
def test_gemm(trans_a, trans_b):
    a, b = draw(*((4, 3) if trans_a else (3, 4))), draw(*((2, 4) if trans_b else (4, 2)))

    def product(a, b, c):
        return fastgemm.gemm(a, b, c, alpha=1.5, beta=-0.5, trans_a=trans_a, trans_b=trans_b)

    both_checks(product, a, b, draw(3, 2))
    both_checks(lambda a, b: fastgemm.gemm(a, b, trans_a=trans_a, trans_b=trans_b, level=1), a, b)


@every_device
@pytest.mark.parametrize(
    ("a_shape", "b_shape", "c_shape"),
    [
        ((2, 3, 4), (4, 2), (2,)),
        ((3, 4), (2, 4, 2), (3, 2)),
        ((2, 1, 3, 4), (3, 4, 2), (2, 3, 3, 1)),
        ((1, 3, 4), (2, 4, 2), (1, 1)),
        ((2, 5, 3, 4), (1, 1, 4, 2), (5, 1, 2)),
        ((3, 4), (1, 1, 4, 2), (3, 1)),
    ],
)
def test_gemm_broadcasting(a_shape, b_shape, c_shape):
    both_checks(
        lambda a, b, c: fastgemm.gemm(a, b, c, beta=2), draw(*a_shape), draw(*b_shape), draw(*c_shape)
    )


@every_device
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("how", ["eager", "compiled", "torch.func"])
def test_the_gradient_of_one_matrix_in_a_batch_is_one_sum(how, trans_b):
    """Products of these integers do not fit in bfloat16, and their sums fit in float32: they are rounded once."""
    a, b, grad = (torch.randint(-127, 128, shape).bfloat16() for shape in ((60, 5, 8), (8, 4), (60, 5, 4)))
    b = b.mT.contiguous() if trans_b else b

    def product(a, b):
        return fastgemm.gemm(a, b, trans_b=trans_b)

    if how == "torch.func":
        found_a, found_b = torch.func.vjp(product, a, b)[1](grad)
    else:
        a.requires_grad_(), b.requires_grad_()
        call = torch.compile(product, backend="aot_eager") if how == "compiled" else product
        found_a, found_b = torch.autograd.grad(call(a, b), (a, b), grad)
    rows, of_rows = (x.detach().double().flatten(0, 1) for x in (a, grad))
    expected = of_rows.mT @ rows if trans_b else rows.mT @ of_rows
    assert torch.equal(found_b, expected.bfloat16())
    wide = b.detach().double()
    assert torch.equal(found_a, (grad.double() @ (wide if trans_b else wide.mT)).bfloat16())


def test_a_batch_of_a_size_that_no_graph_knows():
    """No graph may depend on whether it is a batch of one."""
    a, b = draw(3, 4, 5), draw(3, 5, 6)
    for x in (a, b):
        torch._dynamo.decorators.mark_unbacked(x, 0)
    call = torch.compile(fastgemm.matmul, backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(call(a, b).sum(), (a, b))
    for x, expected in zip(found, torch.autograd.grad((a @ b).sum(), (a, b)), strict=True):
        torch.testing.assert_close(x, expected)


@every_device
def test_a_gradient_whose_elements_share_memory():
    """As of a sum: its strides are 0, and the rows of the batch are one product all the same."""
    a, b = draw(7, 3, 4), draw(4, 2)
    with Products() as seen:
        fastgemm.matmul(a, b).sum().backward()
    assert seen.ranks == [2, 2]
    torch.testing.assert_close(a.grad, b.detach().sum(1).expand(7, 3, 4))
    torch.testing.assert_close(b.grad, a.detach().sum((0, 1))[:, None].expand(4, 2))


class Products(TorchDispatchMode):
    """Records the ranks of the first operands of products in backward passes."""

    def __init__(self):
        super().__init__()
        self.ranks = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "fastgemm" and torch._C._current_graph_task_id() >= 0:
            self.ranks.append(args[0].dim())
        return func(*args, **(kwargs or {}))


@every_device
@pytest.mark.parametrize(
    ("a_shape", "b_shape"), [((4,), (4,)), ((4,), (4, 2)), ((3, 4), (4,)), ((2, 3, 4), (4,))]
)
def test_matmul_of_vectors(a_shape, b_shape):
    both_checks(fastgemm.matmul, draw(*a_shape), draw(*b_shape))


@every_device
def test_only_some_inputs_need_a_gradient():
    a, b, c = draw(3, 4), draw(4, 2), draw(3, 2)
    for needs in itertools.product((False, True), repeat=3):
        inputs = [x.detach().requires_grad_(n) for x, n in zip((a, b, c), needs, strict=True)]
        result = fastgemm.gemm(*inputs, beta=3)
        assert result.requires_grad == any(needs)
        if any(needs):
            result.sum().backward()
        ones = torch.ones(3, 2).double()
        exact = ones @ b.t(), a.t() @ ones, 3 * ones
        for x, n, gradient in zip(inputs, needs, exact, strict=True):
            assert (x.grad is not None) == n
            if n:
                torch.testing.assert_close(x.grad, gradient.detach())


@every_device
def test_transpose_and_add():
    both_checks(fastgemm.transpose, draw(2, 3, 4))
    both_checks(lambda a: fastgemm.transpose(a, level=2), draw(3, 4))
    both_checks(lambda a, b: fastgemm.add(a, b, alpha=-1.5), draw(3, 4), draw(4))
    both_checks(lambda a, b: fastgemm.add(a, b), draw(1, 4), draw(3, 1))


@every_device
def test_batches_of_tangents():
    """gradcheck batches tangents by a vmap of its own."""
    a, b = draw(3, 4), draw(3, 4)
    for call, inputs in (
        (fastgemm.transpose, (a,)),
        (fastgemm.add, (a, b)),
        (lambda a, b: fastgemm.add_(a.clone(), b), (a, b)),
        (lambda a, b: fastgemm.linear(a, b, activation="silu"), (a, b)),
    ):
        assert gradcheck(call, inputs, check_forward_ad=True, check_batched_forward_grad=True)


@every_device
def test_add_in_place():
    both_checks(lambda a, b: fastgemm.add_(a.clone(), b, alpha=2), draw(3, 4), draw(4))
    leaf = draw(3)
    with pytest.raises(RuntimeError, match="leaf"):
        fastgemm.add_(leaf, torch.ones(3).double())
    saved = draw(3)
    grown = saved * 1
    square = grown**2
    fastgemm.add_(grown, torch.ones(3).double())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.sum().backward()


@every_device
def test_in_place_without_gradients_is_noticed_too():
    """An in-place op must mark its argument as changed. Otherwise autograd would use old values."""
    ones = torch.ones(2, 2)
    for write in (lambda x: fastgemm.add_(x, ones), lambda x: fastgemm.matmul(ones, ones, out=x)):
        x = torch.ones(2, 2)
        product = torch.ones(2, 2, requires_grad=True) * x
        write(x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()


@every_device
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_out_dtype(dtype):
    a, b = draw(5, 7, dtype=dtype), draw(7, 3, dtype=dtype)
    result = fastgemm.matmul(a, b, out_dtype=torch.float32)
    assert result.dtype == torch.float32
    gradient = torch.randn(5, 3) * 1e2
    result.backward(gradient)
    exact = gradient @ b.detach().float().t(), a.detach().float().t() @ gradient
    for x, expected in zip((a, b), exact, strict=True):
        assert x.grad.dtype == dtype
        torch.testing.assert_close(x.grad, expected.to(dtype), rtol=2e-2, atol=1e-2)


@every_device
def test_the_backward_pass_uses_the_same_kernel():
    a, b = draw(40, 50, dtype=torch.float32), draw(50, 30, dtype=torch.float32)
    gradient = torch.randn(40, 30)
    fastgemm.matmul(a, b, kernel="naive").backward(gradient)
    assert torch.equal(a.grad, fastgemm.gemm(gradient, b.detach(), trans_b=True, kernel="naive"))
    assert torch.equal(b.grad, fastgemm.gemm(a.detach(), gradient, trans_a=True, kernel="naive"))


@every_device
def test_torchs_own_product_leaves_no_part_of_a_graph():
    """The bare op has a graph node in C++, or none. torch's copy of c into the result must not add one."""
    a, c = torch.randn(3, 4), torch.randn(3, 3, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = torch.ops.fastgemm._gemm(a, a.t(), c, impl="torch")
        assert "Copy" not in type(result.grad_fn).__name__ + str(result.grad_fn)
        with contextlib.nullcontext() if FINDS_GRADIENTS else contextlib.suppress(RuntimeError):
            result.sum().backward()
    assert torch.equal(c.grad, torch.ones(3, 3)) if FINDS_GRADIENTS else c.grad is None


# Every level and precision


def first_and_second_gradients(product, a: Tensor, b: Tensor) -> list[Tensor]:
    """First and second gradients of sum(sin(product)). They need six products in all."""
    a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
    once = torch.autograd.grad(product(a, b).double().sin().sum(), (a, b), create_graph=True)
    return [*once, *torch.autograd.grad(sum(g.double().cos().sum() for g in once), (a, b))]


def assert_near(got: list[Tensor], a: Tensor, b: Tensor, precision: str = "ieee") -> None:
    """Compares with float64. A rounding error of an operand grows by a small factor in a gradient."""
    exact = first_and_second_gradients(torch.matmul, a.double(), b.double())
    u = max(UNIT_ROUNDOFF[a.dtype], OPERAND_ROUNDING.get(precision, 0))
    for x, y in zip(got, exact, strict=True):
        assert x.dtype == a.dtype
        error = (x.double() - y).abs().max() / y.abs().max()
        assert error < 64 * u, error


def operands(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Operands are small, so that float16 rounds the angles to a few hundredths."""
    return torch.randn(24, 40).to(dtype) / 8, torch.randn(40, 16).to(dtype)


@pytest.mark.parametrize(
    ("device", "level", "dtype"),
    [(d, level, FLOATS[level % len(FLOATS)]) for d in DEVICES for level in levels("gemm", d)],
    ids=row_id,
)
def test_every_level_twice(device, level, dtype):
    """All six products of first and second order must use the requested level."""
    a, b = operands(dtype)
    results = []
    ran = kernels_that_ran(
        lambda: results.extend(
            first_and_second_gradients(lambda x, y: fastgemm.matmul(x, y, level=level), a, b)
        )
    )
    assert_near(results, a, b)
    assert len(ran) >= 6
    if level != LIBRARY_LEVEL:  # this level chooses from all kernels
        assert {LEVEL["gemm", device, name] for name in ran} == {level}


class CallsSeen(TorchDispatchMode):
    """Records the keyword arguments of every product."""

    def __init__(self):
        super().__init__()
        self.options = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "fastgemm":
            self.options.append(kwargs)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_precision_and_level_reach_every_gradient(precision):
    """Uses meta tensors, to include precisions without a kernel on this machine."""
    a, b = (torch.empty(8, 8, device="meta") for _ in range(2))
    with CallsSeen() as seen:
        first_and_second_gradients(lambda x, y: fastgemm.matmul(x, y, level=6, precision=precision), a, b)
    assert len(seen.options) >= 6
    assert all((o["precision"], o["level"]) == (precision, 6) for o in seen.options)


@pytest.mark.parametrize(
    ("device", "level"), [(device, level) for device in DEVICES for level in levels("transpose", device)]
)
def test_every_level_of_transpose(device, level):
    a = draw(5, 3, dtype=torch.float32)
    ran = kernels_that_ran(
        lambda: fastgemm.transpose(a, level=level).backward(torch.randn(3, 5)), "transpose"
    )
    assert len(ran) == 2
    if level != LIBRARY_LEVEL:
        assert {LEVEL["transpose", device, name] for name in ran} == {level}
