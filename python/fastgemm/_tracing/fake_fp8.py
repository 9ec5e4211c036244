"""The fake kernels of 8-bit floating-point numbers. The checks are those of csrc/torch/scaled_mm.cpp and
quantize_fp8.cpp."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import Tensor

from .._fp8.product import WIDE
from .._fp8.quantize import NUMBERS
from .._fp8.recipes import CODES, E8M0, RECIPES, Blocks
from .._ops.activations import ACTIVATIONS
from .._ops.gated import SWIGLU
from ..table import check_choice
from .fake import _check_devices, _check_tensors, _register, _require, check_activation, same_sizes


def _check_operand(name: str, x: Tensor, scale: Tensor, blocks: tuple[int, int]) -> None:
    _require(x.dtype in CODES, lambda: f"{name} has dtype {x.dtype}, which has no 8-bit codes")
    _require(scale.dtype in (torch.float32, E8M0), lambda: f"scale_{name} has dtype {scale.dtype}")
    _require(min(blocks) >= 0, lambda: f"a block has no negative size, got {blocks}")
    expected = (*x.shape[:-2], *Blocks(*blocks).grid(x.shape[-2], x.shape[-1]))
    _require(
        (x.dim() == 2 and blocks == (0, 0) and all(n == 1 for n in scale.shape))
        or same_sizes(scale.shape, expected),
        lambda: f"scale_{name} has shape {tuple(scale.shape)}, expected {expected}",
    )


def scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    activation: str | None = None,
    **options: Any,
) -> Tensor:
    _check_tensors(a, b, scale_a, scale_b, bias, residual)
    _check_devices(a, b, scale_a, scale_b, bias, residual)
    _require(
        a.dim() == b.dim() and a.dim() in (2, 3) and (a.dim() == 2 or a.shape[0] == b.shape[0]),
        lambda: f"a and b must be matrices, or batches of as many, got {tuple(a.shape)} and {tuple(b.shape)}",
    )
    out_dtype = _check_product(a, b, scale_a, scale_b, **options)
    check_activation(activation)
    result = a.new_empty((*a.shape[:-1], b.shape[-1]), dtype=out_dtype)
    _check_terms(result, bias, residual)
    return result


def scaled_grouped_mm(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, offs: Tensor, *, block_m: int, **options: Any
) -> Tensor:
    _check_tensors(a, b, scale_a, scale_b, offs)
    _check_devices(a, b, scale_a, scale_b, offs)
    _require(
        a.dim() == 2 and b.dim() == 3,
        lambda: (
            f"a must be a matrix and b have one for each group, got {tuple(a.shape)} and {tuple(b.shape)}"
        ),
    )
    _require(
        offs.dim() == 1 and offs.dtype == torch.int32 and offs.shape[0] == b.shape[0],
        lambda: (
            f"offs must be int32, one for each matrix of b, got {offs.dtype} of shape {tuple(offs.shape)}"
        ),
    )
    _require(block_m <= 1, lambda: "scales of a belong to single rows or to all of it")
    out_dtype = _check_product(a, b, scale_a, scale_b, "m", block_m=block_m, **options)
    return a.new_empty((a.shape[0], b.shape[-1]), dtype=out_dtype)


def _check_product(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    groups: str = "none",
    *,
    block_m: int,
    block_k_of_a: int,
    block_k_of_b: int,
    block_n: int,
    level: int | None = None,
    impl: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.dtype:
    """The checks of both products. Returns the type of the result.

    With a level or kernel, there must be such a row for any type that the product may have: this depends on
    strides, too. A CPU multiplies groups one after the other."""
    _require(a.shape[-1] == b.shape[-2], lambda: f"inner sizes differ: {tuple(a.shape)}, {tuple(b.shape)}")
    _check_operand("a", a, scale_a, (block_m, block_k_of_a))
    _check_operand("b", b, scale_b, (block_k_of_b, block_n))
    wanted = out_dtype or torch.bfloat16
    _require(wanted in WIDE, lambda: f"out_dtype={wanted} is no type of the op's results")
    if level is None and impl is None:
        return wanted
    by_lines = max(block_m, block_n) <= 1 and block_k_of_a == block_k_of_b == 0
    narrow = torch.float16 if wanted == torch.float16 else torch.bfloat16
    errors = []
    wide = (narrow, torch.float32) if by_lines else (torch.float32,)
    for dtype, code in ((a.dtype, "none"), *product(wide, ("none", "e4m3"))):
        for grouped in {groups, "none"} if a.device.type != "cuda" else {groups}:
            try:
                check_choice("gemm", a.device, dtype, level, impl, code=code, groups=grouped)
                return wanted
            except (RuntimeError, ValueError) as error:
                errors.append(error)
    raise errors[0]


def _check_terms(result: Tensor, bias: Tensor | None, residual: Tensor | None) -> None:
    wide = result.dtype == torch.float32
    _require(
        bias is None
        or (
            (bias.dtype == result.dtype or (wide and bias.dtype in WIDE))
            and same_sizes(bias.shape, result.shape[-1:])
        ),
        lambda: f"bias of another shape or dtype than a row of the result, {result.dtype}",
    )
    _require(
        residual is None or (residual.dtype == result.dtype and same_sizes(residual.shape, result.shape)),
        lambda: f"residual of another shape or dtype than the result, {tuple(result.shape)} {result.dtype}",
    )


def quantize_fp8(
    x: Tensor,
    scale: Tensor | None = None,
    *,
    block_rows: int,
    block_cols: int,
    dtype: torch.dtype | None = None,
    e8m0: bool = False,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    _check_tensors(x, scale, residual)
    _check_devices(x, scale, residual)
    _require(x.dim() == 2, lambda: f"x must have 2 dimensions, got shape {tuple(x.shape)}")
    _require(x.dtype in NUMBERS, lambda: f"x has dtype {x.dtype}, which is not rounded to 8 bits")
    dtype = dtype or torch.float8_e4m3fn
    _require(dtype in CODES, lambda: f"{dtype} has no 8-bit codes")
    _require(min(block_rows, block_cols) >= 0, lambda: "a block has no negative size")
    given = scale is None or (
        scale.dtype == torch.float32
        and tuple(scale.shape) == (1, 1)
        and (block_rows, block_cols, e8m0) == (0, 0, False)
    )
    _require(given, lambda: "a scale that is given is one float32")
    check_activation(activation, (*ACTIVATIONS, SWIGLU))
    shape = x.shape
    if activation == SWIGLU:
        _require(x.shape[1] % 2 == 0, lambda: f"swiglu halves the result, whose size {x.shape[1]} is odd")
        shape = torch.Size((x.shape[0], x.shape[1] // 2))
    _require(
        residual is None or (residual.dtype == x.dtype and same_sizes(residual.shape, shape)),
        lambda: f"residual of another shape or dtype than {tuple(shape)} {x.dtype}",
    )
    grid = Blocks(block_rows, block_cols).grid(*shape)
    scales = x.new_empty(grid, dtype=E8M0 if e8m0 else torch.float32)
    return x.new_empty(shape, dtype=dtype), scales


def quantize_fp8_with_transposed(
    x: Tensor, *, block_rows: int, block_cols: int, dtype: torch.dtype | None = None, e8m0: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _require((block_rows, block_cols) in RECIPES.values(), lambda: "these blocks are of no recipe")
    codes, scales = quantize_fp8(x, block_rows=block_rows, block_cols=block_cols, dtype=dtype, e8m0=e8m0)
    shape, grid = x.shape[::-1], Blocks(block_rows, block_cols).grid(x.shape[1], x.shape[0])
    return codes, scales, codes.new_empty(shape), scales.new_empty(grid)


def register() -> None:
    _register("_quantize_fp8_with_transposed", quantize_fp8_with_transposed)
    _register("scaled_mm", scaled_mm)
    _register("scaled_grouped_mm", scaled_grouped_mm)
    _register("quantize_fp8", quantize_fp8)
