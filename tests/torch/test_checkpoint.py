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
