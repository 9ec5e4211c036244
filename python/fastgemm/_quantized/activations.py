"""Products whose rows of x are rounded to 8 bits on each call, and multiplied as codes, by the op of
:func:`fastgemm.scaled_mm`."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from .._fp8.product import multiply
from .._fp8.quantize import quantized
from .._fp8.recipes import RECIPES
from .._ops.dispatch import choice_of
from .._typing import Activation
from ..table import invariant_choice
from .base import Packed
from .formats import Packing
from .gradient import operands

Activations = Literal["tensor", "row", "1x128"]
ACTIVATIONS = ("tensor", "row", "1x128")


def weight_recipe(packing: Packing) -> str | None:
    """The recipe of :func:`fastgemm.scaled_mm` that a weight's scales have; None if it is none of them."""
    n, k = packing.group_n, packing.group_k
    if packing.by_rows and (n == 1 or n >= packing.n > 0):
        return "row" if n == 1 else "tensor"
    return "128x128" if (n, k) == (128, 128) else None


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
    if packing.scale != "f32" or global_scale is not None or weight_recipe(packing) is None:
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
    level: int | None,
    kernel: str | None,
    out_dtype: torch.dtype | None,
    invariant: bool,
) -> Tensor:
    """``activation(round(x) @ q.T + bias) + residual`` of a matrix x."""
    recipe = q._activations
    assert recipe is not None
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, bias, residual)):
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
    codes, scales = quantized(x, RECIPES[recipe], torch.float8_e4m3fn, e8m0=False)
    of_weight, scales_of_weight = weight_recipe(q._packing), q._scales
    assert of_weight is not None and scales_of_weight is not None
    if q._packing.k == 0:  # a row without columns has no scale here, and one in scaled_mm
        scales_of_weight = scales_of_weight.new_zeros(RECIPES[of_weight].grid(q._packing.n, 0))
    operands_of_op = codes, q._codes.mT, scales, scales_of_weight.mT, bias, residual
    return multiply(*operands_of_op, (recipe, of_weight), options)
