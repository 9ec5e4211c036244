"""The public product of scaled 8-bit floating-point numbers."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.overrides import has_torch_function_variadic

from .. import _errors
from .._ops.activations import ACTIVATIONS
from .._ops.codes import as_codes, check_out_scale
from .._ops.dispatch import PLAIN, choice_of, in_shape, ops, overridden, written
from .._ops.gated import SWIGLU, gated
from .._ops.sizes import is_one_number, same
from .._typing import GatedActivation, OutRecipe
from ..table import invariant_choice
from .recipes import CODES, E8M0, RECIPES, Blocks, Recipe, as_arguments, scales_of

WIDE = (torch.bfloat16, torch.float16, torch.float32)
PRECISIONS = ("promoted", "fast")
Fp8Precision = Literal["promoted", "fast"]


def scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    *,
    bias: Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    activation: GatedActivation | None = None,
    residual: Tensor | None = None,
    out: Tensor | None = None,
    recipe_a: Recipe | object | None = None,
    recipe_b: Recipe | object | None = None,
    out_scale: Tensor | OutRecipe | None = None,
    level: int | None = None,
    kernel: str | None = None,
    precision: Fp8Precision | None = None,
    invariant: bool = False,
) -> Any:
    """``activation((scale_a * a) @ (scale_b * b) + bias) + residual`` of 8-bit floating-point numbers, in which
    each scale multiplies the codes of its block.

    Operands may have any layout, size, alignment and recipe. The shape of the scales says which codes share a
    scale:

    =============== ================================== ==================================
    recipe          ``scale_a``                        ``scale_b``
    =============== ================================== ==================================
    ``"tensor"``    one number, any shape              one number
    ``"row"``       ``(M, 1)``                         ``(1, N)``
    ``"1x128"``     ``(M, ceil(K / 128))``             ``(ceil(K / 128), N)``
    ``"128x128"``   ``(ceil(M / 128), ceil(K / 128))`` ``(ceil(K / 128), ceil(N / 128))``
    ``"1x32"``      ``(M, ceil(K / 32))``              ``(ceil(K / 32), N)``
    =============== ================================== ==================================

    Args:
        a: ``(..., M, K)``; ``torch.float8_e4m3fn`` or ``torch.float8_e5m2``. Any strides.
        b: ``(..., K, N)``, of either type. Leading dimensions broadcast against those of ``a``.
        scale_a: float32 or e8m0 (``torch.float8_e8m0fnu``), with the leading dimensions of ``a``. Any strides.
        scale_b: the same for ``b``.
        bias: ``(N,)``, of the dtype of the result; with a float32 result also of 16 bits.
        out_dtype: ``torch.bfloat16``, ``torch.float16`` or ``torch.float32``; or a type of 8 bits, see
            ``out_scale``.
        activation: ``"relu"``, ``"gelu"``, ``"gelu_tanh"``, ``"silu"``, ``"swiglu"`` or None, as for
            :func:`linear`.
        residual: of the shape and dtype of the result (float32 for one of 8 bits).
        out: tensor that receives the result; it must have its exact shape, dtype and device.
        recipe_a: names the recipe instead of the shape, also as torch's ``ScalingType``.
        recipe_b: the same for ``scale_b``.
        out_scale: for an ``out_dtype`` of 8 bits: a positive float32 scalar, by which the result is divided before
            it is rounded; larger numbers become the largest code. Or ``"row"`` or ``"1x128"``: the float32 result
            is rounded as by :func:`quantize_fp8`, and the scales are returned, too. The pass that makes codes also
            computes activation and residual.
        level: 1 to 7, a rung of the ladder, or ``None`` for the fastest kernel known; see :func:`matmul`.
        kernel: the name of one kernel, instead of a level.
        precision: ``None`` and ``"promoted"``: a tensor core, which keeps 14 bits of a sum, sums at most 128
            values of K, and these sums are added in float32. ``"fast"`` allows longer sums of the tensor core. No
            kernel uses them today: on GPUs and CPUs all three give the same bits.
        invariant: the bits of a row do not depend on the other rows; see :func:`matmul`.

    Returns:
        ``(..., M, N)`` of ``out_dtype``, with swiglu ``(..., M, N / 2)``; with ``out_scale="row"`` or ``"1x128"``
        a pair, codes and scales. If all scales are float32 scales of rows and columns, they multiply the sums,
        first the scale of ``a``. Otherwise each scale multiplies its codes, or the sum of a part of K that has it.
        Sums are computed in float32; on Hopper, sums of 128 products are added in float32. The sum is rounded once
        to the result. Before swiglu it is rounded, too, unless the result has 8 bits (docs/fp8.md).

    Raises:
        TypeError: an operand is no tensor, or its dtype is not supported.
        ValueError: shapes, dtypes, scales or devices do not fit together; unknown ``activation``, ``kernel``,
            ``level``, ``precision`` or recipe; ``out_scale`` missing or given without need.
        RuntimeError: a gradient would be needed (there is none), or the requested level or kernel cannot run here.

    Examples:
        >>> import torch, fastgemm
        >>> x, w = torch.randn(4, 256), torch.randn(256, 64)
        >>> (a, scale_a), (b, scale_b) = fastgemm.quantize_fp8(x, "row"), fastgemm.quantize_fp8(w.mT, "row")
        >>> y = fastgemm.scaled_mm(a, b.mT, scale_a, scale_b.mT, out_dtype=torch.float32)
        >>> bool((y - x @ w).norm() < 0.05 * (x @ w).norm())
        True
    """
    tensors = a, b, scale_a, scale_b, bias, residual, out
    scale = out_scale if isinstance(out_scale, Tensor) else None
    if has_torch_function_variadic(*tensors, scale):
        given: dict[str, Any] = {"bias": bias, "out_dtype": out_dtype, "activation": activation}
        given |= {"residual": residual, "out": out}
        given |= {"recipe_a": recipe_a, "recipe_b": recipe_b, "out_scale": out_scale, "level": level}
        given |= {"kernel": kernel, "precision": precision, "invariant": invariant or None}
        return overridden(scaled_mm, (*tensors, scale), a, b, scale_a, scale_b, **given)
    try:
        if (
            activation is None
            and residual is None
            and out is None
            and out_scale is None
            and level is None
            and kernel is None
            and precision is None
            and recipe_a is None
            and recipe_b is None
            and not invariant
            and (blocks := _usual_blocks(a, b, scale_a, scale_b, bias, out_dtype)) is not None
        ):
            return scaled_bare(a, b, scale_a, scale_b, bias, None, out_dtype=out_dtype, **blocks)
    except (RuntimeError, ValueError) as error:
        _diagnose(error, *tensors[:6])
        raise
    check_codes("scaled_mm", a=a, b=b, scale_a=scale_a, scale_b=scale_b)
    for name, x in (("bias", bias), ("residual", residual), ("out", out)):
        if x is not None and not isinstance(x, Tensor):
            raise TypeError(f"fastgemm.scaled_mm: {name} must be a torch.Tensor, got {type(x).__name__}")
    refuse_gradient("scaled_mm", *tensors, scale)
    if activation is not None and activation not in (*ACTIVATIONS, SWIGLU):
        raise ValueError(
            f"fastgemm.scaled_mm: unknown activation {activation!r}; accepted: "
            f"{', '.join((*ACTIVATIONS, SWIGLU))} or None"
        )
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(
            f"fastgemm.scaled_mm: unknown precision {precision!r}; accepted: 'promoted', 'fast' or None"
        )
    _check_result(out_dtype, out_scale, out)
    if invariant:
        level, kernel = None, invariant_choice(level, kernel, None, "fastgemm.scaled_mm")
    try:
        options: dict[str, Any] = choice_of(level, kernel)
        options["out_dtype"] = torch.float32 if out_dtype in CODES else out_dtype
        of_sums = activation == SWIGLU or out_dtype in CODES  # a separate pass applies the rest
        if activation is not None and not of_sums:
            options["activation"] = activation
        added = None if of_sums else residual
        result = _multiply(a, b, scale_a, scale_b, bias, added, (recipe_a, recipe_b), options)
        uncast = {"precision": "promoted"}  # so that autocast leaves the residual as it is, as in the op
        if out_dtype in CODES:
            result = as_codes(result, out_dtype, out_scale, activation, residual, uncast)
        elif of_sums:
            result = gated("scaled_mm", result, residual, uncast)
        if out is None:
            return result
        if not is_compiling():
            _errors.refuse_inference_tensor(out)
        return written(result, out)
    except (AttributeError, RuntimeError, ValueError, TypeError) as error:
        _diagnose(error, *tensors[:6])
        raise


scaled_bare = ops.scaled_mm.default._op  # without OpOverload's frame, as in _ops/dispatch.py


def _usual_blocks(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None, out_dtype: torch.dtype
) -> dict[str, int] | None:
    """The blocks of an eager product of two matrices, if each scale has the shape of its grid. None for any other
    call: it is checked step by step, which takes 8 us."""
    given = (a, b, scale_a, scale_b) if bias is None else (a, b, scale_a, scale_b, bias)
    if is_compiling() or not isinstance(out_dtype, torch.dtype) or forward_ad._current_level >= 0:
        return None
    for x in given:
        if type(x) not in PLAIN or (x.requires_grad and torch.is_grad_enabled()):
            return None
    shapes = a.shape, b.shape, scale_a.shape, scale_b.shape
    return _blocks_of(*shapes, a.dtype, b.dtype, scale_a.dtype, scale_b.dtype, out_dtype)


@lru_cache(maxsize=4096)
def _blocks_of(
    a: torch.Size, b: torch.Size, scale_a: torch.Size, scale_b: torch.Size, *dtypes: torch.dtype
) -> dict[str, int] | None:
    if not (len(a) == len(b) == 2 and a[1] == b[0]):
        return None
    if not ({*dtypes[:2]} <= {*CODES} and {*dtypes[2:4]} <= {torch.float32, E8M0} and dtypes[4] in WIDE):
        return None
    (m, k), n = a, b[1]
    of_a, of_b = _recipe_of(scale_a, m, k), _recipe_of(scale_b[::-1], n, k)
    return None if of_a is None or of_b is None else as_arguments(of_a, of_b)


def _recipe_of(scale: tuple[int, ...], lines: int, k: int) -> Blocks | None:
    if math.prod(scale) == 1:
        return RECIPES["tensor"]
    return next((blocks for blocks in RECIPES.values() if blocks.grid(lines, k) == scale), None)


def _diagnose(error: Exception, *operands: Tensor | None) -> None:
    named = zip(("a", "b", "scale_a", "scale_b", "bias", "residual"), operands, strict=True)
    _errors.diagnose(error, "scaled_mm", accepted=CODES, **dict(named))


def check_codes(function: str, **tensors: Any) -> None:
    for name, x in tensors.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"fastgemm.{function}: {name} must be a torch.Tensor, got {type(x).__name__}")
    for name in ("a", "b"):
        x = tensors[name]
        if x.dtype not in CODES:
            raise TypeError(
                f"fastgemm.{function}: {name} has dtype {x.dtype}; accepted: torch.float8_e4m3fn and "
                f"torch.float8_e5m2"
            )
        if x.dim() < 2:
            raise ValueError(
                f"fastgemm.{function}: {name} must have at least 2 dimensions, got shape {tuple(x.shape)}"
            )


def refuse_gradient(function: str, *tensors: Tensor | None) -> None:
    if _errors.wants_derivative(*tensors):
        raise RuntimeError(
            f"fastgemm.{function} has no gradient, as torch's op; call it under torch.no_grad(), or in an "
            "autograd.Function of your own"
        )


def _check_result(out_dtype: torch.dtype, out_scale: Any, out: Tensor | None) -> None:
    if out_dtype not in (*WIDE, *CODES):
        raise ValueError(
            f"fastgemm.scaled_mm: out_dtype must be {', '.join(map(str, (*WIDE, *CODES)))}, got {out_dtype}"
        )
    check_out_scale("scaled_mm", out_dtype, out_scale)
    if out is None:
        return
    if isinstance(out_scale, str):
        raise ValueError(
            "fastgemm.scaled_mm: out takes no result with scales; they are returned beside codes"
        )
    if out.dtype != out_dtype:
        raise ValueError(f"fastgemm.scaled_mm: out has dtype {out.dtype}, expected {out_dtype}")


def _multiply(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    recipes: tuple[object, object],
    options: dict[str, Any],
) -> Tensor:
    given = scale_a
    scale_a, blocks_a = scales_of("a", a, scale_a, recipes[0])
    scale_b, blocks_b = scales_of("b", b, scale_b, recipes[1])
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if not same((k,), (b.shape[-2],)):
        raise ValueError(f"fastgemm: inner sizes differ: a has shape {tuple(a.shape)}, b {tuple(b.shape)}")
    is_matrix = a.dim() == 2 and b.dim() == 2  # the usual case; what follows would take longer than the call
    lead = () if is_matrix else _leading_shape(a, b)
    shape = (*lead, m, n)
    if residual is not None and not same(residual.shape, shape):
        raise ValueError(f"fastgemm: residual has shape {tuple(residual.shape)}, expected {shape}")
    one_scale = blocks_a == RECIPES["tensor"] and is_one_number(given)
    if is_matrix:
        pass
    elif b.dim() == 2 and (blocks_a.lines == 1 or one_scale):  # the rows of all matrices are those of one
        a = a.reshape(math.prod(a.shape[:-1]), k)
        scale_a = given.reshape(1, 1) if one_scale else scale_a.reshape(a.shape[0], scale_a.shape[-1])
    elif lead:
        count = math.prod(lead)
        a, b, scale_a, scale_b = (
            x.expand(*lead, *x.shape[-2:]).reshape(count, *x.shape[-2:]) for x in (a, b, scale_a, scale_b)
        )
    if residual is not None and not is_matrix:
        residual = residual.reshape(*a.shape[:-1], n)
    blocks = as_arguments(blocks_a, blocks_b)
    result = ops.scaled_mm(a, b, scale_a, scale_b, bias, residual, **blocks, **options)
    return result if is_matrix else in_shape(result, shape)


def _leading_shape(a: Tensor, b: Tensor) -> tuple[int, ...]:
    try:
        return tuple(torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    except RuntimeError as error:
        raise ValueError(
            f"fastgemm: batches of {tuple(a.shape)} and {tuple(b.shape)} do not broadcast"
        ) from error
