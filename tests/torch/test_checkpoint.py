"""Tests torch.utils.checkpoint: activations are dropped and computed again by the same kernels."""

import functools

import fastgemm
import pytest
import torch
from reference import every_device, kernels_that_ran
from torch.utils import checkpoint as ckpt

pytestmark = [every_device, pytest.mark.parametrize("reentrant", [True, False])]
LEVELS = (5, 2)


def block(x, w):
    hidden = fastgemm.matmul(x, w, level=LEVELS[0]).sin()
    return fastgemm.add(fastgemm.transpose(fastgemm.matmul(hidden, w, level=LEVELS[1])), x.mT).cos()


def run(checkpoint, x, w):
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    y = checkpoint(block, x, w)
    y.square().sum().backward()
    return y.detach(), x.grad, w.grad


def test_same_bits_and_the_forward_pass_twice(reentrant):
    checkpoint = functools.partial(ckpt.checkpoint, use_reentrant=reentrant)
    x, w = torch.randn(12, 16), torch.randn(16, 16)
    plain, again = [], []
    once = kernels_that_ran(lambda: plain.extend(run(lambda f, *a: f(*a), x, w)))
    twice = kernels_that_ran(lambda: again.extend(run(checkpoint, x, w)))
    assert all(torch.equal(p, q) for p, q in zip(plain, again, strict=True))
    forward, backward = once[:2], once[2:]
    assert len(backward) == 4  # two gradients of each product
    assert twice == forward + forward + backward


def test_activations_are_not_kept(reentrant):
    """No tensor created inside of the block is saved for the backward pass."""

    def wide(x, w):
        return fastgemm.matmul(fastgemm.matmul(x, w).sin(), w.mT)

    kept = []
    x, w = torch.randn(12, 16, requires_grad=True), torch.randn(16, 11, requires_grad=True)
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(tuple(t.shape)) or t, lambda t: t)
    with hooks:
        y = ckpt.checkpoint(wide, x, w, use_reentrant=reentrant)
    assert (12, 11) not in kept
    y.sum().backward()
    exact = torch.autograd.grad(((x @ w).sin() @ w.mT).sum(), (x, w))
    torch.testing.assert_close((x.grad, w.grad), exact, rtol=1e-4, atol=1e-4)


def test_under_autocast(reentrant):
    """The second forward pass uses the autocast state of the first."""
    x, w = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
    dtypes = []

    def product(x, w):
        y = fastgemm.matmul(x, w)
        dtypes.append(y.dtype)
        return y.sin()  # needs y, so that the second pass reaches this line

    with torch.autocast(x.device.type, torch.bfloat16):
        y = ckpt.checkpoint(product, x, w, use_reentrant=reentrant)
    y.float().sum().backward()
    assert dtypes == [torch.bfloat16, torch.bfloat16]
    assert x.grad.dtype == torch.float32
