"""Rows of a matrix by index, in the order in which a grouped product needs them.

Grouped products get their ``rows=`` from here. A kernel that loads rows by index would belong here."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling


def gathered(x: Tensor, rows: Tensor, places: Tensor | None = None) -> Tensor:
    """``x[rows]``.

    Args:
        x: ``(T, K)``.
        rows: ``(R,)``, int32 or int64.
        places: ``(T, n)``, the inverse: the n places in the result of each row of ``x``, if every row is there n
            times. The gradient then adds up n rows in the order of ``places``; torch's gradient would add them in
            any order on a GPU.
    """
    if places is None:
        return x.index_select(0, rows)
    if is_compiling():  # which traces no function with a formula for forward mode
        return _by_pairs(x, rows, places)
    return _Gather.apply(x, rows, places)


def _by_pairs(x: Tensor, rows: Tensor, places: Tensor) -> Tensor:
    """The same by torch's functions, which copy ``x`` for each place. Inductor does not make these copies. In the
    gradient, nothing is added before the sum over the copies, whose order is fixed."""
    if places.shape[1] == 1:  # each row is there once, so the gradient adds nothing up
        return x.index_select(0, rows)
    copies = x.unsqueeze(1).expand(-1, places.shape[1], -1).flatten(0, 1)
    pairs = torch.arange(rows.shape[0], device=rows.device)
    return copies.index_select(0, torch.empty_like(pairs).scatter_(0, places.flatten(), pairs))


def sums_of(y: Tensor, places: Tensor) -> Tensor:
    """The sum of the rows ``y[places[t]]`` for each t, ``(T, K)``: in float32 for narrower types, rounded once."""
    picked = y.index_select(0, places.flatten()).unflatten(0, places.shape)
    wide = torch.float32 if y.dtype in (torch.float16, torch.bfloat16) else y.dtype
    return picked.sum(1, dtype=wide).to(y.dtype)


class _Linear(torch.autograd.Function):
    """A linear function of one tensor. Its further arguments are indices, which its gradient needs, too."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])
        ctx.save_for_forward(*inputs[1:])


class _Gather(_Linear):
    """The gradient of this function is the next one, and the gradient of the next one is this function."""

    @staticmethod
    def forward(x: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Sum.apply(grad, *ctx.saved_tensors), None, None

    @staticmethod
    def jvp(ctx: Any, x_t: Tensor, *_: None) -> Tensor:
        return gathered(x_t, *ctx.saved_tensors)


class _Sum(_Linear):
    @staticmethod
    def forward(y: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        return sums_of(y, places)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Gather.apply(grad, *ctx.saved_tensors), None, None

    @staticmethod
    def jvp(ctx: Any, y_t: Tensor, *_: None) -> Tensor:
        return _Sum.apply(y_t, *ctx.saved_tensors)
