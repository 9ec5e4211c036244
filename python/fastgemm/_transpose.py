"""Transposed copies: the public function and its gradient, which is one."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.overrides import has_torch_function_variadic

from . import _errors
from ._calls import (
    functionalizes,
    increment_version,
    needs_function,
    ops,
    overridden,
    tracing_state,
    transpose_bare,
    transpose_into,
)
from ._vmap import rank_of


def transpose(
    a: Tensor, *, level: int | None = None, kernel: str | None = None, out: Tensor | None = None
) -> Tensor:
    """A contiguous copy of ``a`` with its last two dimensions exchanged: ``a.mT.contiguous()``.

    Args:
        a: ``(..., R, C)`` of any dtype whose elements have 1, 2, 4, 8 or 16 bytes, any strides.
        level: 1 to 7, or ``None`` for the fastest kernel known, as which 7 chooses, too.
        kernel: the name of one kernel, instead of a level.
        out: ``(..., C, R)`` of the same dtype and device, sharing no memory with ``a``.

    Returns:
        ``(..., C, R)``, contiguous unless ``out`` is given.

    Raises:
        TypeError: ``a`` is no tensor.
        NotImplementedError: ``a`` is sparse or quantized.
        ValueError: fewer than two dimensions; an ``out`` that does not fit; unknown ``kernel`` or ``level``.
        RuntimeError: the level or kernel asked for cannot run here, or ``out`` cannot be written to; see
            :func:`matmul`.

    Examples:
        >>> import torch, fastgemm
        >>> x = torch.arange(6).reshape(2, 3)
        >>> fastgemm.transpose(x)
        tensor([[0, 3],
                [1, 4],
                [2, 5]])
        >>> fastgemm.transpose(x, level=3).is_contiguous()
        True
    """
    if has_torch_function_variadic(a, out):
        return overridden(transpose, (a, out), a, level=level, kernel=kernel, out=out)
    try:
        if not isinstance(a, Tensor):
            raise _errors.not_a_tensor(a=a)
        if level is not None:
            _errors.refuse_level(level)
        if is_compiling():
            if out is None:
                return ops.transpose.default(a, level=level, impl=kernel)
            _errors.refuse_gradient_into_out(a, out)
            ops.transpose.out(a, level=level, impl=kernel, out=out)
            return out
        if out is not None:
            _errors.refuse_gradient_into_out(a, out)
            _errors.refuse_transform_into_out(a, out)
            _errors.refuse_inference_tensor(out)
            if level is None and kernel is None:  # each argument that is given costs 0.2 us
                transpose_into(a, out=out)
            else:
                transpose_into(a, level=level, impl=kernel, out=out)
            increment_version((out,))
            return out
        if tracing_state() is not None:
            return ops.transpose.default(a, level=level, impl=kernel)
        if needs_function(a, a):
            if functionalizes():
                return ops.transpose.default(a, level=level, impl=kernel)
            return TransposeFunction.apply(a, level, kernel)
        if level is None and kernel is None:
            return transpose_bare(a)
        return transpose_bare(a, level=level, impl=kernel)
    except (AttributeError, RuntimeError, ValueError, TypeError) as error:
        _errors.diagnose(error, "transpose", a=a, out=out)
        raise


class TransposeFunction(torch.autograd.Function):
    """transpose for eager gradients, torch.func transforms and forward-mode AD."""

    @staticmethod
    def forward(a, level, impl):
        return torch.ops.fastgemm._transpose.default(a, level=level, impl=impl)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.level, ctx.impl = inputs

    @staticmethod
    def backward(ctx, grad):
        return transpose(grad, level=ctx.level, kernel=ctx.impl), None, None

    @staticmethod
    def jvp(ctx, a_t, *_):
        return transpose(a_t, level=ctx.level, kernel=ctx.impl)

    @staticmethod
    def vmap(info, in_dims, a, level, impl):
        if rank_of(a, in_dims[0]) < 2:
            raise ValueError("fastgemm: a must have at least 2 dimensions inside vmap")
        return transpose(a.movedim(in_dims[0], 0), level=level, kernel=impl), 0
