"""Tests tangents of tangents, to the third order, of every product: against the same products by torch."""

from collections.abc import Callable

import fastgemm
import pytest
import torch
from reference import every_device
from torch import Tensor, func
from torch.nn import functional

pytestmark = every_device

ACTIVATIONS: dict[str | None, Callable[[Tensor], Tensor]] = {
    None: lambda x: x,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "swiglu": lambda x: functional.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
}


def derivatives(function: Callable[..., Tensor], *x: Tensor) -> list[Tensor]:
    """The tangents of the second and the third order, each level in a direction of its own, and those of a
    gradient."""
    first, second, third = (tuple(torch.roll(t, i, -1).cos() for t in x) for i in range(3))

    def once(*x: Tensor) -> Tensor:
        return func.jvp(function, x, first)[1]

    def twice(*x: Tensor) -> Tensor:
        return func.jvp(once, x, second)[1]

    def gradient(*x: Tensor) -> tuple[Tensor, ...]:
        return func.grad(lambda *x: once(*x).square().sum(), tuple(range(len(x))))(*x)

    return [twice(*x), func.jvp(twice, x, third)[1], *func.jvp(gradient, x, second)[1]]


def randn(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype)


def assert_same(ours: Callable[..., Tensor], theirs: Callable[..., Tensor], *x: Tensor) -> None:
    torch.testing.assert_close(derivatives(ours, *x), derivatives(theirs, *x), rtol=1e-9, atol=1e-9)


def test_matmul():
    assert_same(fastgemm.matmul, torch.matmul, randn(3, 4), randn(4, 5))
    assert_same(fastgemm.matmul, torch.matmul, randn(2, 3, 4), randn(4))
    level = 2
    assert_same(lambda a, b: fastgemm.matmul(a, b, level=level), torch.matmul, randn(3, 4), randn(4, 5))
    with fastgemm.patch():
        patched = derivatives(torch.matmul, *(x := (randn(3, 4), randn(4, 5))))
    torch.testing.assert_close(patched, derivatives(torch.matmul, *x))


def test_gemm():
    def ours(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return fastgemm.gemm(a, b, c, alpha=1.5, beta=-0.5, trans_a=True)

    assert_same(ours, lambda a, b, c: 1.5 * a.mT @ b - 0.5 * c, randn(4, 3), randn(4, 5), randn(5))


def test_complex_products():
    a, b = randn(3, 4, dtype=torch.complex128), randn(5, 4, dtype=torch.complex128)

    def squared(product: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda a, b: product(a.conj(), b.mH).abs().square()

    assert_same(squared(fastgemm.matmul), squared(torch.matmul), a, b)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("has_residual", [False, True])
def test_linear(activation, has_residual):
    x, weight, bias = randn(2, 3, 4), randn(6, 4), randn(6)
    residual = [randn(2, 3, 3 if activation == "swiglu" else 6)] * has_residual

    def ours(x: Tensor, weight: Tensor, bias: Tensor, *residual: Tensor) -> Tensor:
        added = residual[0] if residual else None
        return fastgemm.linear(x, weight, bias, activation=activation, residual=added)

    def theirs(x: Tensor, weight: Tensor, bias: Tensor, *residual: Tensor) -> Tensor:
        return sum(residual, ACTIVATIONS[activation](functional.linear(x, weight, bias)))

    assert_same(ours, theirs, x, weight, bias, *residual)


def test_layers():
    x, weight, bias = randn(2, 3, 4), randn(5, 4), randn(5)
    assert_same(fastgemm.nn.linear, functional.linear, x, weight, bias)
    assert_same(fastgemm.nn.conv1d, lambda x, w, b: x @ w + b, x, weight.mT, bias)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_grouped_products(activation):
    a, b, bias = randn(5, 4), randn(3, 4, 6), randn(3, 6)
    offs, group = torch.tensor([2, 2, 5], dtype=torch.int32), torch.tensor([0, 0, 2, 2, 2])
    rows = torch.tensor([1, 0, 2, 1, 3])

    def ours(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
        return fastgemm.grouped_mm(a, b, offs, bias=bias, activation=activation, rows=rows)

    def theirs(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
        return ACTIVATIONS[activation]((a[rows].unsqueeze(1) @ b[group]).squeeze(1) + bias[group])

    assert_same(ours, theirs, a, b, bias)


def test_moe():
    x, gate_up, down, weights = randn(5, 4), randn(3, 6, 4), randn(3, 4, 3), randn(5, 2)
    ids = torch.tensor([[0, 1], [2, 0], [1, 2], [2, 0], [1, 0]])

    def theirs(x: Tensor, gate_up: Tensor, down: Tensor, weights: Tensor) -> Tensor:
        inner = ACTIVATIONS["swiglu"](torch.einsum("tjnk,tk->tjn", gate_up[ids], x))
        return torch.einsum("tjkn,tjn,tj->tk", down[ids], inner, weights)

    def ours(x: Tensor, gate_up: Tensor, down: Tensor, weights: Tensor) -> Tensor:
        return fastgemm.moe(x, gate_up, down, ids, weights)

    assert_same(ours, theirs, x, gate_up, down, weights)


@pytest.mark.parametrize("activation", [None, "relu", "silu"])
def test_quantized_weights(activation):
    """Tangents of x of the first order have none. Those of a tanh before the layer do."""
    weight = fastgemm.quantize_weight(torch.randn(16, 32), "int8")
    matrix, bias = weight.dequantize().float(), torch.randn(16)

    def ours(x: Tensor) -> Tensor:
        return fastgemm.linear(x.tanh(), weight, bias, activation=activation).tanh()

    def theirs(x: Tensor) -> Tensor:
        return ACTIVATIONS[activation](functional.linear(x.tanh(), matrix, bias)).tanh()

    x = torch.randn(3, 32)
    torch.testing.assert_close(derivatives(ours, x), derivatives(theirs, x), rtol=1e-3, atol=1e-3)


def test_transposes_and_sums():
    def ours(a: Tensor, b: Tensor) -> Tensor:
        return fastgemm.add(fastgemm.transpose(a.sin()), b.sin(), alpha=3)

    assert_same(ours, lambda a, b: a.sin().mT + 3 * b.sin(), randn(3, 4), randn(4, 3))


def test_compiled():
    def function(product: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def once(a: Tensor, b: Tensor) -> Tensor:
            return func.jvp(product, (a, b), (a.cos(), b.cos()))[1]

        return lambda a, b: func.jvp(once, (a, b), (a.sin(), b.sin()))[1]

    a, b = randn(3, 4), randn(4, 5)
    compiled = torch.compile(function(fastgemm.matmul), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(a, b), function(torch.matmul)(a, b))
