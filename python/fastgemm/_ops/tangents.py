"""Tangents of the autograd functions, as functions of what these functions saved."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd.forward_ad import _set_fwd_grad_enabled, unpack_dual


def tangent(formula: Callable[..., Tensor]) -> Any:
    """The ``jvp`` of an autograd.Function. The formula takes ctx, the list of the saved tensors, and the tangents.

    torch calls a ``jvp`` with forward gradients off, for all levels of torch.func. The products of the formula
    would then lack the tangents of the outer levels: those of a jvp of a jvp. So they are switched on again, and
    the saved tensors are stripped of the tangents of this level, which torch sets itself.
    """

    @wraps(formula)
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        transform = peek_interpreter_stack()
        if transform is None or transform.level() == 1:  # there is no outer level
            return formula(ctx, ctx.saved_tensors, *tangents)
        with _set_fwd_grad_enabled(True):
            saved = [None if x is None else unpack_dual(x, level=0).primal for x in ctx.saved_tensors]
            return formula(ctx, saved, *tangents)

    return staticmethod(jvp)
