"""Tests gradients of layers with an epilogue, and the errors if a gradient is not supported."""

import fastgemm
import pytest
import torch
from layers import ACTIVATIONS, layer
from reference import DEVICES, row_id
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

every_device = pytest.mark.parametrize("device", DEVICES)
every_activation = pytest.mark.parametrize("activation", ACTIVATIONS)


@pytest.mark.parametrize("residual", [False, True])
@every_activation
@every_device
def test_gradients(device, activation, residual):
    given = layer(9, 11, 13, torch.float64, device, residual=True)
    x, w, b, r = (t.requires_grad_() for t in given)
    weight = torch.randn(9, 11, dtype=torch.float64, device=device)
    operands = (x, w, b, r) if residual else (x, w, b)
    found = fastgemm.linear(x, w, b, activation=activation, residual=r if residual else None)
    expected = ACTIVATIONS[activation](functional.linear(x, w, b)) + (r if residual else 0)
    torch.testing.assert_close(found, expected)
    grads = torch.autograd.grad(found, operands, weight, create_graph=True)
    wanted = torch.autograd.grad(expected, operands, weight, create_graph=True)
    for one, other in zip(grads, wanted, strict=True):
        torch.testing.assert_close(one, other)
    again = torch.autograd.grad(sum(g.pow(2).sum() for g in grads[:3]), (x, w, b), allow_unused=True)
    for one, other in zip(
        again,
        torch.autograd.grad(sum(g.pow(2).sum() for g in wanted[:3]), (x, w, b), allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=row_id)
@every_device
def test_gradients_of_narrow_types(device, dtype):
    given = layer(30, 20, 40, dtype, device)
    x, w, b, _ = (None if t is None else t.requires_grad_() for t in given)
    fastgemm.linear(x[None], w, b, activation="gelu").sum().backward()
    wide = [t.detach().double().requires_grad_() for t in (x, w, b)]
    functional.gelu(functional.linear(*wide)).sum().backward()
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    for t, other in zip((x, w, b), wide, strict=True):
        assert t.grad.dtype == dtype
        scale = other.grad.abs().max()
        torch.testing.assert_close(t.grad.double() / scale, other.grad / scale, rtol=0, atol=tolerance)


def test_only_what_needs_a_gradient_gets_one():
    x, w, b, r = layer(4, 5, 6, torch.float64, "cpu", residual=True)
    for needy in range(4):
        given = [t.clone().requires_grad_(i == needy) for i, t in enumerate((x, w, b, r))]
        fastgemm.linear(*given[:3], activation="silu", residual=given[3]).sum().backward()
        assert [t.grad is not None for t in given] == [i == needy for i in range(4)]


class Products(TorchDispatchMode):
    """Counts the products of this library."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.namespace == "fastgemm"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("residual", [False, True])
@every_activation
def test_no_product_is_computed_again_for_a_gradient(activation, residual):
    x, w, b, r = layer(64, 64, 64, torch.float32, "cpu", residual=True)
    r = r if residual else None
    plain = fastgemm.linear(x, w, b, activation=activation, residual=r)
    for t in (x, w, b):
        t.requires_grad_()
    with Products() as forward:
        kept = fastgemm.linear(x, w, b, activation=activation, residual=r)
    with Products() as backward:
        kept.sum().backward()
    assert (forward.count, backward.count) == (1, 2)
    torch.testing.assert_close(plain, kept.detach())
    if activation in (None, "relu"):
        assert torch.equal(plain, kept.detach())


WRONG = {
    "shape": {"residual": torch.randn(3)},
    "rank": {"residual": torch.randn(5, 3, 3)},
    "dtype": {"residual": torch.randn(3, 3, dtype=torch.float64)},
    "activation": {"activation": "tanh"},
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("call", [fastgemm.linear, torch.ops.fastgemm.linear], ids=["function", "op"])
@pytest.mark.parametrize("gradient", [False, True])
def test_wrong_operands_with_and_without_a_gradient(gradient, call, wrong):
    x, w = torch.randn(3, 3, requires_grad=gradient), torch.randn(3, 3)
    with pytest.raises(ValueError, match=r"residual has|unknown activation 'tanh'"):
        call(x, w, **{"activation": "gelu", **WRONG[wrong]})
