"""The fake kernel of grouped products. The checks are those of csrc/torch/grouped_mm.cpp, except for the values of
offs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._errors import MULTIPLIED, multiplied_as, part_dtype, product_type
from .._ops.activations import ACTIVATIONS
from .._ops.gated import SWIGLU
from .._ops.grouped import GROUPED
from .._ops.linear import FLOATS
from ..table import check_choice, check_precision, takes_product
from .fake import (
    _check_devices,
    _check_dtypes,
    _check_tensors,
    _register,
    _require,
    _result_dtype,
    check_activation,
    check_invariant,
    same_sizes,
)


def _check_offs(a: Tensor, b: Tensor, offs: Tensor | None) -> None:
    batch = a.dim() == 3 and b.dim() == 3
    _require(
        batch == (offs is None),
        lambda: "offs, the ends of the groups, must be given unless a and b have 3 dimensions each",
    )
    if offs is not None:
        _require(
            offs.dim() == 1 and offs.dtype == torch.int32,
            lambda: f"offs must be int32 with 1 dimension, got {offs.dtype} of shape {tuple(offs.shape)}",
        )


def grouped_mm(
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    activation: str | None = None,
    level: int | None = None,
    impl: str | None = None,
    invariant: bool = False,
    precision: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    _check_tensors(a, b, offs, bias)
    for name, x in (("a", a), ("b", b)):
        _require(
            x.dim() in (2, 3),
            lambda name=name, x=x: f"{name} must have 2 or 3 dimensions, got shape {tuple(x.shape)}",
        )
    _check_devices(a, b, offs, bias)
    _check_dtypes(a, b, MULTIPLIED)
    _check_offs(a, b, offs)
    groups = a.shape[0] if offs is None else offs.shape[0]
    for x in (a, b):
        _require(
            x.dim() == 2 or x.shape[0] == groups,
            lambda x=x: f"{x.shape[0]} matrices of {tuple(x.shape)}, expected {groups}",
        )
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    _require(k == b.shape[-2], lambda: f"inner sizes differ: {k} and {b.shape[-2]}")
    dtype = _result_dtype(a.dtype, out_dtype)
    check_precision(precision, part_dtype(a.dtype))
    check_activation(activation, (*ACTIVATIONS, SWIGLU))
    _require(
        activation is None or a.dtype in FLOATS,
        lambda: f"an activation is for floating-point types, got {a.dtype}",
    )
    by_columns = a.dim() == 3 and b.dim() == 2
    if bias is not None:
        of_groups = bias.dim() == 2 and not by_columns
        _require(
            bias.dtype in (a.dtype, dtype) and same_sizes(bias.shape, (groups, n) if of_groups else (n,)),
            lambda: f"bias of shape {tuple(bias.shape)} and {bias.dtype} does not fit",
        )
    check_invariant(invariant, level, impl)
    types = a.dtype, b.dtype, out_dtype
    if not takes_product(product_type(*types), a.device, level, impl):
        check_choice("gemm", a.device, multiplied_as(*types), level, impl, precision)
    if activation == SWIGLU:
        _require(
            not by_columns and a.dim() == 2 and n % 2 == 0,
            lambda: "swiglu needs groups of rows and an even size",
        )
        n //= 2
    return a.new_empty((m, n) if a.dim() != b.dim() else (groups, m, n), dtype=dtype)


def gathered_mm(
    a: Tensor, b: Tensor, offs: Tensor | None, bias: Tensor | None, rows: Tensor, **options: Any
) -> Tensor:
    _require(
        rows.dim() == 1 and rows.dtype == torch.int32 and (a.dim(), b.dim()) == (2, 3),
        lambda: f"rows must be int32 with 1 dimension, got {rows.dtype} of shape {tuple(rows.shape)}",
    )
    return grouped_mm(a.new_empty((rows.shape[0], a.shape[1])), b, offs, bias, **options)


def route_tokens(ids: Tensor, experts: int) -> tuple[Tensor, ...]:
    _require(
        ids.dim() == 2 and ids.dtype in (torch.int32, torch.int64),
        lambda: f"ids must be int32 or int64 with 2 dimensions, got {ids.dtype} of shape {tuple(ids.shape)}",
    )
    pairs = ids.shape[0] * ids.shape[1]
    return tuple(ids.new_empty(s, dtype=torch.int32) for s in ((pairs,), (pairs,), (experts,), ids.shape))


def combine_rows(y: Tensor, places: Tensor, weights: Tensor | None = None) -> Tensor:
    _require(
        places.dim() == y.dim() == 2 and places.dtype == torch.int32 and places.numel() == y.shape[0],
        lambda: f"places of shape {tuple(places.shape)} are not those of {tuple(y.shape)}",
    )
    _require(
        weights is None or weights.shape == places.shape,
        lambda: f"weights of another shape than {tuple(places.shape)}",
    )
    return y.new_empty((places.shape[0], y.shape[1]))


def combine_gradients(
    grad: Tensor, y: Tensor, places: Tensor, weights: Tensor, of_rows: bool, of_weights: bool
) -> tuple[Tensor, Tensor]:
    result = combine_rows(y, places, weights)
    _require(
        grad.shape == result.shape and grad.dtype == y.dtype,
        lambda: f"grad of shape {tuple(grad.shape)} and {grad.dtype}, expected those of the sums",
    )
    none = (0, 0)
    return y.new_empty(y.shape if of_rows else none), weights.new_empty(weights.shape if of_weights else none)


def register() -> None:
    for name in GROUPED.names:
        _register(name, grouped_mm)
    for of_experts in (gathered_mm, route_tokens, combine_rows, combine_gradients):
        _register(f"_{of_experts.__name__}", of_experts)
