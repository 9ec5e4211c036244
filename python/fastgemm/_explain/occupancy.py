"""How many blocks of a kernel a multiprocessor holds at once, and which resource limits their number.

The rules are those of NVIDIA's occupancy calculation (cuda_occupancy.h of the CUDA toolkit), for compute
capability 8.0 to 9.0 and a launch that may use all of shared memory:

- threads are allocated in warps of 32; registers are allocated for each warp in units of 256, in one of four
  partitions of the register file;
- shared memory is allocated in units of 128 bytes, and the system adds 1024 bytes to each block.

Named barriers are left out: a multiprocessor has two for each block that it can hold, and no kernel here is
limited by them.
"""

from __future__ import annotations

from dataclasses import dataclass

from .._gpus import GPU, WARP

REGISTER_UNIT = 256  # of a warp's registers
MAX_REGISTERS = 255  # of a thread
PARTITIONS = 4  # of a multiprocessor's register file
SHARED_UNIT, SHARED_RESERVED = 128, 1024  # bytes
MAX_BLOCK = 1024  # threads


@dataclass(frozen=True)
class Occupancy:
    """The blocks of a kernel that fit a multiprocessor of ``gpu``.

    Attributes:
        registers: of a thread; None if the kernel was never compiled for a GPU; then they limit nothing.
        limits: the blocks of a multiprocessor that each resource allows.
        blocks: the smallest limit; 0 if the kernel cannot be launched.
        limiters: the resources with this smallest limit.
        share: resident warps divided by the largest number that a multiprocessor can hold.
    """

    gpu: str
    threads: int
    registers: int | None
    shared_bytes: int
    limits: dict[str, int]
    blocks: int
    limiters: tuple[str, ...]
    warps: int
    share: float


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _by_registers(gpu: GPU, registers: int, warps: int) -> int:
    if registers > MAX_REGISTERS:
        return 0
    unit = _round_up(registers * WARP, REGISTER_UNIT)  # of a warp
    return gpu.holds.registers // PARTITIONS // unit * PARTITIONS // warps


def _by_shared_memory(gpu: GPU, shared_bytes: int) -> int:
    block = _round_up(shared_bytes + SHARED_RESERVED, SHARED_UNIT)
    if block > gpu.holds.shared_bytes_per_block + SHARED_RESERVED:
        return 0
    return gpu.holds.shared_bytes // block


def occupancy(gpu: GPU, *, threads: int, registers: int | None, shared_bytes: int) -> Occupancy:
    """The occupancy of blocks of ``threads`` threads that use ``registers`` each and ``shared_bytes`` together."""
    warps = -(-threads // WARP)
    limits = {
        "threads": gpu.holds.max_threads // WARP // warps if threads <= MAX_BLOCK else 0,
        "shared memory": _by_shared_memory(gpu, shared_bytes),
        "blocks": gpu.holds.max_blocks,
    }
    if registers is not None:
        limits["registers"] = _by_registers(gpu, registers, warps)
    blocks = min(limits.values())
    limiters = tuple(sorted(name for name, limit in limits.items() if limit == blocks))
    share = blocks * warps * WARP / gpu.holds.max_threads
    return Occupancy(
        gpu.name, threads, registers, shared_bytes, limits, blocks, limiters, blocks * warps, share
    )
