"""Arithmetic and bytes against a GPU's limits (Williams, Waterman, Patterson: Roofline, CACM 2009).

Bytes are counted twice. The compulsory ones are the distinct bytes of the operands and the result that were
touched: what must cross the memory bus whatever the kernel does. The moved ones are all sectors of all requests:
what would cross it if no request found its data in a cache. Where a kernel ends up between the two is up to the
caches, which are not simulated; nothing here predicts a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .gpus import GPU
from .report import Launch, add_up

# Operand types in the names of matrix instructions, and how a GPU's rates call them.
_TENSOR_TYPES = {
    "f64": "float64",
    "tf32": "tf32",
    "f16": "float16",
    "bf16": "bfloat16",
    "s8": "int8",
    "u8": "int8",
}
_RESULTS = ("a", "b", "c", "out", "in")  # buffers that are the caller's; a workspace is the kernel's own


@dataclass(frozen=True)
class Roofline:
    """Rates in operations a second for a product, in useful bytes a second for what only moves data.

    Attributes:
        work: operations (2 M N K), or bytes that must move.
        peak: rate of the arithmetic units that the kernel uses, at the product's own operations; None without any.
        unit: which units those are.
        executed: operations that the matrix instructions carry out, over ``work``: above 1 where several narrow
            products make one wide one, or tiles reach over the edge; None without matrix instructions.
        bandwidth: of memory, bytes a second, by the data sheet.
        measured_peak, measured_bandwidth: what was reached on this GPU; None where nobody measured.
        bytes_compulsory, bytes_moved: see above.
        shared_rate: rate at which shared memory delivers what the source asks of it; None where it asks nothing.
    """

    gpu: str
    work: int
    peak: float | None
    unit: str
    executed: float | None
    bandwidth: float
    measured_peak: float | None
    measured_bandwidth: float | None
    bytes_compulsory: int
    bytes_moved: int
    shared_rate: float | None

    def intensity(self, moved: bool) -> float | None:
        """Operations a byte; None for what only moves data."""
        amount = self.bytes_moved if moved else self.bytes_compulsory
        return self.work / amount if self.peak and amount else None

    def memory_rate(self, moved: bool) -> float | None:
        """What memory allows."""
        amount = self.bytes_moved if moved else self.bytes_compulsory
        return self.bandwidth * self.work / amount if amount else None

    def attainable(self, moved: bool) -> float | None:
        """The lower of what memory and arithmetic allow."""
        memory = self.memory_rate(moved)
        return self.peak if memory is None else min(memory, self.peak or memory)

    def bound(self, moved: bool) -> str:
        """Which of the two is lower."""
        memory = self.memory_rate(moved)
        return "arithmetic" if self.peak and (memory is None or self.peak <= memory) else "memory"


def _tensor_peak(gpu: GPU, instruction: str) -> tuple[str, float]:
    kinds = [_TENSOR_TYPES[part] for part in instruction.split(".") if part in _TENSOR_TYPES]
    if not kinds:
        raise ValueError(f"fastgemm: the matrix instruction {instruction!r} names no operand type")
    kind = kinds[-1]  # d, c, a, b: the operands come last
    if kind in gpu.tensor_peaks:
        return f"{kind} tensor cores", gpu.tensor_peaks[kind]
    return f"{kind} multiply-add units", gpu.peak(kind)


def _arithmetic(
    gpu: GPU, launches: Iterable[Launch], work: int, dtype: str
) -> tuple[float, str, float | None]:
    """Peak at the product's own operations, the units, and operations executed over needed."""
    matrix = [site for launch in launches for site in launch.sites if site.kind == "mma" and site.flops]
    if not matrix:
        unit = "int8 products by __dp4a" if dtype == "int8" else f"{gpu_unit(dtype)} multiply-adds"
        return gpu.peak(dtype), unit, None
    units = {site.instruction: _tensor_peak(gpu, site.instruction) for site in matrix}
    busy = sum(site.flops / units[site.instruction][1] for site in matrix)
    names = " and ".join(dict.fromkeys(name for name, _ in units.values()))
    return work / busy, names, sum(site.flops for site in matrix) / work


def gpu_unit(dtype: str) -> str:
    """What ordinary units compute a type in."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def compulsory_bytes(launches: Iterable[Launch]) -> int:
    """Distinct bytes of the caller's buffers that were touched; of a sampled grid, scaled up to their size."""
    touched: dict[str, int] = {}
    for launch in launches:
        scale = launch.blocks / launch.blocks_counted if launch.blocks_counted else 0
        for buffer in launch.buffers:
            if set(buffer.name.split(", ")) & set(_RESULTS):
                estimate = min(buffer.bytes, round(buffer.bytes_touched * scale))
                touched[buffer.name] = max(touched.get(buffer.name, 0), estimate)
    return sum(touched.values())


def roofline(gpu: GPU, launches: tuple[Launch, ...], *, op: str, dtype: str, work: int) -> Roofline:
    """``work``: operations of a product; bytes that must move of a transpose or an addition."""
    totals = add_up(launches)
    peak, unit, executed = (None, "", None)
    if op == "gemm" and work:
        peak, unit, executed = _arithmetic(gpu, launches, work, dtype)
    shared = gpu.shared_wavefronts * work / totals.wavefronts if totals.wavefronts else None
    return Roofline(
        gpu=gpu.name,
        work=work,
        peak=peak,
        unit=unit,
        executed=executed,
        bandwidth=gpu.bandwidth,
        measured_peak=gpu.measured.get(gpu_unit(dtype)) if peak and executed is None else None,
        measured_bandwidth=gpu.measured.get("bandwidth"),
        bytes_compulsory=compulsory_bytes(launches),
        bytes_moved=totals.bytes_moved,
        shared_rate=shared,
    )
