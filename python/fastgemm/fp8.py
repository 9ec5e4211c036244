"""Matrices of 8-bit floating-point numbers."""

from __future__ import annotations

from ._fp8.grouped import scaled_grouped_mm
from ._fp8.product import scaled_mm
from ._fp8.quantize import quantize_fp8

__all__ = ["quantize_fp8", "scaled_grouped_mm", "scaled_mm"]


def __dir__() -> list[str]:
    return __all__


for _function in (quantize_fp8, scaled_grouped_mm, scaled_mm):
    _function.__module__ = __name__  # the module in which pickles and graphs of torch.fx find them
