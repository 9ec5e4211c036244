"""Scales of integer products and sums. The ops take doubles, which represent all integers up to 2^53 exactly, but
not all larger ones."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from .._errors import result_dtype

MOST = 2**53
Scale = TypeVar("Scale", float, float | None)


def _scaled(t: Tensor, scale: Scale, result: torch.dtype) -> tuple[Tensor, Scale]:
    """An operand and a scale with the same product as the given ones; the scale is exact as a double.

    Integers wrap: if the result has at most 32 bits, the scale is taken modulo 2^32. For int64 it is multiplied
    into the operand. The op itself handles other scales: it takes, rounds or refuses them."""
    if not isinstance(scale, int) or -MOST <= scale <= MOST or not -(2**63) <= scale < 2**63:
        return t, scale
    if result.is_floating_point or result.is_complex:
        return t, scale
    if result != torch.int64:
        return t, (scale + 2**31) % 2**32 - 2**31
    return t.long() * scale, 1


def exact_product(
    a: Tensor, b: Tensor, c: Tensor | None, alpha: float, beta: float | None, out_dtype: torch.dtype | None
) -> tuple[Tensor, Tensor, Tensor | None, float, float | None]:
    """The arguments of an equal product whose scales are exact as doubles. Operands whose types do not fit
    together are not changed; the op raises.
    """
    result = out_dtype or result_dtype(a.dtype)
    scaled, held = _scaled(a, alpha, result)
    if scaled is a:
        alpha = held
    elif b.dtype == a.dtype:
        a, b, alpha = scaled, b.long(), held
    if isinstance(c, Tensor) and c.dtype == result:
        c, beta = _scaled(c, beta, result)
    return a, b, c, alpha, beta


def exact_sum(b: Tensor, alpha: float) -> tuple[Tensor, float]:
    """An equal second term of a sum: another operand, and a scale that a double represents exactly."""
    return _scaled(b, alpha, b.dtype)
