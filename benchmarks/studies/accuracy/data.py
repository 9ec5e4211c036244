"""Distributions of operands, by name, each with a description."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Shape = tuple[int, int, int]  # m, n, k
Operands = tuple[Tensor, Tensor]
CANCELLATION = 2.0**-10  # the part of each product that does not cancel
SPIKE = 2.0**40


class Draw:
    """Random numbers from one generator, so that a seed repeats the whole study."""

    def __init__(self, device: str, seed: int):
        self.device = device
        self._generator = torch.Generator(device).manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator, device=self.device)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self._generator, device=self.device)

    def integers(self, *shape: int) -> Tensor:
        """int32 over its whole range."""
        low, high = torch.iinfo(torch.int32).min, torch.iinfo(torch.int32).max + 1
        return torch.randint(
            low, high, shape, generator=self._generator, device=self.device, dtype=torch.int64
        ).int()


def normal(draw: Draw, m: int, n: int, k: int) -> Operands:
    return draw.normal(m, k), draw.normal(k, n)


def uniform(draw: Draw, m: int, n: int, k: int) -> Operands:
    return draw.uniform(m, k), draw.uniform(k, n)


def positive(draw: Draw, m: int, n: int, k: int) -> Operands:
    return draw.normal(m, k).exp_(), draw.normal(k, n).exp_()


def wide(draw: Draw, m: int, n: int, k: int) -> Operands:
    def matrix(*shape: int) -> Tensor:
        return draw.normal(*shape) * torch.exp2(draw.uniform(*shape) * 40 - 20)

    return matrix(m, k), matrix(k, n)


def cancelling(draw: Draw, m: int, n: int, k: int) -> Operands:
    half = k // 2
    a, b = draw.normal(m, half), draw.normal(half, n)
    nearly = a * (1 + CANCELLATION * draw.normal(m, half))
    rest_a, rest_b = torch.zeros(m, k % 2, device=a.device), torch.zeros(k % 2, n, device=a.device)
    return torch.cat((a, nearly, rest_a), dim=1), torch.cat((b, -b, rest_b))


def spiked(draw: Draw, m: int, n: int, k: int) -> Operands:
    a, b = normal(draw, m, n, k)
    a[:, k // 3] = SPIKE
    b[k // 3] = 0
    return a, b


# In the order of tables and pictures.
DISTRIBUTIONS: dict[str, tuple[Callable[[Draw, int, int, int], Operands], str]] = {
    "normal": (normal, "standard normal numbers"),
    "uniform": (uniform, "uniform in [0, 1): sums that grow with K"),
    "positive": (positive, "log-normal, exp of standard normal numbers: sums that grow, of unequal terms"),
    "wide": (wide, "standard normal numbers times 2^u, u uniform in [-20, 20): 12 decades in every row"),
    "cancelling": (
        cancelling,
        "the second half of K takes away all but 2^-10 of the first: A = [X, X (1 + 2^-10 normal)], B = [Y; -Y]",
    ),
    "spiked": (spiked, "normal, but for one number of 2^40 in each row of A, which meets zeros of B"),
}
