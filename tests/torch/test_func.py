"""Tests forward mode and torch.func: vmap, grad, jvp, vjp, jacobians, hessian."""

import fastgemm
import pytest
import torch
from reference import every_device, kernels_that_ran
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from transforms import FUNCTIONS, TRANSFORMS

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
    for call, exact in (
        (lambda x: fastgemm.add(x, a, alpha=-2), da),
        (lambda x: fastgemm.add(a, x, alpha=-2), -2 * da),
        (lambda x: fastgemm.add_(x.clone(), x), 2 * da),
    ):
        torch.testing.assert_close(tangent(call, (a, da)), exact)


def test_a_tangent_that_beta_leaves_out():
    """With beta = 0 neither c nor its tangent may be read."""
    a, b, c = torch.ones(2, 3), torch.ones(3, 2), torch.zeros(2, 2)
    tangents = torch.zeros(2, 3), torch.zeros(3, 2), torch.full((2, 2), torch.inf)
    _, tangent = torch.func.jvp(lambda a, b, c: fastgemm.gemm(a, b, c, beta=0), (a, b, c), tangents)
    assert torch.equal(tangent, torch.zeros(2, 2))


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_transforms(function, transform):
    ours, theirs, shapes = FUNCTIONS[function]
    arguments = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    transform = TRANSFORMS[transform]
    torch.testing.assert_close(transform(ours)(*arguments), transform(theirs)(*arguments))


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


def test_vmap_of_batches_vectors_and_flags():
    a, b = torch.randn(5, 2, 3, 4).double(), torch.randn(5, 4, 2).double()
    vmap = torch.func.vmap
    torch.testing.assert_close(vmap(fastgemm.matmul)(a, b), vmap(torch.matmul)(a, b))
    torch.testing.assert_close(vmap(fastgemm.matmul)(b, b[:, 0]), vmap(torch.matmul)(b, b[:, 0]))
    torch.testing.assert_close(vmap(fastgemm.transpose, 1, 1)(a), a.mT)
    torch.testing.assert_close(vmap(vmap(fastgemm.matmul), (0, None))(a, a[0].mT), a @ a[0].mT)
    torch.testing.assert_close(vmap(lambda a, b: fastgemm.gemm(a, b, trans_a=True))(b, b), b.mT @ b)


@pytest.mark.parametrize("level", [None, 2, 5])
def test_transforms_compose(level):
    """vmap of jacrev of a function that uses grad. The requested level must be used."""
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
    """A graph of torch.fx contains the ops, and may be transformed again."""
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
    """Tests functionalize alone and under torch.fx."""

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
