"""What this machine could do at best, measured."""

from __future__ import annotations

import torch

from .. import _introspect
from .problems import dtype_name


def fma_peak(dtype: torch.dtype, threads: int) -> float | None:
    """GFLOPS of independent multiply-adds on registers; None where this build has no probe for the dtype.

    float16 is computed in float32 on a CPU without fp16 arithmetic, so its peak is that of float32.
    """
    probe = getattr(_introspect, "measure_fma_peak", None)
    if probe is None:
        return None
    try:
        return max(probe(dtype_name(dtype), threads) for _ in range(3)) or None
    except ValueError:
        return None
