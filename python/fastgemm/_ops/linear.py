"""A linear layer with its epilogue: the public function, the path of its calls, and its gradient.

As in _ops/gemm.py the three are one module: the gradient is made of products and written in terms of the public
functions, so that it differentiates again.
"""

from __future__ import annotations

from typing import Any, overload

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.overrides import has_torch_function_variadic

from .. import _errors
from .._typing import GatedActivation, OutRecipe, Precision
from ..table import invariant_choice
from . import autocast
from .activations import ACTIVATIONS, activate, check_activation, for_torch, through_activation
from .codes import CODES, as_codes, check_out_scale
from .dispatch import (
    CHOICE,
    Op,
    compiled_override,
    fused_linear_at_once,
    in_shape,
    only_override,
    ops,
    options_of,
    overridden,
    public,
)
from .gated import SWIGLU, check_residual, gated, with_residual
from .gemm import _gemm_gradients, gemm
from .sizes import same
from .tangents import tangent
from .vmap import batch_first, rank_of, runs

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
IN_TWO_STEPS = (torch.complex64, torch.complex128)
"""Types whose residual torch adds if there is a bias, too. They are summed in their own type, so no bit is lost.
The op would copy the weight to twice its size: 5 times the time with few rows."""


@overload
def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: GatedActivation | None = None,
    residual: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    out_scale: Tensor | None = None,
    level: int | None = None,
    kernel: str | None = None,
    precision: Precision | None = None,
    invariant: bool = False,
) -> Tensor: ...


@overload
def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: GatedActivation | None = None,
    residual: Tensor | None = None,
    out_dtype: torch.dtype,
    out_scale: OutRecipe,
    level: int | None = None,
    kernel: str | None = None,
    precision: Precision | None = None,
    invariant: bool = False,
) -> tuple[Tensor, Tensor]: ...


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: GatedActivation | None = None,
    residual: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    out_scale: Tensor | OutRecipe | None = None,
    level: int | None = None,
    kernel: str | None = None,
    precision: Precision | None = None,
    invariant: bool = False,
) -> Any:
    """``activation(x @ weight.T + bias) + residual``, rounded once unless a gradient needs the values in between.

    Bias, activation and residual are computed in float32 (for float64: in float64) from the sums of the
    product, in the product's kernel if possible (docs/linear.md), otherwise in one pass after it.

    Args:
        x: ``(..., K)``; float64, float32, float16 or bfloat16. Complex numbers take no activation.
        weight: ``(N, K)``, as :func:`torch.nn.functional.linear` has it, of the same dtype and device; or a
            :class:`QuantizedWeight`, with ``x`` in bfloat16, float16 or float32.
        bias: ``(N,)``, of the same dtype, or None.
        activation: ``"relu"``, ``"gelu"``, ``"gelu_tanh"`` (gelu with ``approximate="tanh"``), ``"silu"`` or None;
            or ``"swiglu"`` for an even N: ``silu(gate) * up``, where the first half of a row is the gate. It is
            computed by a pass after the product; the product is rounded before this pass.
        residual: added last; of the shape and dtype of the result, or None.
        out_dtype: ``torch.float32`` for float16 and bfloat16; or ``torch.float8_e4m3fn`` or
            ``torch.float8_e5m2``, see ``out_scale``; otherwise the usual one.
        out_scale: for an ``out_dtype`` of 8 bits: a positive float32 scalar, by which the result is divided before
            it is rounded; or ``"row"`` or ``"1x128"``, which returns codes and scales as :func:`quantize_fp8`
            does. swiglu, with its residual, is then part of the pass that makes codes (docs/fp8.md). There is no
            gradient.
        level: 1 to 7, a rung of the ladder, or ``None`` for the fastest kernel known; see :func:`matmul`.
        kernel: the name of one kernel, instead of a level.
        precision: for float32; see :func:`matmul`. Not for a QuantizedWeight.
        invariant: the bits of a row do not depend on the other rows; see :func:`matmul`.

    Returns:
        ``(..., N)``, with swiglu ``(..., N / 2)``; with ``out_scale="row"`` or ``"1x128"`` a pair, codes and
        scales. With K = 0 it is ``activation(bias) + residual``.

    Raises:
        TypeError: an operand is no tensor.
        NotImplementedError: an operand is sparse or quantized, or its device has no kernels.
        ValueError: shapes, dtypes or devices do not fit together; an integer dtype; unknown ``activation``,
            ``kernel``, ``level`` or ``precision``; ``out_scale`` missing or given without need.
        RuntimeError: the level or kernel asked for cannot run here; a result of 8 bits would need a gradient.
    """
    choice = level, kernel, precision, out_dtype
    if out_scale is None and not invariant and not is_compiling():
        try:
            result = fused_linear_at_once(x, weight, bias, residual, activation, *choice)
        except (RuntimeError, ValueError) as error:
            _errors.diagnose(error, "linear", x=x, weight=weight, bias=bias, residual=residual)
            raise
        if result is not NotImplemented:
            return result
    if out_dtype in CODES or out_scale is not None:
        how: dict[str, Any] = {
            "level": level,
            "kernel": kernel,
            "precision": precision,
            "invariant": invariant,
        }
        return _in_codes((x, weight, bias), activation, residual, out_dtype, out_scale, how)
    if activation == SWIGLU:
        options: dict[str, Any] = dict(zip(CHOICE, choice, strict=True))
        inner = linear(x, weight, bias, invariant=invariant, **options)
        return gated("linear", for_torch(inner, {"invariant": invariant, "impl": kernel}), residual, options)
    compiled = compiled_override(weight)
    if compiled or has_torch_function_variadic(x, weight, bias, residual):
        given: dict[str, Any] = {
            "activation": activation,
            "residual": residual,
            "invariant": invariant or None,
        }
        given.update(zip(CHOICE, choice, strict=True))
        if override := compiled or only_override(weight, x, bias, residual):
            return override(linear, (x, weight, bias), given)
        return overridden(linear, (x, weight, bias, residual), x, weight, bias, **given)
    if invariant:
        level, kernel = None, invariant_choice(level, kernel, precision, "fastgemm.linear")
    try:
        if not (isinstance(x, Tensor) and isinstance(weight, Tensor)):
            raise _errors.not_a_tensor(x=x, weight=weight)
        check_activation(activation)
        if x.dim() == 0:
            raise ValueError("fastgemm: x must have at least 1 dimension, got 0")
        if x.dtype in IN_TWO_STEPS and bias is not None and residual is not None and activation is None:
            options = dict(zip(CHOICE, (level, kernel, precision, out_dtype), strict=True))
            return with_residual(linear(x, weight, bias, **options), residual, options)
        options = options_of(x, level, kernel, precision, None, out_dtype)
        if activation is not None:
            options["activation"] = activation
        if x.dim() == 2 or (x.dim() > 2 and _errors.is_sharded(x)):
            return LAYER.call((x, weight, bias, residual), options)
        # One matrix product: otherwise the weight's gradient would be a sum over a batch of products. A DTensor
        # keeps its dimensions, which torch cannot always flatten; its gradient is one product where it can.
        shape = (*x.shape[:-1], weight.shape[0] if weight.dim() > 0 else 1)
        if residual is not None and isinstance(residual, Tensor) and not same(residual.shape, shape):
            raise ValueError(
                f"fastgemm: residual has shape {tuple(residual.shape)}, expected that of the result, "
                f"{tuple(shape)}"
            )
        rows, residual = _as_rows(x), None if residual is None else _as_rows(residual)
        kept_by = activation if residual is None else None
        return in_shape(LAYER.call((rows, weight, bias, residual), options), shape, kept_by)
    except (AttributeError, RuntimeError, ValueError, TypeError) as error:
        _errors.diagnose(error, "linear", x=x, weight=weight, bias=bias, residual=residual)
        raise


def _in_codes(
    inputs: tuple[Tensor, Tensor, Tensor | None],
    activation: GatedActivation | None,
    residual: Tensor | None,
    out_dtype: Any,
    out_scale: Tensor | OutRecipe | None,
    options: dict[str, Any],
) -> Any:
    check_out_scale("linear", out_dtype, out_scale)
    if _errors.wants_derivative(*inputs, residual, out_scale):
        raise RuntimeError(
            "fastgemm.linear: a result of 8 bits has no gradient; call it under torch.no_grad()"
        )
    of_pass: tuple[Any, ...] = ()
    if activation == SWIGLU:
        inner, of_pass = linear(*inputs, **options), (activation, residual, options)
    else:
        inner = linear(*inputs, activation=activation, residual=residual, **options)
    try:
        return as_codes(inner, out_dtype, out_scale, *of_pass)
    except (AttributeError, RuntimeError, ValueError, TypeError) as error:
        _errors.attribute(error, "linear")
        raise


def _as_rows(x: Tensor) -> Tensor:
    return x.unsqueeze(0) if x.dim() == 1 else x.flatten(0, -2)


def operands(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    options: dict[str, Any],
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """The operands in the types that autocast gives them: the residual that of the result."""
    x, weight, residual = autocast.operands(x, weight, residual, options=options)
    return x, weight, autocast.of_bias(bias, x, options), residual


class LinearFunction(torch.autograd.Function):
    """linear for gradients, torch.func transforms and forward-mode AD.

    If the gradient needs the input of the activation, the product is computed again. :func:`differentiable`
    makes sure that reverse mode does not get here with such a call.
    """

    forward = runs(ops._fused_linear.default)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, bias, residual, options = inputs
        by_result = options.get("activation") == "relu" and residual is None
        result = output if by_result else None
        if options.get("activation") is None or by_result:
            # As in torch, only tensors that a gradient needs are saved: not the input of a frozen layer.
            needs_x, needs_weight = ctx.needs_input_grad[:2]
            ctx.save_for_backward(x if needs_weight else None, weight if needs_x else None, None, result)
        else:
            ctx.save_for_backward(x, weight, bias, result)
        ctx.save_for_forward(x, weight, bias, result)
        ctx.shapes = x.shape, weight.shape, None if bias is None else bias.shape
        ctx.dtypes = x.dtype, None if bias is None else bias.dtype
        ctx.options = options

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, result = ctx.saved_tensors
        needs = ctx.needs_input_grad
        inner = grad
        if ctx.options.get("activation") is not None and any(needs[:3]):
            inner = through_activation(grad, _inner(x, weight, bias, result, ctx.options), ctx.options)
        narrow, of_bias = ctx.dtypes
        grad_x, grad_weight, grad_bias = _gemm_gradients(
            inner, x, weight, ctx.shapes, narrow, {**ctx.options, "trans_b": True}, needs[:3]
        )
        if grad_bias is not None:
            grad_bias = grad_bias.to(of_bias)
        return grad_x, grad_weight, grad_bias, grad if needs[3] else None, None

    @tangent
    def jvp(ctx: Any, saved: Any, *tangents: Tensor | None) -> Tensor:
        x_t, weight_t, bias_t, residual_t, _ = tangents
        x, weight, bias, result = saved
        how = _how(ctx.options)
        terms = [] if x_t is None else [gemm(x_t, weight, trans_b=True, **how)]
        if weight_t is not None:
            terms.append(gemm(x, weight_t, trans_b=True, **how))
        total: Any = sum(terms[1:], terms[0]) if terms else None
        if bias_t is not None:
            shape = (*x.shape[:-1], weight.shape[0])
            total = bias_t.expand(shape) if total is None else total + bias_t
        if total is not None and ctx.options.get("activation") is not None:
            total = through_activation(total, _inner(x, weight, bias, result, ctx.options), ctx.options)
        if residual_t is not None:
            total = residual_t if total is None else total + residual_t
        return total

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
        x, weight, bias, residual, options = arguments
        of_x, of_weight, of_bias, of_residual = in_dims[:4]
        size = info.batch_size

        def stacked(t: Tensor, dim: int | None) -> Tensor:
            return t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0)

        if of_weight is None and of_bias is None:  # members are more rows
            if residual is not None:
                residual = stacked(residual, of_residual)
            return linear(stacked(x, of_x), weight, bias, residual=residual, **public(options)), 0
        # Every member has its own weight or bias: a batch of products, and torch's functions.
        rank = rank_of(x, of_x)
        out = gemm(
            batch_first(x, of_x, rank), batch_first(weight, of_weight, rank), trans_b=True, **_how(options)
        )
        if bias is not None:
            out = out + batch_first(bias, of_bias, rank)
        if options.get("activation") is not None:
            out = activate(out, options)
        if residual is not None:
            out = out + batch_first(residual, of_residual, rank)
        return out.expand(size, *out.shape[1:]), 0


def _without_activation(options: dict[str, Any]) -> dict[str, Any]:
    """The options that products have, too."""
    return {name: value for name, value in options.items() if name != "activation"}


def _how(options: dict[str, Any]) -> dict[str, Any]:
    """The options that linear and gemm share."""
    return public(_without_activation(options))


def _inner(
    x: Tensor, weight: Tensor, bias: Tensor | None, result: Tensor | None, options: dict[str, Any]
) -> Tensor:
    """The input of the activation; for relu its result, from which the gradient follows as well."""
    return linear(x, weight, bias, **_how(options)) if result is None else result


def differentiable(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, **options: Any
) -> Tensor:
    """The op with its gradient, also where torch.compile, torch.export or a transform of torch.func sees it.

    A kernel with an epilogue cannot store a second result, the input of the activation. If the gradient needs
    it, the product is stored, and torch's functions follow, as in torch's layer.
    """
    # The casts are made here, so that autograd sees them.
    x, weight, bias, residual = operands(x, weight, bias, residual, options=options)
    activation = options.get("activation")
    told_by_result = activation is None or (activation == "relu" and residual is None)
    if told_by_result or not _errors.wants_gradient(x, weight, bias):
        return LinearFunction.apply(x, weight, bias, residual, options)
    if activation not in ACTIVATIONS or x.is_complex():
        return LinearFunction.apply(x, weight, bias, residual, options)  # which says what is wrong
    inner = LinearFunction.apply(x, weight, bias, None, _without_activation(options))
    return _finished_by_torch(inner, residual, options)


def _finished_by_torch(inner: Tensor, residual: Tensor | None, options: dict[str, Any]) -> Tensor:
    if residual is not None:
        check_residual(residual, inner)
    result = activate(inner, options)
    return result if residual is None else result + residual


LAYER = Op("linear", ("_fused_linear",), ops._fused_linear.default._op, differentiable, operands)
