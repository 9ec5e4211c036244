"""Products that round the rows of x to 8 bits on each call and multiply codes by codes. They use the ops of
:func:`fastgemm.quantize_fp8` and :func:`fastgemm.scaled_mm`."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from .. import _errors
from .._fp8.recipes import RECIPES, Blocks, as_arguments
from .._ops.dispatch import choice_of, ops
from .._typing import Activation
from ..table import invariant_choice
from .base import Packed
from .formats import Packing
from .gradient import operands

Activations = Literal["tensor", "row", "1x128"]
Choice = tuple[int | None, str | None, torch.dtype | None, bool]  # level, kernel, out_dtype, invariant
ACTIVATIONS = ("tensor", "row", "1x128")


def weight_blocks(packing: Packing) -> Blocks | None:
    """The blocks of a weight's scales; None if :func:`fastgemm.scaled_mm` has no such recipe."""
    n, k = packing.group_n, packing.group_k
    if packing.by_rows and (n == 1 or n >= packing.n > 0):
        return RECIPES["row" if n == 1 else "tensor"]
    return RECIPES["128x128"] if (n, k) == (128, 128) else None


def check_recipe(activations: object, format: str) -> None:
    """Raises ValueError unless inputs are rounded by this recipe (None: not at all) for weights of a format."""
    if activations is None:
        return
    if activations not in ACTIVATIONS:
        raise ValueError(
            f"fastgemm: unknown activations {activations!r}; accepted: {', '.join(map(repr, ACTIVATIONS))} or None"
        )
    if format != "fp8":
        raise ValueError(
            f"fastgemm: activations={activations!r} is for weights of the format 'fp8', got {format!r}"
        )


def check_weight(activations: object, format: str, packing: Packing, global_scale: object) -> None:
    """Raises ValueError unless products take a weight with inputs that are rounded by this recipe."""
    check_recipe(activations, format)
    if activations is None:
        return
    if packing.scale != "f32" or global_scale is not None or weight_blocks(packing) is None:
        n, k = packing.group_n, packing.group_k
        raise ValueError(
            f"fastgemm: activations={activations!r} is for weights with float32 scales of the whole, of rows or "
            f"of blocks of 128x128, and no global scale; got {packing.scale} scales of blocks of {n}x{k}"
            f"{', and a global scale' if global_scale is not None else ''}"
        )


def linear(
    x: Tensor,
    q: Packed,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: Activation | None,
    choice: Choice,
) -> Tensor:
    """``activation(round(x) @ q.T + bias) + residual`` of a matrix x."""
    recipe, (level, kernel, out_dtype, invariant) = q._activations, choice
    assert recipe is not None
    if _errors.wants_derivative(x, bias, residual):
        raise RuntimeError(
            f"fastgemm: a weight with activations={recipe!r} rounds its inputs, and has no gradient; call it "
            "under torch.no_grad() or torch.inference_mode()"
        )
    if invariant:
        level, kernel = None, invariant_choice(level, kernel, None, "fastgemm")
    if recipe == "tensor" and kernel == "invariant":
        raise ValueError(
            "fastgemm: activations='tensor' has one scale for all rows, so that no row is independent of the "
            "others; invariant=True takes 'row' and '1x128'"
        )
    options: dict[str, Any] = {**choice_of(level, kernel)}
    if activation is not None:
        options["activation"] = activation
    weight = q._codes, q._scales, None, None
    x, *_, bias, residual = operands(x, *weight, bias, residual, options={"out_dtype": out_dtype})
    options["out_dtype"] = out_dtype or x.dtype
    of_x, of_weight, scales_of_weight = RECIPES[recipe], weight_blocks(q._packing), q._scales
    assert of_weight is not None and scales_of_weight is not None
    if q._packing.k == 0:  # a row without columns has no scale here, and one in scaled_mm
        scales_of_weight = scales_of_weight.new_zeros(of_weight.grid(q._packing.n, 0))
    codes, scales = ops.quantize_fp8(x, block_rows=of_x.lines, block_cols=of_x.along_k, dtype=q._codes.dtype)
    return ops.scaled_mm(
        *(codes, q._codes.mT, scales, scales_of_weight.mT, bias, residual),
        **as_arguments(of_x, of_weight),
        **options,
    )
