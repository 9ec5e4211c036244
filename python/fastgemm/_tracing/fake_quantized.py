"""The fake kernel of products with packed weights. The checks are those of csrc/torch/quantized_linear.cpp."""

from __future__ import annotations

import torch
from torch import Tensor

from .._ops.linear import ACTIVATIONS
from .._quantized import layout
from .._quantized.formats import CODES, Packing
from .._quantized.gradient import LAYER
from ..table import check_choice
from .fake import _check_devices, _check_tensors, _register, _require, _result_dtype, check_terms

INPUTS = (torch.float32, torch.bfloat16, torch.float16)


def _check_weight(packing: Packing, codes: Tensor, scales: Tensor | None, zeros: Tensor | None) -> None:
    """Whether the tensors have the shapes and types that the packing says."""
    for name, x, like in zip(
        ("codes", "scales", "zeros"), (codes, scales, zeros), layout.shapes(packing), strict=True
    ):
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
    codes: Tensor,
    scales: Tensor | None,
    zeros: Tensor | None,
    global_scale: Tensor | None,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    n: int,
    code: str,
    scale: str,
    zero: str,
    units: bool,
    group_n: int,
    group_k: int,
    activation: str | None = None,
    level: int | None = None,
    impl: str | None = None,
    invariant: bool = False,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    _check_tensors(input, codes, scales, zeros, global_scale, bias, residual)
    _check_devices(input, codes, scales, zeros, global_scale, bias, residual)
    _require(input.dim() == 2, lambda: f"input must have 2 dimensions, got shape {tuple(input.shape)}")
    _require(
        input.dtype in INPUTS, lambda: f"input has dtype {input.dtype}, which packed weights do not multiply"
    )
    _require(code in CODES, lambda: f"unknown code {code!r}")
    _require(
        activation is None or activation in ACTIVATIONS,
        lambda: f"unknown activation {activation!r}; accepted: {', '.join(ACTIVATIONS)} or None",
    )
    packing = Packing(n, input.shape[1], code, scale, zero, group_n, group_k, units)  # type: ignore[arg-type]
    _check_weight(packing, codes, scales, zeros)
    _require(
        not invariant or (level is None and impl is None),
        lambda: "invariant=True chooses the kernel; it takes no level and no kernel",
    )
    check_choice("gemm", input.device, input.dtype, level, impl, code=code)
    result = input.new_empty((input.shape[0], n), dtype=_result_dtype(input.dtype, out_dtype))
    check_terms(input, result, bias, residual)
    return result


def dequantize(
    codes: Tensor,
    scales: Tensor | None,
    zeros: Tensor | None,
    global_scale: Tensor | None,
    *,
    n: int,
    k: int,
    code: str,
    scale: str,
    zero: str,
    units: bool,
    group_n: int,
    group_k: int,
    dtype: torch.dtype | None = None,
) -> Tensor:
    _check_devices(codes, scales, zeros, global_scale)
    dtype = dtype or torch.float32
    _require(dtype in INPUTS, lambda: f"a packed weight does not become {dtype}")
    _require(code in CODES, lambda: f"unknown code {code!r}")
    packing = Packing(n, k, code, scale, zero, group_n, group_k, units)  # type: ignore[arg-type]
    _check_weight(packing, codes, scales, zeros)
    return codes.new_empty((n, k), dtype=dtype)


def register() -> None:
    _register("_dequantize", dequantize)
    for name in LAYER.names:
        _register(name, quantized_linear)
