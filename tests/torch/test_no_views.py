"""Tests that results are not views, as torch's: autograd refuses some changes of views in place."""

import fastgemm
import pytest
import torch
from fastgemm import nn
from reference import every_device
from torch.fx.experimental.proxy_tensor import make_fx

pytestmark = every_device

CHOICES = ({}, {"level": 2}, {"kernel": "naive"}, {"precision": "ieee"}, {"invariant": True})
LAYOUTS = {
    "contiguous": lambda: torch.randn(2, 3, 4),
    "one row": lambda: torch.randn(4),
    "long rows": lambda: torch.randn(2, 3, 8)[..., :4],
    "transposed": lambda: torch.randn(3, 2, 4).transpose(0, 1),
}


def check(function, *given):
    for with_gradients in (False, True):
        result = function(*(x.detach().requires_grad_(with_gradients) for x in given))
        assert not result._is_view()
        result.detach_()
    with torch.no_grad():
        result = function(*given)
    scale = torch.tensor(2.0, requires_grad=True)
    result.mul_(scale).sum().backward()
    assert scale.grad is not None


@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("shapes", (((3, 4), (4,)), ((4,), (4, 5)), ((4,), (4,)), ((2, 3, 4), (4,))), ids=str)
def test_products_with_a_vector(choice, shapes):
    check(lambda a, b: fastgemm.matmul(a, b, **choice), *map(torch.randn, shapes))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layers(layout):
    x, weight, bias = LAYOUTS[layout](), torch.randn(6, 4), torch.randn(6)
    for choice in CHOICES:
        for activation in (None, "gelu") if "invariant" in choice else (None, "relu", "gelu"):
            how = {"activation": activation, **choice}
            check(lambda x, w, b, how=how: fastgemm.linear(x, w, b, **how), x, weight, bias)
        if "invariant" not in choice:
            check(lambda x, w, b, how=choice: nn.linear(x, w, b, **how), x, weight, bias)
            check(lambda x, w, b, how=choice: nn.conv1d(x, w, b, **how), x, weight.mT, bias)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_gradient_of_relu_notices_changes_of_its_result(layout):
    """It keeps the result, of which a result that is no view may be another tensor on the same memory."""
    x, weight = LAYOUTS[layout](), torch.randn(6, 4, requires_grad=True)
    for choice in CHOICES:
        result = fastgemm.linear(x, weight, activation="relu", **choice)
        result.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_the_gradient_of_relu_notices_such_changes_inside_a_transform():
    """An outer level asks for the gradient of a result that needs none on its own level."""
    weight, x = torch.randn(6, 4), torch.randn(2, 3, 4)

    def changed(x):
        return fastgemm.linear(x, weight, activation="relu").add_(1).square().sum()

    def by_jvp(x):
        return torch.func.jvp(changed, (x,), (torch.ones_like(x),))[0]

    def by_vmap(x):
        return torch.func.vmap(changed)(x).sum()

    for function in (by_jvp, by_vmap):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.func.grad(function)(x)


def test_traced_calls_take_other_sizes():
    x, weight, vector = torch.randn(2, 3, 4), torch.randn(6, 4), torch.randn(4)
    calls = (
        lambda x: fastgemm.matmul(x, vector, level=2),
        lambda x: fastgemm.matmul(x, vector),
        lambda x: fastgemm.linear(x, weight, activation="relu"),
        lambda x: fastgemm.linear(x, weight, invariant=True),
    )
    other = torch.randn(5, 2, 4)
    for call in calls:
        torch.testing.assert_close(torch.jit.trace(call, (x,))(other), call(other))


@pytest.mark.parametrize(
    "function", (fastgemm.matmul, nn.linear, nn.conv1d), ids=("vector", "linear", "conv1d")
)
@pytest.mark.parametrize("transform", ("grad", "jvp"))
def test_symbolic_graphs_of_derivatives(transform, function):
    """of functions whose result has another shape than the op's."""

    def value(x, y):
        return function(x, y).sin().sum()

    def derivative(x, y):
        if transform == "grad":
            return torch.func.grad(value)(x, y)
        return torch.func.jvp(value, (x, y), (torch.ones_like(x), torch.ones_like(y)))[1]

    right = torch.randn(4) if function is fastgemm.matmul else torch.randn(4, 4)
    graph = make_fx(derivative, tracing_mode="symbolic")(torch.randn(2, 3, 4), right)
    other = torch.randn(5, 2, 4)
    torch.testing.assert_close(graph(other, right), derivative(other, right))


def test_a_gradient_of_rows_that_are_read_in_place_keeps_no_copy():
    x, weight = torch.randn(2, 3, 8)[..., :4], torch.randn(6, 4, requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.data_ptr()), lambda t: t):
        nn.linear(x, weight)
    assert saved == [x.data_ptr()]
