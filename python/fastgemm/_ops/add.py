"""Sums: the public functions and their gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.overrides import has_torch_function_variadic

from .. import _errors
from .dispatch import (
    Op,
    choice_of,
    graph_writes,
    increment_version,
    needs_function,
    ops,
    overridden,
    public,
    tracing_state,
)
from .integer_scales import exact_sum
from .tangents import tangent
from .vmap import batch_first, rank_of, runs


def add(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    level: int | None = None,
    kernel: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """``a + alpha * b``, elementwise, with broadcasting.

    Args:
        a: any shape; float64, float32, float16, bfloat16, complex128, complex64, complex32, int8, int32,
            int64, uint8 or int16.
        b: a shape that broadcasts with that of ``a``; same dtype and device.
        alpha: scale of ``b``; for integers a whole number that fits in 64 bits.
        level: 1, 2, 4 or 5; other levels have no rung for an elementwise operation and raise.
        kernel: the name of one kernel, instead of a level.
        out: receives the result; may be exactly ``a`` or ``b``.

    Returns:
        The broadcast shape, same dtype. float16 and bfloat16 are computed in float32 and rounded once;
        integers wrap.

    Raises:
        TypeError: an operand is no tensor, or its dtype is not supported; a scale is a tensor.
        NotImplementedError: an operand is sparse or quantized, or its device has no kernels.
        ValueError: shapes, dtypes or devices do not fit together; ``alpha`` is not whole for integers; unknown
            ``kernel`` or ``level``.
        RuntimeError: the requested level or kernel cannot run here, or ``out`` cannot be written to; see
            :func:`matmul`.
    """
    if has_torch_function_variadic(a, b, out):
        return overridden(add, (a, b, out), a, b, alpha=alpha, level=level, kernel=kernel, out=out)
    try:
        if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
            raise _errors.not_a_tensor(a=a, b=b)
        _errors.refuse_tensor_scales(alpha=alpha)
        if alpha != 1.0:
            b, alpha = exact_sum(b, alpha)
        return SUM.call((a, b), _options(alpha, level, kernel), out)
    except (AttributeError, RuntimeError, ValueError, TypeError) as error:
        _errors.diagnose(error, "add", accepted=_errors.ARITHMETIC, a=a, b=b, out=out)
        raise


def add_(
    a: Tensor, b: Tensor, *, alpha: float = 1.0, level: int | None = None, kernel: str | None = None
) -> Tensor:
    """``a += alpha * b`` in place.

    Args:
        a: receives the sum; dtypes as for :func:`add`.
        b: a shape that broadcasts to that of ``a``; same dtype and device. May be exactly ``a``.
        alpha: scale of ``b``; for integers a whole number that fits in 64 bits.
        level: 1, 2, 4 or 5, or ``None`` for the fastest kernel known.
        kernel: the name of one kernel, instead of a level.

    Returns:
        ``a``.

    Raises:
        RuntimeError: ``a`` is a leaf that requires a gradient, or an inference tensor outside inference mode.
            For all other errors see :func:`add`.
    """
    if has_torch_function_variadic(a, b):
        return overridden(add_, (a, b), a, b, alpha=alpha, level=level, kernel=kernel)
    try:
        if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
            raise _errors.not_a_tensor(a=a, b=b)
        _errors.refuse_tensor_scales(alpha=alpha)
        if alpha != 1.0:
            b, alpha = exact_sum(b, alpha)
        options = _options(alpha, level, kernel)
        wants_gradient = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
        if is_compiling() and not wants_gradient and graph_writes(a):
            ops.add_.default(a, b, **options)
            return a
        if wants_gradient or is_compiling() or tracing_state() is not None or needs_function(a, b):
            # copy_ records the change of `a` for autograd; the op itself would change it without a record.
            total = add(a, b, **public(options))
            _errors.refuse_shape(a, total.shape)
            return a.copy_(total)
        _errors.refuse_inference_tensor(a)
        ops.add_.default(a, b, **options)
        increment_version((a,))
        return a
    except (AttributeError, RuntimeError, ValueError, TypeError) as error:
        _errors.diagnose(error, "add_", accepted=_errors.ARITHMETIC, a=a, b=b)
        raise


def _options(alpha: float, level: int | None, kernel: str | None) -> dict[str, Any]:
    options = choice_of(level, kernel)
    if alpha != 1.0:
        options["alpha"] = alpha
    return options


class AddFunction(torch.autograd.Function):
    """add for eager gradients, torch.func transforms and forward-mode AD."""

    forward = runs(ops._add.default)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        a, b, options = inputs
        ctx.alpha = options.get("alpha", 1.0)
        ctx.shapes = a.shape, b.shape
        ctx.out_shape = output.shape

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        of_a, of_b = ctx.shapes
        return grad.sum_to_size(of_a), (ctx.alpha * grad).sum_to_size(of_b), None

    @tangent
    def jvp(ctx: Any, saved: Any, a_t: Tensor | None, b_t: Tensor | None, _: None) -> Tensor:
        total: Any = a_t
        if b_t is not None:
            total = ctx.alpha * b_t if total is None else total + ctx.alpha * b_t
        return total.expand(ctx.out_shape).clone()

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
        a, b, options = arguments
        rank = max(rank_of(a, in_dims[0]), rank_of(b, in_dims[1]))
        a, b = batch_first(a, in_dims[0], rank), batch_first(b, in_dims[1], rank)
        return add(a, b, **public(options)), 0


def _differentiable(a: Tensor, b: Tensor, **options: Any) -> Tensor:
    return AddFunction.apply(a, b, options)


SUM = Op("add", ("_add",), ops._add.default._op, _differentiable)
