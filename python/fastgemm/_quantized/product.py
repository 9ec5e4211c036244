"""Products with a QuantizedWeight: the one function that all calls reach, and the functions that lead there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from .. import _errors, _introspect
from .._ops.activations import check_activation
from .._ops.dispatch import choice_of, in_shape
from .._ops.linear import _as_rows
from .._ops.sizes import same
from .._typing import Activation
from ..table import check_precision
from . import activations, layout
from .base import Packed
from .gradient import LAYER

FLOATS = (torch.bfloat16, torch.float16, torch.float32)


def linear(
    x: Tensor,
    q: Packed,
    bias: Tensor | None = None,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    level: int | None = None,
    kernel: str | None = None,
    out_dtype: torch.dtype | None = None,
    invariant: bool = False,
    transposed: bool = False,
) -> Tensor:
    """``activation(x @ q.T + bias) + residual``; :func:`fastgemm.linear` says what the arguments are.

    ``transposed`` says that q is (K, N), the second operand of a matrix product."""
    if q._transposed != transposed:
        raise ValueError(
            f"fastgemm: the weight must be (N, K), got a transposed QuantizedWeight of shape {tuple(q.shape)}"
        )
    if not isinstance(x, Tensor):
        raise _errors.not_a_tensor(x=x)
    if isinstance(x, Packed):
        raise ValueError("fastgemm: only the weight of a product may be quantized, not x")
    if x.dtype not in FLOATS:
        raise TypeError(f"fastgemm: x must be bfloat16, float16 or float32, got {x.dtype}")
    n, k = q._packing.n, q._packing.k
    if x.dim() == 0 or x.shape[-1] != k:
        raise ValueError(
            f"fastgemm: x must be (..., {k}) for a weight of {n} x {k}, got shape {tuple(x.shape)}"
        )
    check_activation(activation)
    if q._order is not None:
        x = x.index_select(-1, q._order)
    shape = (*x.shape[:-1], n)
    if len(shape) != 2:
        if residual is not None and not same(residual.shape, shape):
            raise ValueError(
                f"fastgemm: residual has shape {tuple(residual.shape)}, expected that of the result, {shape}"
            )
        x, residual = _as_rows(x), None if residual is None else _as_rows(residual)
    choice = level, kernel, out_dtype, invariant
    if q._activations is not None:
        result = activations.linear(x, q, bias, residual, activation, choice)
    else:
        q, options = _options(q, *choice)
        if activation is not None:
            options["activation"] = activation
        result = LAYER.call((x, q._codes, q._scales, q._zeros, q._global, bias, residual), options)
    return result if len(shape) == 2 else in_shape(result, shape, activation if residual is None else None)


def _options(
    q: Packed, level: int | None, kernel: str | None, out_dtype: torch.dtype | None, invariant: bool
) -> tuple[Packed, dict[str, Any]]:
    """The weight in the order that the op reads here, and the op's keyword arguments."""
    if not is_compiling() and _introspect.simulating():
        q = q._ordered(True)
    packing, scale = q._packing, q._packing.scale
    block = packing.group_n, packing.group_k
    if packing.units:
        block = layout.unit_groups(packing)
        scale = "f32" if packing.by_rows else scale
    if kernel == "invariant":  # matmul and layers pass invariant=True on by this name
        kernel, invariant = None, True
    options: dict[str, Any] = {
        **choice_of(level, kernel),
        **{"n": packing.n, "code": packing.code, "scale": scale, "zero": packing.zero},
        **{"units": packing.units, "group_n": block[0], "group_k": block[1]},
    }
    if out_dtype is not None:
        options["out_dtype"] = out_dtype
    if invariant:
        options["invariant"] = True
    return q, options


# Functions of torch and of this package


def called(
    name: str,
    x: Any,
    weight: Any,
    bias: Tensor | None = None,
    *,
    precision: str | None = None,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    **choice: Any,
) -> Tensor:
    """:func:`linear` for a public function of this name, which is in the messages of errors."""
    try:
        if not isinstance(weight, Packed):
            raise ValueError("fastgemm: only the weight of a product may be quantized")
        if name in ("nn.linear", "nn.conv1d"):  # layers have no precision for other products than float32's
            check_precision(precision, by=f"fastgemm.{name}")
        elif precision not in (None, "ieee"):
            raise ValueError(
                f"fastgemm: precision={precision!r} is not for quantized weights; only None and 'ieee'"
            )
        return linear(x, weight, bias, activation, residual, **choice)
    except (AttributeError, RuntimeError, ValueError, TypeError) as error:
        _errors.refuse_sharded(name, x=x, bias=bias, residual=residual)
        _errors.diagnose(error, name, x=x, bias=bias, residual=residual)
        raise


def functional_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """torch.nn.functional.linear."""
    return called("linear", input, weight, bias)


def matmul(a: Any, b: Any, *, out: Tensor | None = None, **choice: Any) -> Tensor:
    """torch.matmul, and fastgemm.matmul with its choice."""
    if out is not None:
        raise ValueError("fastgemm.matmul: out= is not for quantized weights")
    if not isinstance(b, Packed) or not b._transposed:
        what = "a quantized weight" if isinstance(b, Packed) else f"{type(b).__name__} b"
        raise ValueError(
            f"fastgemm.matmul: {what} of shape {tuple(getattr(b, 'shape', ()))} cannot be the second operand "
            "here; products with a QuantizedWeight q of (N, K) are x @ q.mT, for others take q.dequantize()"
        )
    return called("matmul", a, b, transposed=True, **choice)
