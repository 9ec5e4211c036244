"""Forward mode and torch.func: vmap, grad, jvp, vjp, jacobians, hessian."""

from __future__ import annotations

import fastgemm
import pytest
import torch
from reference import every_device, kernels_that_ran
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

pytestmark = every_device


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


def test_a_tangent_that_beta_leaves_out():
    """With beta = 0 neither c nor its tangent is read."""
    a, b, c = torch.ones(2, 3), torch.ones(3, 2), torch.zeros(2, 2)
    tangents = torch.zeros(2, 3), torch.zeros(3, 2), torch.full((2, 2), torch.inf)
    _, tangent = torch.func.jvp(lambda a, b, c: fastgemm.gemm(a, b, c, beta=0), (a, b, c), tangents)
    assert torch.equal(tangent, torch.zeros(2, 2))


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


@pytest.mark.parametrize("level", [None, 2, 5])
def test_transforms_compose(level):
    """vmap of jacrev of a function that itself uses grad; and the level stays what was asked for."""
    x, w = torch.randn(3, 4).double(), torch.randn(4, 4).double()

    def flow(product):
        def energy(v, w):
            return product(torch.tanh(product(v[None], w)), w.mT).square().sum()

        return torch.func.vmap(torch.func.jacrev(torch.func.grad(energy)), (0, None))(x, w)

    found = []
    ran = kernels_that_ran(lambda: found.append(flow(lambda a, b: fastgemm.matmul(a, b, level=level))))
    torch.testing.assert_close(found[0], flow(torch.matmul))
    if level is not None:
        kind = x.device.type
        assert set(ran) <= {row.name for row in fastgemm.kernels("gemm", kind) if row.level == level}


def test_vmap_is_one_product():
    a, b = torch.randn(5, 3, 4), torch.randn(5, 4, 2)
    assert len(kernels_that_ran(lambda: torch.func.vmap(fastgemm.matmul)(a, b))) == 1


BARE = {
    "gemm": lambda a, b: torch.ops.fastgemm.gemm(a, b),
    "_gemm": lambda a, b: torch.ops.fastgemm._gemm(a, b, alpha=1.0, level=5),
    "_matmul": lambda a, b: torch.ops.fastgemm._matmul(a, b),
    "_transpose": lambda a, b: torch.ops.fastgemm._transpose(a) @ a @ b,
    "_add": lambda a, b: torch.ops.fastgemm._add(a @ b, a @ b, alpha=2.0),
}


@pytest.mark.parametrize("name", BARE)
@pytest.mark.parametrize("traced", [False, True])
def test_the_ops_are_transformed_like_the_functions(name, traced):
    """A graph of torch.fx holds the ops, and may be transformed again."""
    a, b = torch.randn(3, 4).double(), torch.randn(4, 2).double()
    function = make_fx(BARE[name])(a, b) if traced else BARE[name]
    exact = {"_transpose": lambda a, b: a.mT @ a @ b, "_add": lambda a, b: 3 * a @ b}.get(name, torch.matmul)
    results = [
        (
            torch.func.jacrev(f, (0, 1))(a, b),
            torch.func.jvp(f, (a, b), (a, b)),
            torch.func.hessian(lambda a, f=f: f(a, b).sin().sum())(a),
            torch.func.vmap(f, (None, 0))(a, torch.stack([b, 2 * b])),
        )
        for f in (function, exact)
    ]
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
def test_functionalize(remove):
    """Alone, and as torch.fx records it."""

    def step(a, b):
        y = fastgemm.gemm(a, b, fastgemm.matmul(a[0], b), alpha=2)
        fastgemm.add_(y, torch.ones_like(y))
        return fastgemm.add(fastgemm.transpose(y), y.t())

    a, b = torch.randn(3, 4).double(), torch.randn(4, 2).double()
    functional = torch.func.functionalize(step, remove=remove)
    torch.testing.assert_close(functional(a, b), step(a, b))
    torch.testing.assert_close(make_fx(functional)(a, b)(a, b), step(a, b))
    torch.testing.assert_close(
        torch.func.vmap(functional, (0, None))(torch.stack([a, 2 * a]), b),
        torch.stack([step(a, b), step(2 * a, b)]),
    )


def test_vjp():
    a, b, t = torch.randn(3, 4).double(), torch.randn(4, 2).double(), torch.randn(3, 2).double()
    value, pull = torch.func.vjp(fastgemm.matmul, a, b)
    torch.testing.assert_close(value, a @ b)
    torch.testing.assert_close(pull(t), (t @ b.t(), a.t() @ t))
