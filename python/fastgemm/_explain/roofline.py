"""Arithmetic and bytes against a GPU's limits (Williams, Waterman, Patterson: Roofline, CACM 2009).

Bytes are counted twice. Compulsory bytes are the distinct bytes of the operands and the result that were accessed:
every kernel must move them over the memory bus. Moved bytes are all sectors of all requests: without caches, all
of them would cross the bus. The actual bytes lie between the two and depend on the caches, which are not
simulated. Shared memory is a third roof: a multiprocessor serves one wavefront a cycle, and the counters say how
many the source needs (nvcc may combine accesses, which raises this roof). Nothing here predicts a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .._gpus import GPU, computed_in
from .counts import Launch, add_up

# Operand types in the names of matrix instructions, and how a GPU's rates call them.
_TENSOR_TYPES = {
    "f64": "float64",
    "tf32": "tf32",
    "f16": "float16",
    "bf16": "bfloat16",
    "s8": "int8",
    "u8": "int8",
}
_OPERANDS = {
    "a",
    "b",
    "c",
    "out",
    "codes",
    "scales",
    "zeros",
}  # the caller's buffers; a workspace is the kernel's own


ARITHMETIC, MEMORY, SHARED = "arithmetic", "memory", "shared memory"


@dataclass(frozen=True)
class Roofline:
    """The limits of a kernel's rate. The rate is operations per second for a product, and useful bytes per
    second for an operation that only moves data.

    Attributes:
        work: operations (2 M N K), or bytes that must move.
        peak: rate of the arithmetic units that the kernel uses, at the product's own operations; None without any.
        unit: which units those are.
        executed: operations of the matrix instructions divided by ``work``: above 1 if several narrow products
            replace a wide one, or tiles extend beyond an edge; None without matrix instructions.
        bandwidth: of memory, bytes a second, by the data sheet.
        measured_peak, measured_bandwidth: the rates reached on this GPU; None where they were not measured.
        bytes_compulsory, bytes_moved: see above.
        wavefronts: those of shared memory in the source; a multiprocessor serves one a cycle.
        shared_rate: the limit that follows for the rate; None without wavefronts.
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
    wavefronts: int
    shared_rate: float | None

    @property
    def intensity(self) -> float | None:
        """Operations for each compulsory byte; None for what only moves data."""
        return self.work / self.bytes_compulsory if self.peak and self.bytes_compulsory else None

    @property
    def intensity_moved(self) -> float | None:
        """Operations for each byte that the requests move."""
        return self.work / self.bytes_moved if self.peak and self.bytes_moved else None

    @property
    def memory_rate(self) -> float | None:
        """The bound by memory if each byte is moved once."""
        return self.bandwidth * self.work / self.bytes_compulsory if self.bytes_compulsory else None

    @property
    def uncached_rate(self) -> float | None:
        """The bound by memory without any cache: every request moves its bytes."""
        return self.bandwidth * self.work / self.bytes_moved if self.bytes_moved else None

    @property
    def limits(self) -> dict[str, float]:
        """Upper limits of the kernel's rate, given its source, for any caches."""
        found = {ARITHMETIC: self.peak, MEMORY: self.memory_rate, SHARED: self.shared_rate}
        return {name: rate for name, rate in found.items() if rate is not None}

    @property
    def bound(self) -> str:
        """Which limit is the lowest."""
        limits = self.limits
        return min(limits, key=limits.__getitem__, default="")

    @property
    def attainable(self) -> float | None:
        return min(self.limits.values(), default=None)


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
    """The peak in the product's own operations, the units, and executed operations divided by needed ones."""
    matrix = [site for launch in launches for site in launch.sites if site.kind == "mma" and site.flops]
    if not matrix:
        unit = "int8 products by __dp4a" if dtype == "int8" else f"{computed_in(dtype)} multiply-adds"
        return gpu.peak(dtype), unit, None
    units = {site.instruction: _tensor_peak(gpu, site.instruction) for site in matrix}
    busy = sum(site.flops / units[site.instruction][1] for site in matrix)
    names = " and ".join(dict.fromkeys(name for name, _ in units.values()))
    return work / busy, names, sum(site.flops for site in matrix) / work


def compulsory_bytes(launches: Iterable[Launch]) -> int:
    """Distinct bytes of the caller's buffers that were accessed; scaled to their size if blocks were sampled."""
    touched: dict[str, int] = {}
    for launch in launches:
        scale = launch.blocks / launch.blocks_counted if launch.blocks_counted else 0
        for buffer in launch.buffers:
            if _OPERANDS & set(buffer.name.split(", ")):
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
        measured_peak=gpu.measured.get(computed_in(dtype)) if peak and executed is None else None,
        measured_bandwidth=gpu.measured.get("bandwidth"),
        bytes_compulsory=compulsory_bytes(launches),
        bytes_moved=totals.bytes_moved,
        wavefronts=totals.wavefronts,
        shared_rate=shared,
    )
