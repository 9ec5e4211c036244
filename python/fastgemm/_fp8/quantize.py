"""Rounding to 8-bit floating-point numbers."""

from __future__ import annotations

import math
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import has_torch_function_variadic

from .. import _errors
from .._ops.dispatch import ops, overridden, tracing_state
from .._ops.gather import runs_passes
from .recipes import CODES, E8M0, RECIPES, Blocks, Recipe, recipe_named

NUMBERS = (torch.float32, torch.bfloat16, torch.float16)
BothSides = tuple[Tensor, Tensor, Tensor, Tensor]  # codes and scales of x, then those of x.mT


@overload
def quantize_fp8(
    x: Tensor,
    recipe: Recipe = ...,
    *,
    dtype: torch.dtype = ...,
    scale_dtype: torch.dtype | None = ...,
    transposed: Literal[False] = ...,
) -> tuple[Tensor, Tensor]: ...
@overload
def quantize_fp8(
    x: Tensor,
    recipe: Recipe = ...,
    *,
    dtype: torch.dtype = ...,
    scale_dtype: torch.dtype | None = ...,
    transposed: Literal[True],
) -> BothSides: ...
@overload
def quantize_fp8(
    x: Tensor,
    recipe: Recipe = ...,
    *,
    dtype: torch.dtype = ...,
    scale_dtype: torch.dtype | None = ...,
    transposed: bool,
) -> tuple[Tensor, Tensor] | BothSides: ...
def quantize_fp8(
    x: Tensor,
    recipe: Recipe = "tensor",
    *,
    dtype: torch.dtype = torch.float8_e4m3fn,
    scale_dtype: torch.dtype | None = None,
    transposed: bool = False,
) -> tuple[Tensor, Tensor] | BothSides:
    """Codes of 8 bits and scales, so that ``codes * scale`` is close to ``x``: the operands of
    :func:`scaled_mm`.

    The scale of a block is ``max|x|`` divided by the largest code (448; 57344 for e5m2), and each number divided
    by it is rounded to the nearest code, halves to even. An e8m0 scale is the next power of two, so that no number
    exceeds the largest code. Blocks of zeros have the scale 0 (the smallest of e8m0). NaN or an infinity makes the
    scale of its block NaN, so that no result hides it. There is no gradient.

    Args:
        x: ``(..., M, K)``; float32, bfloat16 or float16. Any strides.
        recipe: the numbers that share a scale: ``"tensor"``, all; ``"row"``; ``"1x128"`` and ``"1x32"``, as many
            of a row; ``"128x128"``, such blocks of a matrix.
        dtype: of the codes: ``torch.float8_e4m3fn`` or ``torch.float8_e5m2``.
        scale_dtype: ``torch.float32`` or ``torch.float8_e8m0fnu``. None is e8m0 for ``"1x32"`` (mxfp8), else
            float32.
        transposed: also rounds ``x.mT``, by blocks of its own rows. A training step needs both: products of the
            forward pass sum over K, and gradients of weights over M. On a GPU a matrix is read once for both
            (twice if the recipe is ``"tensor"`` or ``"row"``); matrices of a batch are rounded one by one, and
            with ``"tensor"`` or torch.compile by two calls.

    Returns:
        The codes, ``(..., M, K)`` and contiguous, and the scales: ``()`` for ``"tensor"``, else ``(..., M, 1)``,
        ``(..., M, ceil(K / 128))``, ``(..., ceil(M / 128), ceil(K / 128))`` or ``(..., M, ceil(K / 32))``. With
        ``transposed=True`` then also codes ``(..., K, M)`` and scales of ``x.mT``.

    Raises:
        TypeError: ``x`` is no tensor, or has another dtype.
        ValueError: ``x`` has fewer than 2 dimensions; unknown ``recipe``, ``dtype`` or ``scale_dtype``.

    Examples:
        >>> import torch, fastgemm
        >>> codes, scale = fastgemm.quantize_fp8(torch.randn(4, 256), "1x128")
        >>> codes.dtype, scale.shape
        (torch.float8_e4m3fn, torch.Size([4, 2]))
        >>> x, grad = torch.randn(256, 64), torch.randn(256, 32)
        >>> a, scale_a, a_t, scale_a_t = fastgemm.quantize_fp8(x, "row", transposed=True)
        >>> g, scale_g, g_t, scale_g_t = fastgemm.quantize_fp8(grad, "row", transposed=True)
        >>> fastgemm.scaled_mm(g_t, a_t.mT, scale_g_t, scale_a_t.mT).shape  # grad.mT @ x
        torch.Size([32, 64])
    """
    if has_torch_function_variadic(x):
        given: dict[str, Any] = {"dtype": dtype, "scale_dtype": scale_dtype, "transposed": transposed or None}
        return overridden(quantize_fp8, (x,), x, recipe, **given)
    if not isinstance(x, Tensor):
        raise TypeError(f"fastgemm.quantize_fp8: x must be a torch.Tensor, got {type(x).__name__}")
    if x.dtype not in NUMBERS:
        raise TypeError(f"fastgemm.quantize_fp8: x must be float32, bfloat16 or float16, got {x.dtype}")
    if x.dim() < 2:
        raise ValueError(
            f"fastgemm.quantize_fp8: x must have at least 2 dimensions, got shape {tuple(x.shape)}"
        )
    if dtype not in CODES:
        raise ValueError(
            f"fastgemm.quantize_fp8: dtype must be torch.float8_e4m3fn or torch.float8_e5m2, got {dtype}"
        )
    if scale_dtype not in (None, torch.float32, E8M0):
        raise ValueError(
            f"fastgemm.quantize_fp8: scale_dtype must be torch.float32 or torch.float8_e8m0fnu, got {scale_dtype}"
        )
    try:
        name = recipe_named("recipe", recipe)
        e8m0 = scale_dtype == E8M0 or (scale_dtype is None and name == "1x32")
        function = quantized_with_transposed if transposed else quantized
        return function(x.detach(), RECIPES[name], dtype, e8m0)
    except (RuntimeError, ValueError) as error:
        _errors.diagnose(error, "quantize_fp8", x=x)
        raise


def _is_known_to_divide(lines: int, m: int) -> bool:
    """Whether it does, and no graph has to be told apart by it."""
    if tracing_state() is not None:  # A trace runs with other sizes, too, and cannot refuse them.
        return False
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # takes long to import

    return statically_known_true(m % lines == 0)


def quantized(x: Tensor, blocks: Blocks, dtype: torch.dtype, e8m0: bool) -> tuple[Tensor, Tensor]:
    """Codes and scales of checked arguments."""
    lead, (m, k) = x.shape[:-2], x.shape[-2:]
    options: dict[str, Any] = {"block_rows": blocks.lines, "block_cols": blocks.along_k}
    options |= {"dtype": dtype, "e8m0": e8m0}
    if blocks.lines > 1 and x.dim() > 2 and not runs_passes(x) and not _is_known_to_divide(blocks.lines, m):
        # A graph would unroll the loop below. Without padding pad() keeps strides, which a graph does not expect.
        padded = functional.pad(x.contiguous(), (0, 0, 0, -m % blocks.lines))
        codes, scales = ops.quantize_fp8(padded.flatten(0, -2), **options)
        codes = codes.reshape(padded.shape)[..., :m, :]
        codes = codes.clone(memory_format=torch.contiguous_format)  # contiguous() keeps strides without codes
    elif blocks.lines > 1 and x.dim() > 2 and m % blocks.lines:  # blocks end where a matrix does
        pairs = [ops.quantize_fp8(each, **options) for each in x.reshape(math.prod(lead), m, k)]
        if not pairs:
            grid = blocks.grid(m, k)
            scales = x.new_empty((*lead, *grid), dtype=E8M0 if e8m0 else torch.float32)
            return x.new_empty(x.shape, dtype=dtype), scales
        codes, scales = map(torch.stack, zip(*pairs, strict=True))
    else:
        codes, scales = ops.quantize_fp8(x.reshape(math.prod(lead) * m, k), **options)
    if blocks == RECIPES["tensor"]:
        return codes.reshape(x.shape), scales.reshape(())
    grid = blocks.grid(m, k)
    return codes.reshape(x.shape), scales.reshape(*lead, *grid)


def quantized_with_transposed(x: Tensor, blocks: Blocks, dtype: torch.dtype, e8m0: bool) -> BothSides:
    """The same of ``x`` and of ``x.mT``."""
    lead, (m, k) = x.shape[:-2], x.shape[-2:]
    one_scale = blocks == RECIPES["tensor"]
    count = math.prod(lead)
    is_batch = x.dim() > 2 and (not runs_passes(x) or (count != 1 and (one_scale or not x.numel())))
    if is_batch:  # one scale of all matrices, or a loop that a graph would unroll
        codes, scales = quantized(x, blocks, dtype, e8m0)
        return codes, scales, *quantized(x.mT, blocks, dtype, e8m0)
    options: dict[str, Any] = {"block_rows": blocks.lines, "block_cols": blocks.along_k}
    options |= {"dtype": dtype, "e8m0": e8m0}
    if count == 1:
        parts = ops._quantize_fp8_with_transposed(x.reshape(m, k), **options)
    else:
        each = [ops._quantize_fp8_with_transposed(one, **options) for one in x.reshape(count, m, k)]
        parts = tuple(map(torch.stack, zip(*each, strict=True)))
    shapes = (m, k), blocks.grid(m, k), (k, m), blocks.grid(k, m)
    codes, scales, codes_t, scales_t = (
        part.reshape(() if one_scale and i % 2 else (*lead, *shape))
        for i, (part, shape) in enumerate(zip(parts, shapes, strict=True))
    )
    return codes, scales, codes_t, scales_t
