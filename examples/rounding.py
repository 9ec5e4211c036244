"""How far apart the results of two correct computations of the same network may be.

The rounding errors of one product have bounds. Their effect on later layers depends on the network. So the network
runs in float64, and to the result of each op an error of random sign is added, as large as the rounding error of
that op in the given type can be. The change of the results is the possible error of a correct computation, and
twice the change is the possible difference of two of them.

In a sum of K products, each partial sum is rounded, with a relative error of at most u. Partial sums of terms with
random signs grow like a random walk, and other partial sums grow towards the result c, so all stay near |c| + (sum
of (a b)^2)^(1/2). K errors of random sign add up like sqrt(K) (N. J. Higham, T. Mary: A New Approach to
Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41(5), 2019, doi 10.1137/18M1226312). So the error is
taken as

    (u sqrt(K) + e) (|c| + (sum of (a b)^2)^(1/2))  +  u_out |c|

u and u_out are the unit roundoffs of the accumulator and of the result (without the last term where both have the
same type), and e is the relative error of a product whose operands are rounded first (checking.PRODUCT_ERROR). The
sums in a loss and in the gradients of layer norm, which torch may add up in the type of the result, get an error
of the same form, with u_out in place of u. The result x of any other op that computes gets the error u_out |x|.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from fastgemm.bench.checking import PRODUCT_ERROR, unit_roundoff
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
PRODUCTS = {aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1, aten.baddbmm.default: 1}
EXACT = {  # ops that only move numbers
    *(
        aten.clone,
        aten._to_copy,
        aten.embedding,
        aten.cat,
        aten.stack,
        aten.masked_fill,
        aten.where,
        aten.neg,
    ),
    *(aten.gather, aten.index_select, aten.index, aten.constant_pad_nd, aten.zeros_like, aten.ones_like),
    *(aten.full_like, aten.new_zeros, aten.select_backward, aten.slice_backward, aten.repeat, aten.copy),
}
Values = dict[str, Tensor]


class Disturbed(TorchDispatchMode):
    """Adds to the results of float64 ops the rounding errors that ops of another type may have.

    Args:
        dtype: the type; 16-bit products are summed in float32.
        precision: of float32 products.
        generator: of the signs, on the device of the network.
    """

    def __init__(self, dtype: torch.dtype, precision: str, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator
        self._rounding = unit_roundoff(dtype)
        self._narrow = dtype.itemsize < 4
        self._accumulator = unit_roundoff(torch.float32 if self._narrow else dtype)
        rounded = dtype is torch.float32 and precision != "ieee"
        self._operands = PRODUCT_ERROR[precision] if rounded else 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        moves = func.overloadpacket in EXACT or any(r.alias_info for r in func._schema.returns)
        if moves or not any(isinstance(x, Tensor) for x in args):
            return result
        if func in PRODUCTS:
            first = PRODUCTS[func]
            return self._disturb(result, self._error(result, args[first], args[first + 1]))
        if func is aten.nll_loss_forward.default:
            loss, weight = result
            return self._disturb(loss, self._rounding * math.sqrt(args[1].numel()) * loss.abs()), weight
        if func is aten.native_layer_norm_backward.default:
            return self._layer_norm_backward(result, *args[:2], *args[3:5])
        if isinstance(result, (tuple, list)):
            return tuple(self._disturb(x) for x in result)
        return self._disturb(result)

    def _error(self, c: Tensor, a: Tensor, b: Tensor) -> Tensor:
        size = c.abs() + torch.matmul(a.square(), b.square()).sqrt_()
        error = (self._accumulator * math.sqrt(a.shape[-1]) + self._operands) * size
        return error + self._rounding * c.abs() if self._narrow else error

    def _layer_norm_backward(
        self, result: tuple[Tensor, ...], grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor
    ) -> tuple[Tensor, ...]:
        """The gradients of weight and bias are sums over all rows."""
        rows, width = mean.numel(), x.shape[-1]

        def summed(c: Tensor, terms: Tensor) -> Tensor:
            size = c.abs() + terms.reshape(rows, width).square().sum(0).sqrt_()
            return self._disturb(c, self._rounding * math.sqrt(rows) * size)

        of_x, of_weight, of_bias = result
        return self._disturb(of_x), summed(of_weight, grad * (x - mean) * rstd), summed(of_bias, grad)

    def _disturb(self, x: Any, error: Tensor | None = None) -> Any:
        if not isinstance(x, Tensor) or x.dtype is not torch.float64:
            return x
        error = self._rounding * x.abs() if error is None else error
        signs = torch.empty_like(x, memory_format=torch.contiguous_format)
        signs.bernoulli_(0.5, generator=self._generator).mul_(2).sub_(1)
        return x + (signs * error).nan_to_num_(0.0, 0.0, 0.0)  # masked scores are infinite


def spread(
    compute: Callable[[], Values], dtype: torch.dtype, precision: str, device: str, draws: int = 3
) -> tuple[Values, dict[str, float]]:
    """The results of ``compute`` in float64, and the largest change of each tensor by rounding errors."""
    exact = compute()
    largest = dict.fromkeys(exact, 0.0)
    generator = torch.Generator(device).manual_seed(torch.seed() % 2**63)
    for _ in range(draws):
        with Disturbed(dtype, precision, generator):
            moved = compute()
        for name, value in moved.items():
            largest[name] = max(largest[name], (value - exact[name]).abs().max().item())
    return exact, largest


@dataclass(frozen=True)
class Difference:
    """The largest difference of two runs in values of one kind.

    Attributes:
        kind: of the values.
        largest: in their units.
        scale: the largest of the first run's values, in magnitude.
        of_bound: the largest difference, in units of its bound. Rounding does not explain a value above 1.
        errors: of each run, its largest distance from the float64 result in units of half the bound; 0 where there
            is no such result.
    """

    kind: str
    largest: float
    scale: float
    of_bound: float
    errors: tuple[float, float]

    @classmethod
    def of(
        cls, kind: str, first: Tensor, second: Tensor, bound: Tensor | float, exact: Tensor | None = None
    ) -> Difference:
        """``bound`` is that of the difference, a number or one for each element."""

        def largest(x: Tensor) -> float:
            return x.nan_to_num_(math.inf, math.inf).max().item()

        apart = (first.double() - second.double()).abs()
        errors = (0.0, 0.0)
        if exact is not None:
            errors = tuple(largest((x.double() - exact).abs() * 2 / bound) for x in (first, second))
        return cls(kind, largest(apart), first.abs().max().item(), largest(apart / bound), errors)

    def joined(self, other: Difference) -> Difference:
        """The larger of each figure."""
        errors = tuple(map(max, self.errors, other.errors))
        figures = {name: max(getattr(self, name), getattr(other, name)) for name in _FIGURES}
        return Difference(self.kind, **figures, errors=errors)


_FIGURES = ("largest", "scale", "of_bound")


def adamw_bound(
    gradient: Tensor, half_bound: float, weight: Tensor, lr: float, eps: float, dtype: torch.dtype
) -> Tensor:
    """How far apart the weights of two runs may lie after the first step of AdamW.

    The step moves a weight by lr g / (|g| + eps), which grows with g: two gradients within ``half_bound`` of the
    exact one give weights no farther apart than the two ends of that interval give. Besides, each run rounds about
    eight times while it computes the step, and twice when it changes the weight.
    """
    g, u = gradient.double(), unit_roundoff(dtype)
    high, low = (x / (x.abs() + eps) for x in (g + half_bound, g - half_bound))
    return lr * (high - low + 16 * u) + 4 * u * weight.double().abs()


def differences(
    first: Values, second: Values, exact: Values, half_bounds: dict[str, float]
) -> list[Difference]:
    """The difference of each value of two runs, and its bound: twice the change that rounding causes in one
    correct run.

    The part of a value's name before " of " is its kind.
    """
    return [
        Difference.of(name.partition(" of ")[0], value, second[name], 2 * half_bounds[name], exact[name])
        for name, value in first.items()
    ]


def by_kind(found: list[Difference]) -> list[Difference]:
    """One difference for each kind."""
    kinds: dict[str, Difference] = {}
    for d in found:
        kinds[d.kind] = kinds[d.kind].joined(d) if d.kind in kinds else d
    return list(kinds.values())


def outcome(found: list[Difference]) -> dict[str, Any]:
    """The text for the row of a report."""
    worst = max(found, key=lambda d: d.of_bound)
    right = worst.of_bound <= 1
    message = "" if right else f"{worst.kind}: {worst.of_bound:.3g} times what rounding explains"
    return {"worst_error": worst.of_bound, "right": right, "message": message}
