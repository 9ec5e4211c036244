"""Timing on a GPU: CUDA events around one call with a cold L2 cache, or the host's clock."""

from __future__ import annotations

import time

import torch

from .timing import Call

FLUSH_BYTES = 256 << 20  # more than any L2 cache: 50 MB on an H200
SPIN_CYCLES = 400_000  # 0.2 ms


class CudaTimer:
    """One call between two events.

    The buffer that is written first evicts what the call reads from the L2 cache. That takes the GPU 80 us; a
    kernel that only spins comes before it, since the host may need more than 100 us to prepare a call of five
    launches, and the events must enclose only the GPU's time.
    """

    name = "cuda events"
    method = (
        "CUDA events around one call, L2 cache cold (256 MiB written before each), the GPU busy while the host "
        "prepares it, interleaved with the baseline in one process in changing order; median over rounds, ratios "
        "within a round"
    )
    min_sample: float = 0.0  # a second call in the same sample would find a warm cache
    overhead: float = 400e-6

    def __init__(self) -> None:
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sample(self, call: Call, repeats: int) -> float:
        torch.cuda._sleep(SPIN_CYCLES)
        self._flush.zero_()
        return self.between_events(call, repeats)

    def between_events(self, call: Call, repeats: int) -> float:
        """Seconds of a call, the mean of ``repeats`` in a row."""
        self._start.record()
        for _ in range(repeats):
            call()
        self._end.record()
        self._end.synchronize()
        return self._start.elapsed_time(self._end) / 1e3 / repeats


class HostTimer:
    """The time of a call on the host: batches of asynchronous calls, each batch followed by a
    synchronization."""

    name = "host"
    method = (
        "wall clock of batches of 200 asynchronous calls up to the return of the last, synchronized between "
        "batches, contenders in changing order; median over batches"
    )
    min_sample: float = 0.0
    overhead: float = 0.0
    BATCH = 200

    def __init__(self, device: str):
        self._synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None

    def sample(self, call: Call, repeats: int) -> float:
        self._synchronize()
        start = time.perf_counter()
        for _ in range(self.BATCH):
            call()
        seconds = time.perf_counter() - start
        self._synchronize()
        return seconds / self.BATCH


class WallTimer:
    """The time for which a user waits for a call on a GPU, the host's time included."""

    name = "wall clock"
    method = (
        "wall clock from an idle GPU until the call has finished, interleaved with the baseline in one process in "
        "changing order; median over rounds, ratios within a round"
    )
    min_sample: float = 0.0  # calls are whole steps of models
    overhead: float = 20e-6

    def sample(self, call: Call, repeats: int) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / repeats
