"""What a patch did with torch's products: which calls it routed, to which kernels, and which it passed on."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable
from typing import Any

Row = tuple[str, str]  # an op of torch, and the kernel that computed it or the reason why none did
_KEPT = 4096  # signatures; beyond that they are looked up again


class Count:
    """A number that several threads raise."""

    __slots__ = ("value",)

    def __init__(self, value: int = 0) -> None:
        self.value = value


class Routed:
    """Counts of a :class:`fastgemm.patch`, live while it is active.

    A kernel is counted where it ran; for a batch that takes several launches, that of its last member. A copy,
    pickled or not, holds the counts of its moment.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Row, Count] = {}
        self._passed_on: dict[Row, Count] = {}
        self._routes: dict[Hashable, Any] = {}  # by signature of a call, what the patch found out about it

    def __getstate__(self) -> dict[str, dict[Row, int]]:
        """The counts; what was found out about signatures belongs to this process and its kernels."""
        with self._lock:
            rows = {"counts": self._counts, "passed_on": self._passed_on}
            return {name: {row: n.value for row, n in counts.items()} for name, counts in rows.items()}

    def __setstate__(self, state: dict[str, dict[Row, int]]) -> None:
        self.__init__()
        self._counts = {row: Count(value) for row, value in state["counts"].items()}
        self._passed_on = {row: Count(value) for row, value in state["passed_on"].items()}

    def _keep(self, signature: Hashable, route: Any) -> None:
        with self._lock:
            if len(self._routes) >= _KEPT:
                self._routes.clear()
            self._routes[signature] = route

    def _count_of(self, op: str, kernel: str) -> Count:
        with self._lock:
            return self._counts.setdefault((op, kernel), Count())

    def _add(self, count: Count) -> None:
        with self._lock:
            count.value += 1

    def _add_passed_on(self, op: str, reason: str) -> None:
        with self._lock:
            self._passed_on.setdefault((op, reason), Count()).value += 1

    def _totals(self, rows: dict[Row, Count], column: int) -> Counter[str]:
        totals: Counter[str] = Counter()
        with self._lock:
            for row, count in rows.items():
                if count.value:  # else a route that was found and then refused
                    totals[row[column]] += count.value
        return totals

    @property
    def ops(self) -> Counter[str]:
        """Routed calls by op: ``{"mm": 3, "addmm": 1}``."""
        return self._totals(self._counts, 0)

    @property
    def kernels(self) -> Counter[str]:
        """Routed calls by kernel; ``"torch"`` is torch's own product, called by fastgemm."""
        return self._totals(self._counts, 1)

    @property
    def passed_on(self) -> Counter[Row]:
        """Calls that torch computed itself, by op and reason."""
        with self._lock:
            return Counter({row: count.value for row, count in self._passed_on.items()})

    @property
    def total(self) -> int:
        """Number of routed calls."""
        return self.ops.total()

    def as_dict(self) -> dict[str, Any]:
        """All counts, as JSON takes them."""
        passed_on = [{"op": op, "reason": why, "calls": n} for (op, why), n in self.passed_on.most_common()]
        return {"ops": dict(self.ops), "kernels": dict(self.kernels), "passed_on": passed_on}

    def __str__(self) -> str:
        def listed(counts: Counter[str]) -> str:
            return ", ".join(f"{name} {n}" for name, n in counts.most_common())

        lines = [f"routed {self.total}"]
        if self.total:
            lines[0] += f": {listed(self.ops)}"
            lines.append(f"kernels: {listed(self.kernels)}")
        passed_on = self.passed_on
        lines += [f"passed on {n} {op}: {reason}" for (op, reason), n in passed_on.most_common()]
        return "\n".join(lines)

    __repr__ = __str__
