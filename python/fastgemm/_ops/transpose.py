"""Transposed copies: the public function and its gradient, which is one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import has_torch_function_variadic

from .. import _errors
from .dispatch import Op, choice_of, ops, overridden, public
from .tangents import tangent
from .vmap import rank_of, runs


def transpose(
    a: Tensor, *, level: int | None = None, kernel: str | None = None, out: Tensor | None = None
) -> Tensor:
    """A contiguous copy of ``a`` with its last two dimensions exchanged: ``a.mT.contiguous()``.

    Args:
        a: ``(..., R, C)`` of any dtype whose elements have 1, 2, 4, 8 or 16 bytes, any strides.
        level: 1 to 7, or ``None`` for the fastest kernel known; 7 makes the same choice.
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
        return TRANSPOSE.call((a,), choice_of(level, kernel), out)
    except (AttributeError, RuntimeError, ValueError, TypeError) as error:
        _errors.diagnose(error, "transpose", a=a, out=out)
        raise


class TransposeFunction(torch.autograd.Function):
    """transpose for eager gradients, torch.func transforms and forward-mode AD."""

    forward = runs(ops._transpose.default)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.options = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return transpose(grad, **public(ctx.options)), None

    @tangent
    def jvp(ctx: Any, saved: Any, a_t: Tensor, _: None) -> Tensor:
        return transpose(a_t, **public(ctx.options))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], a: Tensor, options: dict[str, Any]) -> tuple[Tensor, int]:
        if rank_of(a, in_dims[0]) < 2:
            raise ValueError("fastgemm: a must have at least 2 dimensions inside vmap")
        return transpose(a.movedim(in_dims[0], 0), **public(options)), 0


def _differentiable(a: Tensor, **options: Any) -> Tensor:
    return TransposeFunction.apply(a, options)


TRANSPOSE = Op("transpose", ("_transpose",), ops._transpose.default._op, _differentiable)
