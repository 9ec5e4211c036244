"""Divides a preset's time among its calls, and times batches by the wall clock."""

from __future__ import annotations

import time
from typing import Any


class Pace:
    """Divides seconds among problems. The time for operands and checks is not known in advance: half of a
    problem's share is reserved for it, and unused time goes to later problems."""

    LEAST, MOST = 0.01, 0.5

    def __init__(self, seconds: float, problems: int):
        self._end, self._problems = time.perf_counter() + seconds, problems

    def budget(self, calls: int) -> float:
        """Seconds for each call of the next problem."""
        share = (self._end - time.perf_counter()) / max(self._problems, 1)
        self._problems -= 1
        return min(max(share / 2 / calls, self.LEAST), self.MOST)


class BatchTimer:
    """Times a batch by the wall clock. So libraries with their own stream, such as JAX, are timed like torch.

    A call has a context ``inside``, and a function ``finish`` that waits for its results.
    """

    name = "batches"
    method = (
        "wall clock of batches of warm back-to-back calls that take at least 20 ms, from an idle GPU until the "
        "last result is there, contenders in changing order; median over batches"
    )
    min_sample = 20e-3
    overhead = 100e-6

    def sample(self, call: Any, repeats: int) -> float:
        with call.inside():
            call.finish(None)
            start = time.perf_counter()
            for _ in range(repeats):
                result = call()
            call.finish(result)
            return (time.perf_counter() - start) / repeats
