"""Upper limits of the device's rates."""

from __future__ import annotations

import torch

from .. import _introspect
from .._gpus import find_gpu
from .problems import Problem, dtype_name

# Multiply-adds of a Hopper multiprocessor in a cycle, without its tensor cores. 16-bit types are computed in
# float32; dp4a does four int8 products at once; an int64 product is three of 32 bits, one of them twice as wide.
HOPPER_MULTIPLY_ADDS = {
    torch.float64: 64,
    torch.float32: 128,
    torch.float16: 128,
    torch.bfloat16: 128,
    torch.int32: 64,
    torch.int64: 16,
    torch.int8: 256,
}


def fma_peak(dtype: torch.dtype, threads: int) -> float | None:
    """Operations a second of independent multiply-adds on a CPU's registers, measured; None without a probe.

    float16 is computed in float32 on a CPU, so its peak is that of float32.
    """
    return _introspect.measure_peak(dtype_name(dtype), threads, 0.2) or None


def gpu_fma_peak(dtype: torch.dtype, sm_clock_mhz: float | None) -> float | None:
    """Operations a second of the GPU's multiply-add units, at the highest clock if none was read; None if the
    units are unknown."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    if properties.major != 9:
        return None
    clock = _introspect.gpu_properties()["clock"] if sm_clock_mhz is None else sm_clock_mhz * 1e6
    cycles = properties.multi_processor_count * clock
    return 2 * HOPPER_MULTIPLY_ADDS[dtype] * cycles


def gpu_tensor_peak(problem: Problem) -> float | None:
    """Operations a second of the tensor cores by the GPU's data sheet; None if no known tensor core computes the
    product in this precision: for float32 and int32 the multiply-add units are the limit."""
    kind = problem.precision if problem.precision == "tf32" else dtype_name(problem.dtype)
    try:
        return find_gpu(torch.cuda.get_device_name()).tensor_peaks.get(kind)
    except ValueError:
        return None
