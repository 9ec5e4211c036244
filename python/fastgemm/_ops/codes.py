"""Results of 8 bits: the argument ``out_scale`` of products, and the pass that makes codes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .. import _errors
from .dispatch import ops
from .gated import SWIGLU, as_result
from .sizes import same

CODES = (torch.float8_e4m3fn, torch.float8_e5m2)
OUT_RECIPES = {"row": 0, "1x128": 128}
"""Values of ``out_scale``, and the codes of a row that share a scale; 0 is the whole row."""


def check_out_scale(function: str, out_dtype: torch.dtype | None, out_scale: Any) -> None:
    if (out_dtype in CODES) != (out_scale is not None):
        given = "a tensor" if isinstance(out_scale, Tensor) else out_scale
        raise ValueError(
            f"fastgemm.{function}: out_scale belongs to results of 8 bits; got out_dtype={out_dtype} and "
            f"out_scale={given}"
        )
    if isinstance(out_scale, Tensor):
        fits = out_scale.dtype == torch.float32 and out_scale.numel() == 1
    else:
        fits = out_scale is None or (isinstance(out_scale, str) and out_scale in OUT_RECIPES)
    if not fits:
        raise ValueError(
            f"fastgemm.{function}: out_scale must be one float32 number in a tensor, 'row' or '1x128'"
        )


def as_codes(
    x: Tensor,
    dtype: torch.dtype,
    scale: Any,
    activation: str | None = None,
    residual: Tensor | None = None,
    of_product: dict[str, Any] | None = None,
) -> Any:
    """``activation(x) + residual`` as codes, by one pass.

    Args:
        x: ``(..., N)``; float32, bfloat16 or float16.
        dtype: of the codes.
        scale: as :func:`check_out_scale` accepts it.
        activation: also ``"swiglu"``; the codes are then ``(..., N / 2)``.
        residual: of the shape of the codes and the dtype of ``x``.
        of_product: the options of the product, for autocast.

    Returns:
        Codes; and scales, if ``scale`` is a recipe.
    """
    lead = x.shape[:-1]
    rows = math.prod(lead)
    options: dict[str, Any] = {"dtype": dtype}
    if activation is not None:
        options["activation"] = activation
    if residual is not None:
        if not isinstance(residual, Tensor):
            raise _errors.not_a_tensor(residual=residual)
        shape = *lead, x.shape[-1] // 2 if activation == SWIGLU else x.shape[-1]
        if not same(residual.shape, shape):
            raise ValueError(f"fastgemm: residual has shape {tuple(residual.shape)}, expected {tuple(shape)}")
        options["residual"] = as_result(residual, x, of_product or {}).reshape(rows, shape[-1])
    one = isinstance(scale, Tensor)
    codes, scales = ops.quantize_fp8(
        x.reshape(rows, x.shape[-1]),
        scale.reshape(1, 1) if one else None,
        block_rows=0 if one else 1,
        block_cols=0 if one else OUT_RECIPES[scale],
        **options,
    )
    codes = codes.reshape(*lead, codes.shape[-1])
    return codes if one else (codes, scales.reshape(*lead, scales.shape[-1]))
