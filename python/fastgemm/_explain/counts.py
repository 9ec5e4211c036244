"""The simulator's counts, by source line and by launch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .._gpus import BANK_BYTES, BANKS, SECTOR
from .occupancy import Occupancy
from .symbols import Frame


@dataclass(frozen=True)
class Site:
    """A source line's accesses of one kind and width to one buffer.

    Counts are of warp-wide requests of the whole grid: one load, store or matrix instruction of up to 32 lanes.

    Attributes:
        file, line, function: the innermost line outside csrc/cuda/device.
        frames: that line, and those that the calls to it were inlined into.
        callers: if the line belongs to a helper, file and line of the kernel's calls of it.
        space: "global", "shared", or "none" for arithmetic of a matrix unit.
        kind: "load", "store", "cp.async", "tma load", "ldmatrix", "mma" and so on.
        instruction: which matrix instruction.
        buffer: the argument or shared variable that is accessed.
        bytes: moved by one lane.
        lanes: active ones, over all requests.
        sectors: those of 32 bytes in global memory that the requests access.
        wavefronts, ideal_wavefronts: passes over the banks of shared memory, and their smallest possible number.
        bytes_used: distinct bytes that the lanes requested.
        example: the offset in the buffer for each lane of the most expensive request; None for an inactive lane.
    """

    frames: tuple[Frame, ...]
    callers: tuple[tuple[str, int], ...]
    space: str
    kind: str
    instruction: str
    buffer: str
    bytes: int
    requests: int
    lanes: int
    sectors: int
    wavefronts: int
    ideal_wavefronts: int
    bytes_used: int
    flops: int
    example: tuple[int | None, ...]

    @property
    def file(self) -> str:
        return self.frames[0].file

    @property
    def line(self) -> int:
        return self.frames[0].line

    @property
    def function(self) -> str:
        return self.frames[0].function

    @property
    def what(self) -> str:
        """The access in a few words: ``load a, 16 B``."""
        if self.kind == "mma":
            return self.instruction or self.kind
        return f"{self.kind} {self.buffer.removesuffix(' shared memory')}, {self.bytes} B"

    @property
    def lanes_per_request(self) -> float:
        return self.lanes / self.requests

    @property
    def sectors_per_request(self) -> float | None:
        """Sectors of global memory; None for other memory. A warp that reads 32 neighbouring floats accesses 4."""
        return self.sectors / self.requests if self.space == "global" else None

    @property
    def bytes_moved(self) -> int:
        """Whole sectors, or whole wavefronts of 32 banks."""
        return self.sectors * SECTOR if self.space == "global" else self.wavefronts * BANKS * BANK_BYTES

    @property
    def used(self) -> float | None:
        """Requested bytes divided by the bytes moved between global memory and the multiprocessor."""
        return self.bytes_used / self.bytes_moved if self.space == "global" and self.sectors else None

    @property
    def conflict(self) -> float | None:
        """Wavefronts of shared memory divided by the fewest possible: 1.0 means no conflict; None elsewhere."""
        if self.space != "shared" or not self.ideal_wavefronts:
            return None
        return self.wavefronts / self.ideal_wavefronts


@dataclass(frozen=True)
class Problem:
    """A mistake that the simulator caught: a race, an access out of bounds, a barrier not all threads reach."""

    check: str
    message: str
    places: tuple[str, ...]
    block: tuple[int, ...]
    thread: tuple[int, ...]
    count: int

    def __str__(self) -> str:
        where = f" at {' and '.join(self.places)}" if self.places else ""
        times = f", {self.count} times" if self.count > 1 else ""
        block, thread = (",".join(map(str, index)) for index in (self.block, self.thread))
        return f"{self.check}: {self.message}{where} (block {block}, thread {thread}{times})"


@dataclass(frozen=True)
class Buffer:
    """Global memory that a launch used: its size, and the distinct bytes that counted blocks accessed."""

    name: str
    bytes: int
    bytes_touched: int


@dataclass(frozen=True)
class Launch:
    """One kernel launch."""

    kernel: str
    function: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    blocks: int
    blocks_counted: int
    dynamic_shared: int
    static_shared: int
    bytes_in_flight: int
    barriers: int
    buffers: tuple[Buffer, ...]
    sites: tuple[Site, ...]
    problems: tuple[Problem, ...]
    occupancy: Occupancy

    @property
    def sampled(self) -> bool:
        return self.blocks_counted < self.blocks

    @property
    def threads(self) -> int:
        x, y, z = self.block
        return x * y * z


@dataclass(frozen=True)
class Totals:
    """Over all sites of all launches."""

    global_requests: int
    sectors: int
    bytes_moved: int
    bytes_used: int
    shared_requests: int
    wavefronts: int
    ideal_wavefronts: int
    matrix_instructions: int
    matrix_flops: int
    barriers: int

    @property
    def sectors_per_request(self) -> float | None:
        return self.sectors / self.global_requests if self.global_requests else None

    @property
    def used(self) -> float | None:
        return self.bytes_used / self.bytes_moved if self.bytes_moved else None

    @property
    def conflict(self) -> float | None:
        return self.wavefronts / self.ideal_wavefronts if self.ideal_wavefronts else None


def add_up(launches: Iterable[Launch]) -> Totals:
    launches = list(launches)
    sites = [site for launch in launches for site in launch.sites]
    in_global = [site for site in sites if site.space == "global"]
    in_shared = [site for site in sites if site.space == "shared"]
    matrix = [site for site in sites if site.kind == "mma"]
    return Totals(
        global_requests=sum(site.requests for site in in_global),
        sectors=sum(site.sectors for site in in_global),
        bytes_moved=sum(site.bytes_moved for site in in_global),
        bytes_used=sum(site.bytes_used for site in in_global),
        shared_requests=sum(site.requests for site in in_shared),
        wavefronts=sum(site.wavefronts for site in in_shared),
        ideal_wavefronts=sum(site.ideal_wavefronts for site in in_shared),
        matrix_instructions=sum(site.requests for site in matrix),
        matrix_flops=sum(site.flops for site in matrix),
        barriers=sum(launch.barriers for launch in launches),
    )
