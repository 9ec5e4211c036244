"""Gradients: reverse, double backward, forward mode and torch.func."""

from __future__ import annotations

import itertools

import fastgemm
import pytest
import torch
from reference import every_device
from torch.autograd import forward_ad, gradcheck, gradgradcheck

pytestmark = every_device


def draw(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def both_checks(function, *inputs):
    assert gradcheck(function, inputs, check_forward_ad=True)
    assert gradgradcheck(function, inputs)


@pytest.mark.parametrize(("trans_a", "trans_b"), list(itertools.product((False, True), repeat=2)))
def test_gemm(trans_a, trans_b):
    a, b = draw(*((4, 3) if trans_a else (3, 4))), draw(*((2, 4) if trans_b else (4, 2)))

    def product(a, b, c):
        return fastgemm.gemm(a, b, c, alpha=1.5, beta=-0.5, trans_a=trans_a, trans_b=trans_b)

    both_checks(product, a, b, draw(3, 2))
    both_checks(lambda a, b: fastgemm.gemm(a, b, trans_a=trans_a, trans_b=trans_b, level=1), a, b)


@pytest.mark.parametrize(
    ("a_shape", "b_shape", "c_shape"),
    [
        ((2, 3, 4), (4, 2), (2,)),
        ((3, 4), (2, 4, 2), (3, 2)),
        ((2, 1, 3, 4), (3, 4, 2), (2, 3, 3, 1)),
        ((1, 3, 4), (2, 4, 2), (1, 1)),
    ],
)
def test_gemm_broadcasting(a_shape, b_shape, c_shape):
    both_checks(
        lambda a, b, c: fastgemm.gemm(a, b, c, beta=2), draw(*a_shape), draw(*b_shape), draw(*c_shape)
    )


@pytest.mark.parametrize(
    ("a_shape", "b_shape"), [((4,), (4,)), ((4,), (4, 2)), ((3, 4), (4,)), ((2, 3, 4), (4,))]
)
def test_matmul_of_vectors(a_shape, b_shape):
    both_checks(fastgemm.matmul, draw(*a_shape), draw(*b_shape))


def test_only_some_inputs_need_a_gradient():
    a, b, c = draw(3, 4), draw(4, 2), draw(3, 2)
    for needs in itertools.product((False, True), repeat=3):
        inputs = [x.detach().requires_grad_(n) for x, n in zip((a, b, c), needs, strict=True)]
        result = fastgemm.gemm(*inputs, beta=3)
        assert result.requires_grad == any(needs)
        if any(needs):
            result.sum().backward()
        exact = [
            torch.ones(3, 2).double() @ b.t(),
            a.t() @ torch.ones(3, 2).double(),
            torch.full((3, 2), 3.0).double(),
        ]
        for x, n, gradient in zip(inputs, needs, exact, strict=True):
            assert (x.grad is not None) == n
            if n:
                torch.testing.assert_close(x.grad, gradient.detach())


def test_transpose_and_add():
    both_checks(fastgemm.transpose, draw(2, 3, 4))
    both_checks(lambda a: fastgemm.transpose(a, level=2), draw(3, 4))
    both_checks(lambda a, b: fastgemm.add(a, b, alpha=-1.5), draw(3, 4), draw(4))
    both_checks(lambda a, b: fastgemm.add(a, b), draw(1, 4), draw(3, 1))


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


def test_in_place_without_gradients_is_noticed_too():
    """An in-place op must count as a change of its argument, or autograd would use stale values."""
    a = torch.ones(3)
    weight = torch.ones(3, requires_grad=True)
    product = weight * a
    fastgemm.add_(a, torch.ones(3))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    out = torch.ones(2, 2)
    product = torch.ones(2, 2, requires_grad=True) * out
    fastgemm.matmul(torch.ones(2, 2), torch.ones(2, 2), out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_out_dtype(dtype):
    a, b = draw(5, 7, dtype=dtype), draw(7, 3, dtype=dtype)
    result = fastgemm.matmul(a, b, out_dtype=torch.float32)
    assert result.dtype == torch.float32
    gradient = torch.randn(5, 3) * 1e5  # would overflow in float16
    result.backward(gradient * 1e-3)
    assert a.grad.dtype == b.grad.dtype == dtype
    torch.testing.assert_close(
        a.grad, (gradient * 1e-3 @ b.detach().float().t()).to(dtype), rtol=2e-2, atol=1e-2
    )
    torch.testing.assert_close(
        b.grad, (a.detach().float().t() @ (gradient * 1e-3)).to(dtype), rtol=2e-2, atol=1e-2
    )


def test_the_backward_pass_uses_the_same_kernel():
    a, b = draw(40, 50, dtype=torch.float32), draw(50, 30, dtype=torch.float32)
    gradient = torch.randn(40, 30)
    fastgemm.matmul(a, b, kernel="naive").backward(gradient)
    assert torch.equal(a.grad, fastgemm.gemm(gradient, b.detach(), trans_b=True, kernel="naive"))
    assert torch.equal(b.grad, fastgemm.gemm(a.detach(), gradient, trans_a=True, kernel="naive"))


def test_forward_mode():
    a, b, c = torch.randn(3, 4).double(), torch.randn(4, 2).double(), torch.randn(2).double()
    da, db, dc = (torch.randn_like(x) for x in (a, b, c))

    def tangent(function, *pairs):
        with forward_ad.dual_level():
            result = function(*[forward_ad.make_dual(x, dx) if dx is not None else x for x, dx in pairs])
            return forward_ad.unpack_dual(result).tangent

    def product(a, b, c):
        return fastgemm.gemm(a, b, c, alpha=2, beta=3)

    exact = 2 * (da @ b + a @ db) + 3 * dc
    torch.testing.assert_close(tangent(product, (a, da), (b, db), (c, dc)), exact)
    torch.testing.assert_close(tangent(product, (a, da), (b, None), (c, None)), 2 * da @ b)
    torch.testing.assert_close(tangent(product, (a, None), (b, None), (c, dc)), (3 * dc).expand(3, 2))
    torch.testing.assert_close(tangent(fastgemm.transpose, (a, da)), da.t())
    torch.testing.assert_close(
        tangent(lambda x, y: fastgemm.add(x, y, alpha=-2), (a, None), (a, da)), -2 * da
    )
    torch.testing.assert_close(tangent(lambda x, y: fastgemm.add_(x.clone(), y), (a, da), (a, da)), 2 * da)
    torch.testing.assert_close(tangent(fastgemm.matmul, (a[0], da[0]), (b, db)), da[0] @ b + a[0] @ db)


def test_torch_func():
    a, b, c = torch.randn(3, 4).double(), torch.randn(4, 2).double(), torch.randn(3, 2).double()

    def loss(product):
        return lambda a, b, c: (product(a, b, c) ** 2).sum()

    ours = loss(
        lambda a, b, c: fastgemm.add(fastgemm.transpose(fastgemm.gemm(a, b, c, beta=2)), c.t(), alpha=3)
    )
    theirs = loss(lambda a, b, c: (a @ b + 2 * c).t() + 3 * c.t())
    all_arguments = (0, 1, 2)
    for transform in (torch.func.grad, torch.func.jacfwd, torch.func.jacrev, torch.func.hessian):
        got, expected = transform(ours, all_arguments)(a, b, c), transform(theirs, all_arguments)(a, b, c)
        torch.testing.assert_close(got, expected)
    _, tangent = torch.func.jvp(ours, (a, b, c), (a, b, c))
    torch.testing.assert_close(tangent, torch.func.jvp(theirs, (a, b, c), (a, b, c))[1])


@pytest.mark.parametrize(
    "in_dims",
    [(0, None, None), (None, 0, None), (None, None, 0), (0, 0, 0), (1, 2, None), (2, None, 1), (-1, 0, -1)],
)
def test_vmap(in_dims):
    def batched(shape, dim):
        return torch.randn(shape).double() if dim is None else torch.randn(5, *shape).double().movedim(0, dim)

    a, b, c = (batched(shape, dim) for shape, dim in zip([(3, 4), (4, 2), (3, 2)], in_dims, strict=True))
    got = torch.func.vmap(lambda a, b, c: fastgemm.gemm(a, b, c, alpha=2), in_dims)(a, b, c)
    expected = torch.func.vmap(lambda a, b, c: 2 * a @ b + c, in_dims)(a, b, c)
    torch.testing.assert_close(got, expected)


def test_vmap_of_batches_vectors_transpose_and_add():
    a, b = torch.randn(5, 2, 3, 4).double(), torch.randn(5, 4, 2).double()
    vmap = torch.func.vmap
    torch.testing.assert_close(vmap(fastgemm.matmul)(a, b), vmap(torch.matmul)(a, b))
    torch.testing.assert_close(vmap(fastgemm.matmul, (0, None))(a, b[0]), a @ b[0])
    torch.testing.assert_close(vmap(fastgemm.matmul)(b, b[:, 0]), vmap(torch.matmul)(b, b[:, 0]))
    torch.testing.assert_close(vmap(fastgemm.transpose, 1, 1)(a), a.mT)
    torch.testing.assert_close(vmap(fastgemm.add, (0, None))(b, b[0]), b + b[0])
    torch.testing.assert_close(vmap(vmap(fastgemm.matmul), (0, None))(a, a[0].mT), a @ a[0].mT)
    torch.testing.assert_close(vmap(lambda a, b: fastgemm.gemm(a, b, trans_a=True))(b, b), b.mT @ b)


def test_per_sample_gradients():
    weight, samples = torch.randn(4, 2).double(), torch.randn(6, 3, 4).double()

    def loss(product, weight, x):
        return product(x, weight).sin().sum()

    def per_sample(product):
        return torch.func.vmap(torch.func.grad(lambda w, x: loss(product, w, x)), (None, 0))(weight, samples)

    torch.testing.assert_close(per_sample(fastgemm.matmul), per_sample(torch.matmul))


def test_saved_tensors_are_those_of_torch_matmul():
    """Only the operands are kept for the backward pass, not copies of them."""
    saved = []
    a, b = draw(6, 7), draw(7, 5)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.data_ptr()) or t, lambda t: t):
        fastgemm.matmul(a, b).sum()
    assert sorted(saved) == sorted([a.data_ptr(), b.data_ptr()])
