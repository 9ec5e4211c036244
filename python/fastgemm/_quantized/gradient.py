"""The gradient of ``torch.ops.fastgemm.quantized_linear``, for eager calls, torch.compile and torch.func.

As in _ops/linear.py it is made of products, so that it differentiates again. The gradient of x is a product
with the dequantized weight, by :func:`fastgemm.gemm`; codes and scales have none."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _errors
from .._ops import autocast
from .._ops.activations import ACTIVATIONS, activate, through_activation
from .._ops.dispatch import Op, needs_function, ops
from .._ops.gemm import gemm
from .._ops.linear import _finished_by_torch, _without_activation
from .._ops.tangents import tangent
from .._ops.vmap import runs
from . import layout
from .formats import Packing, Parts

Weight = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]
"""codes, scales, zeros, global scale: the tensors of a weight among the op's arguments."""


def packing_of(k: int, options: dict[str, Any]) -> Packing:
    """The packing that the op's arguments describe."""
    names = ("code", "scale", "zero", "group_n", "group_k", "units")
    return Packing(options["n"], k, *(options[name] for name in names))


def dequantized(weight: Weight, k: int, options: dict[str, Any], dtype: torch.dtype) -> Tensor:
    """The weight that the op's arguments describe, ``(n, k)``."""
    return layout.dequantize(Parts(*weight[:3]), packing_of(k, options), weight[3], None, dtype)


class QuantizedLinearFunction(torch.autograd.Function):
    """quantized_linear for gradients, torch.func transforms and forward-mode AD.

    With an activation, its gradient follows from the result; :func:`differentiable` computes other activations
    by torch.
    """

    forward = runs(ops._quantized_linear.default)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, *weight, bias, _, options = inputs
        result = output if options.get("activation") == "relu" else None
        ctx.save_for_backward(*weight, result)
        ctx.save_for_forward(*weight, result)
        ctx.shape, ctx.dtype = x.shape, x.dtype
        ctx.bias_dtype = None if bias is None else bias.dtype
        ctx.options = options

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *weight, result = ctx.saved_tensors
        of_x, of_bias, of_residual = (ctx.needs_input_grad[i] for i in (0, 5, 6))
        inner = grad if result is None else through_activation(grad, result, ctx.options)
        grad_x = grad_bias = None
        if of_x:
            matrix = dequantized(tuple(weight), ctx.shape[1], ctx.options, inner.dtype)
            grad_x = gemm(inner, matrix, invariant=ctx.options.get("invariant", False)).to(ctx.dtype)
        if of_bias:
            grad_bias = inner.sum(0).to(ctx.bias_dtype)
        return grad_x, None, None, None, None, grad_bias, grad if of_residual else None, None

    @tangent
    def jvp(ctx: Any, saved: Any, *tangents: Tensor | None) -> Tensor:
        *weight, result = saved
        x_t, *_, bias_t, residual_t, _ = tangents
        total: Any = None
        if x_t is not None:
            total = differentiable(x_t, *weight, **_without_activation(ctx.options))
        if bias_t is not None:
            total = bias_t.expand(ctx.shape[0], -1) if total is None else total + bias_t
        if total is not None and result is not None:
            total = through_activation(total, result, ctx.options)
        if residual_t is not None:
            total = residual_t if total is None else total + residual_t
        return total

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
        x, *weight, bias, residual, options = arguments
        if any(dim is not None for dim in in_dims[1:5]):
            raise ValueError("fastgemm: vmap cannot batch a QuantizedWeight; x, bias and residual it can")
        size = info.batch_size

        def rows(t: Tensor, dim: int | None) -> Tensor:
            return t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0)

        x = rows(x, in_dims[0])
        members, x = x.shape[:2], x.flatten(0, 1)
        residual = None if residual is None else rows(residual, in_dims[6]).flatten(0, 1)
        if in_dims[5] is None:  # members are more rows
            out = differentiable(x, *weight, bias, residual, **options)
            return out.unflatten(0, members), 0
        out = differentiable(x, *weight, **_without_activation(options)).unflatten(0, members)
        out = out + bias.movedim(in_dims[5], 0).unsqueeze(1)
        if options.get("activation") is not None:
            out = activate(out, options)
        return out if residual is None else out + residual.unflatten(0, members), 0


def operands(x: Tensor, *others: Any, options: dict[str, Any]) -> tuple[Any, ...]:
    """The operands in the types that autocast gives them: the residual that of the result."""
    *weight, bias, residual = (*others, None, None)[:6]
    x, _, residual = autocast.operands(x, x, residual, options=options)
    return x, *weight, autocast.of_bias(bias, x, options), residual


def differentiable(x: Tensor, *others: Any, **options: Any) -> Tensor:
    """The op with its gradient, also where torch.compile, torch.export or a transform of torch.func sees it.

    A kernel with an epilogue cannot store a second result, the input of the activation. If the gradient needs
    it, the product is stored, and torch's functions follow.
    """
    # The casts are made here, so that autograd sees them.
    x, *weight, bias, residual = operands(x, *others, options=options)
    if _errors.wants_gradient(*weight):
        raise RuntimeError("fastgemm: no gradient reaches a QuantizedWeight, but its tensors require one")
    activation = options.get("activation")
    told_by_result = activation is None or (activation == "relu" and residual is None)
    if told_by_result or activation not in ACTIVATIONS or not needs_function(x, bias):
        return QuantizedLinearFunction.apply(x, *weight, bias, residual, options)
    inner = QuantizedLinearFunction.apply(x, *weight, bias, None, _without_activation(options))
    return _finished_by_torch(inner, residual, options)


LAYER = Op(
    "quantized_linear", ("_quantized_linear",), ops._quantized_linear.default._op, differentiable, operands
)
