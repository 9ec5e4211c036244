"""Rows of a matrix by index, in the order in which a grouped product needs them.

Grouped products get their ``rows=`` from here: the one place for a kernel that loads rows by index."""

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
        places: ``(T, n)``, the inverse: where in the result each row of ``x`` is, if each is there n times. The
            gradient then adds up n rows in the order of ``places``; torch's would add them in any order on a GPU.
    """
    if places is None:
        return x.index_select(0, rows)
    if is_compiling():  # which traces no function with a formula for forward mode
        return _by_pairs(x, rows, places)
    return _Gather.apply(x, rows, places)


def _by_pairs(x: Tensor, rows: Tensor, places: Tensor) -> Tensor:
    """The same by functions of torch: a copy for each place, which inductor does not make. In its gradient, no two
    numbers meet before the sum over the copies."""
    if places.shape[1] == 1:  # each row once: nothing is added up
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
    """A function of one tensor, and of indices that its gradient needs, too."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])
        ctx.save_for_forward(*inputs[1:])


class _Gather(_Linear):
    """The gradient of this function and of the next one is the other one."""

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
