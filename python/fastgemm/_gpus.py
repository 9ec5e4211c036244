"""GPUs for which a report can be made: the resources of a multiprocessor, and the limits of a kernel's rate.

The resources of a multiprocessor depend only on the compute capability: CUDA C++ Programming Guide, "Compute
Capabilities", table "Technical Specifications per Compute Capability". Multiprocessors, rates and bandwidth
are those of NVIDIA's data sheets ("NVIDIA A100 Tensor Core GPU", "NVIDIA H100 Tensor Core GPU", "NVIDIA H200
Tensor Core GPU", all SXM; "NVIDIA L40S") and of the white paper "NVIDIA Ada GPU Architecture" (GeForce RTX
4090), without sparsity; the other rates follow from the results per cycle and multiprocessor in the guide's
table "Throughput of Native Arithmetic Instructions" at the boost clock.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

WARP = 32
SECTOR = 32  # bytes; the unit in which caches and memory move data
BANKS, BANK_BYTES = 32, 4  # of shared memory: a wavefront moves one word of each bank


@dataclass(frozen=True)
class Multiprocessor:
    """The resources and rates of one multiprocessor of a compute capability."""

    max_threads: int
    max_blocks: int
    shared_bytes: int  # of all blocks together, with the 1 KB that the system adds to each block
    shared_bytes_per_block: int
    # Multiply-adds without tensor cores. int8: __dp4a, four at once. int64: three of 32 bits, one twice as wide.
    results_per_cycle: Mapping[str, int]
    registers: int = 64 * 1024  # a block may use all of them


_8_0 = Multiprocessor(
    2048, 32, 164 << 10, 163 << 10, {"float64": 32, "float32": 64, "int32": 64, "int64": 16, "int8": 256}
)
_8_9 = Multiprocessor(
    1536, 24, 100 << 10, 99 << 10, {"float64": 2, "float32": 128, "int32": 64, "int64": 16, "int8": 256}
)
HOPPER = Multiprocessor(
    2048, 32, 228 << 10, 227 << 10, {"float64": 64, "float32": 128, "int32": 64, "int64": 16, "int8": 256}
)


# The type in which ordinary units compute; int16 is widened to the int64 of its products.
_COMPUTED_IN = {
    "float16": "float32",
    "bfloat16": "float32",
    "uint8": "int32",
    "bool": "int32",
    "int16": "int64",
}


def computed_in(dtype: str) -> str:
    return _COMPUTED_IN.get(dtype, dtype)


@dataclass(frozen=True)
class GPU:
    """A GPU by name.

    Attributes:
        bandwidth: bytes a second between the GPU and its memory, by the data sheet.
        tensor_peaks: operations a second of the tensor cores, by operand type.
        measured: measured rates, where there are any: "bandwidth" by a copy, a type by multiply-adds from
            registers.
    """

    name: str
    capability: str
    multiprocessors: int
    clock_hz: float
    holds: Multiprocessor
    bandwidth: float
    tensor_peaks: Mapping[str, float]
    measured: Mapping[str, float] = field(default_factory=dict)

    def peak(self, dtype: str) -> float:
        """Operations a second of the ordinary units."""
        return 2 * self.holds.results_per_cycle[computed_in(dtype)] * self.multiprocessors * self.clock_hz

    @property
    def shared_wavefronts(self) -> float:
        """Wavefronts of shared memory a second: one a cycle and multiprocessor."""
        return self.multiprocessors * self.clock_hz


_TERA, _GIGA = 1e12, 1e9


def _tensor(*, tf32: float, half: float, int8: float, float64: float | None = None) -> dict[str, float]:
    """Tensor peaks from 10^12 operations a second; ``half``: of both 16-bit types, with float32 sums."""
    of = {"float64": float64, "tf32": tf32, "float16": half, "bfloat16": half, "int8": int8}
    return {dtype: tera * _TERA for dtype, tera in of.items() if tera is not None}


_HOPPER_TENSOR = _tensor(float64=67, tf32=494.7, half=989.4, int8=1978.9)
_A100_TENSOR = _tensor(float64=19.5, tf32=156, half=312, int8=624)
_L40S_TENSOR = _tensor(tf32=183, half=362.05, int8=733)
_4090_TENSOR = _tensor(tf32=82.6, half=165.2, int8=660.6)
# Reached on an H200 (driver 580, CUDA 13.0): a copy of 16384 x 16384 float32, and multiply-adds from registers.
_H200_MEASURED = {"bandwidth": 4257 * _GIGA, "float32": 64.4 * _TERA}

GPUS = {
    gpu.name: gpu
    for gpu in (
        GPU("A100", "8.0", 108, 1.410e9, _8_0, 2039 * _GIGA, _A100_TENSOR),
        GPU("H100", "9.0", 132, 1.980e9, HOPPER, 3350 * _GIGA, _HOPPER_TENSOR),
        GPU("H200", "9.0", 132, 1.980e9, HOPPER, 4800 * _GIGA, _HOPPER_TENSOR, _H200_MEASURED),
        GPU("L40S", "8.9", 142, 2.520e9, _8_9, 864 * _GIGA, _L40S_TENSOR),
        GPU("RTX 4090", "8.9", 128, 2.520e9, _8_9, 1008 * _GIGA, _4090_TENSOR),
    )
}

# The drivers' names of these GPUs; other versions of the same chip (PCIe, NVL) have other rates.
_DRIVER_NAMES = {
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA A100-SXM4-80GB": "A100",
}


def _folded(name: str) -> str:
    return name.upper().replace(" ", "").replace("-", "").removeprefix("NVIDIA").removeprefix("GEFORCE")


def find_gpu(name: str, by: str = "fastgemm") -> GPU:
    """The GPU of a name, in any case, with or without spaces. Raises ValueError, which lists the known names and
    begins with the calling function."""
    by_name = {_folded(known): gpu for known, gpu in GPUS.items()}
    if isinstance(name, str):
        name = _DRIVER_NAMES.get(name, name)
        for found in (_folded(name), "RTX" + _folded(name)):
            if found in by_name:
                return by_name[found]
        close = difflib.get_close_matches(_folded(name), by_name, n=1)
        hint = f"; did you mean {by_name[close[0]].name!r}" if close else ""
    else:
        hint = ""
    raise ValueError(f"{by}: unknown gpu {name!r}{hint}; known: {', '.join(GPUS)}")
