"""Tests gradients of layers with an epilogue, and the errors if a gradient is not supported."""

import fastgemm
import pytest
import torch
from fastgemm._ops.dispatch import FINDS_GRADIENTS
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


INPUTS = {
    "a vector": lambda: torch.randn(13),
    "a batch": lambda: torch.randn(2, 3, 13),
    "no rows": lambda: torch.randn(2, 0, 13),
    "rows apart": lambda: torch.randn(3, 2, 13).transpose(0, 1),
}


@pytest.mark.parametrize("how", ["float32", "autocast"])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("kind", INPUTS)
@every_activation
def test_gradients_of_an_input_of_any_rank(activation, kind, residual, how):
    """In eager mode no layer needs an autograd function in Python, which takes 30 us."""
    _, w, b, _ = layer(1, 11, 13, torch.float32, "cpu")
    # Sums keep away from 0, where relu has two slopes and their rounding decides.
    x, w, b = (t.requires_grad_() for t in (INPUTS[kind]().div_(16), w, b.sign()))
    r = torch.randn(*x.shape[:-1], 11).requires_grad_() if residual else None
    needy = [t for t in (x, w, b, r) if t is not None]
    with torch.autocast("cpu", enabled=how == "autocast"):
        found = fastgemm.linear(x, w, b, activation=activation, residual=r)
        expected = ACTIVATIONS[activation](functional.linear(x, w, b))
        expected = expected if r is None else expected + r.to(expected.dtype)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if FINDS_GRADIENTS:
        assert "LinearFunction" not in names_of_nodes(found.grad_fn)
    weight = torch.randn_like(expected)
    tolerance = {"rtol": 3e-2, "atol": 3e-2 * w.abs().max().item()} if how == "autocast" else {}
    torch.testing.assert_close(found, expected, **tolerance)
    grads = torch.autograd.grad(found, needy, weight)
    for one, other in zip(grads, torch.autograd.grad(expected, needy, weight), strict=True):
        torch.testing.assert_close(one, other, **tolerance)


def names_of_nodes(node):
    return "" if node is None else node.name() + "".join(names_of_nodes(n) for n, _ in node.next_functions)


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
