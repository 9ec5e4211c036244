"""What this machine could do at best, measured."""

from __future__ import annotations

import torch

from .. import _introspect
from .problems import dtype_name


def fma_peak(dtype: torch.dtype, threads: int) -> float | None:
    """GFLOPS of independent multiply-adds on registers; None where there is no probe for the dtype.

    float16 is computed in float32 on a CPU, so its peak is that of float32.
    """
    return _introspect.measure_peak(dtype_name(dtype), threads, 0.2) / 1e9 or None
