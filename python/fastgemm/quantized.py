"""Weights of 4 and 8 bits."""

from __future__ import annotations

import torch

from ._ops.dispatch import compiled_overrides
from ._quantized import functions
from ._quantized.quantize import quantize_weight
from ._quantized.weight import QuantizedWeight, rebuild

__all__ = ["QuantizedWeight", "quantize_weight"]


def __dir__() -> list[str]:
    return __all__


for _public in (QuantizedWeight, quantize_weight, rebuild):
    _public.__module__ = __name__  # the module in which pickles find them
torch.serialization.add_safe_globals([QuantizedWeight, rebuild])
compiled_overrides.append((QuantizedWeight, functions.call))
