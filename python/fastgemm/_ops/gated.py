"""swiglu, the activation that halves its rows: ``silu(gate) * up``. The first half of a row is the gate, and the
second half is up.

It is computed after the product, by torch's functions, which also give its gradient."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.compiler import is_compiling
from torch.nn import functional

from .. import _errors
from . import autocast
from .sizes import same

SWIGLU = "swiglu"


def swiglu(x: Tensor) -> Tensor:
    """``(..., N)`` to ``(..., N / 2)``. Raises ValueError if N is odd, or x has no floating-point numbers."""
    if not x.is_floating_point():
        raise ValueError(f"fastgemm: an activation needs a floating-point product, got {x.dtype}")
    n, compiling = x.shape[-1], is_compiling()
    if not same((n % 2,), (0,)) if compiling else n % 2:
        raise ValueError(f"fastgemm: activation='swiglu' halves the result, whose size {n} is odd")
    # chunk takes less time, but a graph that does not know the size cannot tell how many chunks there are.
    gate, up = x.split((n // 2, n // 2), dim=-1) if compiling else x.chunk(2, dim=-1)
    return functional.silu(gate) * up


def gated(function: str, inner: Tensor, residual: Tensor | None, options: dict[str, Any]) -> Tensor:
    """``swiglu(inner) + residual``, where ``inner`` is the product of a public function with these options."""
    try:
        result = swiglu(inner)
        return result if residual is None else with_residual(result, residual, options)
    except (TypeError, ValueError) as error:
        _errors.attribute(error, function)
        raise


def with_residual(result: Tensor, residual: Tensor, options: dict[str, Any]) -> Tensor:
    """``result + residual``, with the op's checks of the residual."""
    if not isinstance(residual, Tensor):
        raise _errors.not_a_tensor(residual=residual)
    residual = as_result(residual, result, options)
    check_residual(residual, result)
    return result + residual


def as_result(residual: Tensor, result: Tensor, options: dict[str, Any]) -> Tensor:
    """The residual in the type that autocast gives it for a product with these options."""
    cast = autocast.operands(result, result, residual, options=options)[2]
    return residual if cast is None else cast


def check_residual(residual: Tensor, result: Tensor) -> None:
    """The op's checks of the residual, for calls in which the op does not receive it."""
    if residual.dtype != result.dtype or not same(residual.shape, result.shape):
        raise ValueError(
            f"fastgemm: residual has shape {tuple(residual.shape)} and dtype {residual.dtype}, expected those of "
            f"the result, {tuple(result.shape)} and {result.dtype}"
        )
    if residual.device != result.device:
        raise ValueError(f"fastgemm: residual is on {residual.device}, but input is on {result.device}")
