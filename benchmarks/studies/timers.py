"""How long each call of a preset may take, and batches by the wall clock."""

from __future__ import annotations

import time
from typing import Any


class Pace:
    """Shares seconds out over problems, whose operands and checks take what nobody knows before: the first half of
    a problem's share is left for them, and what they do not use goes to the problems that follow."""

    LEAST, MOST = 0.01, 0.5

    def __init__(self, seconds: float, problems: int):
        self._end, self._problems = time.perf_counter() + seconds, problems

    def budget(self, calls: int) -> float:
        """Seconds for each call of the next problem."""
        share = (self._end - time.perf_counter()) / max(self._problems, 1)
        self._problems -= 1
        return min(max(share / 2 / calls, self.LEAST), self.MOST)


class BatchTimer:
    """Wall clock of a batch: what works on a stream of its own, as JAX does, is timed as what torch sees.

    A call says what it is to be made ``inside`` of, and with what its results are waited for, ``finish``.
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
