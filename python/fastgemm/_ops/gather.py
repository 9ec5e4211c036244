"""Rows of a matrix by index, in the order in which a grouped product needs them, and sums of such rows.

Eager calls run the passes of csrc/core/experts.h. Where torch.compile, a trace, a transform of torch.func or
forward-mode AD has to see what is computed, torch's functions compute the same."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from .dispatch import PLAIN, functionalizes, ops, tracing_state
from .sizes import surely_same
from .tangents import tangent


def runs_passes(*tensors: Tensor) -> bool:
    """Whether a call may run ops that know plain tensors alone."""
    return (
        not is_compiling()
        and tracing_state() is None
        and peek_interpreter_stack() is None
        and forward_ad._current_level < 0
        and all(type(x) in PLAIN and (x.is_cpu or x.is_cuda) for x in tensors)
    )


def gathered(x: Tensor, rows: Tensor, places: Tensor | None = None) -> Tensor:
    """``x[rows]``.

    Args:
        x: ``(T, K)``.
        rows: ``(R,)``, int32 or int64.
        places: ``(T, n)``, the inverse: the n places in the result of each row of ``x``, if every row is there n
            times. The gradient then adds up n rows in the order of ``places``; torch's gradient would add them in
            any order on a GPU.
    """
    if places is None or (runs_passes(x) and not (torch.is_grad_enabled() and x.requires_grad)):
        return x.index_select(0, rows)
    # Neither of the first two knows functions with a formula for forward mode. TorchScript keeps no Python code.
    if is_compiling() or functionalizes() or tracing_state() is not None:
        return _by_pairs(x, rows, places)
    return _Gather.apply(x, rows, places)


def _by_pairs(x: Tensor, rows: Tensor, places: Tensor) -> Tensor:
    """The same by torch's functions, which copy ``x`` for each place. Inductor does not make these copies. In the
    gradient, nothing is added before the sum over the copies, whose order is fixed."""
    if surely_same(places.shape[1:], (1,)):  # each row is there once, so the gradient adds nothing up
        return x.index_select(0, rows)
    copies = x.unsqueeze(1).expand(-1, places.shape[1], -1).flatten(0, 1)
    pairs = torch.arange(rows.shape[0], device=rows.device)
    return copies.index_select(0, torch.empty_like(pairs).scatter(0, places.flatten(), pairs))


def sums_of(y: Tensor, places: Tensor) -> Tensor:
    """The sum of the rows ``y[places[t]]`` for each t, ``(T, K)``: in float32 for narrower types, rounded once."""
    if runs_passes(y) and not (torch.is_grad_enabled() and y.requires_grad):
        return ops._combine_rows(y, places.int())
    picked = y.index_select(0, places.flatten()).view(*places.shape, y.shape[1])
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

    @tangent
    def jvp(ctx: Any, saved: Any, x_t: Tensor, *_: None) -> Tensor:
        return gathered(x_t, *saved)


class _Sum(_Linear):
    @staticmethod
    def forward(y: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        return sums_of(y, places)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Gather.apply(grad, *ctx.saved_tensors), None, None

    @tangent
    def jvp(ctx: Any, saved: Any, y_t: Tensor, *_: None) -> Tensor:
        return _Sum.apply(y_t, *saved)


def combined(y: Tensor, weights: Tensor, places: Tensor, order: Tensor) -> Tensor:
    """The sums of ``weights[t, j] * y[places[t, j]]`` over j, in order: in float32 (float64: in float64), rounded
    once.

    Args:
        y: ``(T n, K)``.
        weights: ``(T, n)``.
        places: ``(T, n)``, each row of ``y`` once.
        order: ``(T n, 1)``, the inverse.
    """
    if runs_passes(y, weights):
        if torch.is_grad_enabled() and (y.requires_grad or weights.requires_grad):
            return _Combine.apply(y, weights, places, order)
        return ops._combine_rows(y, places.int(), weights)
    picked = gathered(y, places.flatten(), order).view(*places.shape, y.shape[1])
    return (picked * weights.to(_wide(y)).unsqueeze(-1)).sum(1).to(y.dtype)  # the product is wide, too


def _wide(y: Tensor) -> torch.dtype:
    return torch.float64 if y.dtype == torch.float64 else torch.float32


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, weights: Tensor, places: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(y, weights, places, order)
        return ops._combine_rows(y, places.int(), weights)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        y, weights, places, order = ctx.saved_tensors
        needs_y, needs_weights = ctx.needs_input_grad[:2]
        if runs_passes(grad, y, weights) and not torch.is_grad_enabled():
            of_y, of_weights = ops._combine_gradients(grad, y, places.int(), weights, needs_y, needs_weights)
            return of_y if needs_y else None, of_weights if needs_weights else None, None, None
        # The gradient has a gradient: by functions that have one.
        wide = grad.to(_wide(y)).unsqueeze(1)
        of_pairs = (wide * weights.to(_wide(y)).unsqueeze(-1)).to(y.dtype)
        picked = gathered(y, places.flatten(), order).view(*places.shape, y.shape[1])
        of_y = of_pairs.flatten(0, 1).index_select(0, order.flatten()) if needs_y else None
        of_weights = (picked * wide).sum(-1).to(weights.dtype) if needs_weights else None
        return of_y, of_weights, None, None
