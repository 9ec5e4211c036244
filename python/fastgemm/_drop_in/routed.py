"""The counts of a patch: the calls that it routed, by kernel, and the calls that it passed on."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .._introspect import Counts

Row = tuple[str, str]  # an op of torch, and the kernel that computed it or the reason why none did


class Routed:
    """Counts of a :class:`fastgemm.patch`, live while it is active.

    A kernel is counted when it runs; a batch of several launches counts the kernel of its last member. A copy
    keeps the counts at the time of copying."""

    __module__ = "fastgemm"  # the name under which pickles find it

    def __init__(self) -> None:
        self._counts = Counts()  # in C++, where calls are counted

    def __getstate__(self) -> dict[str, dict[Row, int]]:
        return {"counts": self._counts.rows(True), "passed_on": self._counts.rows(False)}

    def __setstate__(self, state: dict[str, dict[Row, int]]) -> None:
        Routed.__init__(self)
        for name, routed in (("counts", True), ("passed_on", False)):
            for (op, by), calls in state[name].items():
                self._counts.add(routed, op, by, calls)

    def _totals(self, column: int) -> Counter[str]:
        totals: Counter[str] = Counter()
        for row, calls in self._counts.rows(True).items():
            totals[row[column]] += calls
        return totals

    @property
    def ops(self) -> Counter[str]:
        """Routed calls by op: ``{"mm": 3, "addmm": 1}``."""
        return self._totals(0)

    @property
    def kernels(self) -> Counter[str]:
        """Routed calls by kernel; ``"torch"`` is torch's own product, called by fastgemm."""
        return self._totals(1)

    @property
    def passed_on(self) -> Counter[Row]:
        """Calls that torch computed itself, by op and reason."""
        return Counter(self._counts.rows(False))

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
