"""The fake kernel of products with packed weights. The checks are those of csrc/torch/quantized_linear.cpp."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._quantized import layout
from .._quantized.formats import CODES, Packing
from .._quantized.gradient import LAYER
from ..table import check_choice
from .fake import (
    _check_devices,
    _check_tensors,
    _register,
    _require,
    _result_dtype,
    check_activation,
    check_invariant,
    check_terms,
)

INPUTS = (torch.float32, torch.bfloat16, torch.float16)


def _check_weight(tensors: tuple[Tensor | None, ...], k: int, packing: dict[str, Any]) -> None:
    """Whether the tensors have the shapes and types that the arguments of the packing say."""
    _require(packing["code"] in CODES, lambda: f"unknown code {packing['code']!r}")
    likes = layout.shapes(Packing(k=k, **packing))
    for name, x, like in zip(("codes", "scales", "zeros"), tensors, likes, strict=True):
        if like is None:
            continue
        shape, dtype = like
        _require(x is not None, lambda name=name: f"{name} are missing")
        assert x is not None
        _require(
            x.dtype == dtype and x.shape == shape,
            lambda name=name, x=x, like=like: (
                f"{name} must be {like[1]} of shape {like[0]}, got {x.dtype} of {tuple(x.shape)}"
            ),
        )


def quantized_linear(
    input: Tensor,
    *tensors: Tensor | None,
    activation: str | None = None,
    level: int | None = None,
    impl: str | None = None,
    invariant: bool = False,
    out_dtype: torch.dtype | None = None,
    **packing: Any,
) -> Tensor:
    """``tensors``: codes, scales, zero points, global scale, bias and residual; the last two may be missing."""
    *weight, _, bias, residual = (*tensors, None, None)[:6]
    _check_tensors(input, *tensors)
    _check_devices(input, *tensors)
    _require(input.dim() == 2, lambda: f"input must have 2 dimensions, got shape {tuple(input.shape)}")
    _require(
        input.dtype in INPUTS, lambda: f"input has dtype {input.dtype}, which packed weights do not multiply"
    )
    check_activation(activation)
    _check_weight(tuple(weight), input.shape[1], packing)
    check_invariant(invariant, level, impl)
    check_choice("gemm", input.device, input.dtype, level, impl, code=packing["code"])
    result = input.new_empty((input.shape[0], packing["n"]), dtype=_result_dtype(input.dtype, out_dtype))
    check_terms(input, result, bias, residual)
    return result


def dequantize(
    codes: Tensor, *others: Tensor | None, k: int, dtype: torch.dtype | None = None, **packing: Any
) -> Tensor:
    """``others``: scales, zero points, global scale."""
    _check_devices(codes, *others)
    dtype = dtype or torch.float32
    _require(dtype in INPUTS, lambda: f"a packed weight does not become {dtype}")
    _check_weight((codes, *others[:2]), k, packing)
    return codes.new_empty((packing["n"], k), dtype=dtype)


def register() -> None:
    _register("_dequantize", dequantize)
    for name in LAYER.names:
        _register(name, quantized_linear)
