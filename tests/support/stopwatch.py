"""Times of calls, for tests of what must not be slow."""

import time
from collections.abc import Callable


def shortest(call: Callable[[], object], times: int = 7) -> float:
    """The shortest of some times of a call, in seconds: other work on the machine can only lengthen them."""

    def once() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return min(once() for _ in range(times))
