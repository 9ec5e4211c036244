"""The figures of a report by name, as every view shows them, and what differs between two reports."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .._gpus import SECTOR
from .counts import Site
from .findings import Findings


def count(value: float | None) -> str:
    """Up to four digits exactly, above that three digits: 8192, 65.5 k, 134 M."""
    if value is None:
        return "-"
    if value < 10_000:
        return f"{value:.0f}"
    return _three_digits(value, " ")


def _three_digits(value: float, gap: str = "") -> str:
    """134 M, 4.80 T."""
    power = min(max(int(math.log10(value) // 3), 0), 5) if value >= 1 else 0
    scaled = value / 1000**power
    digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{scaled:.{digits}f}{gap}{('', 'k', 'M', 'G', 'T', 'P')[power]}"


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def size(value: float | None) -> str:
    """Bytes, in powers of 1000: 524 kB."""
    if value is None:
        return "-"
    return f"{value:.0f} B" if value < 10_000 else f"{_three_digits(value, ' ')}B"


def rate(value: float | None, unit: str) -> str:
    """Operations or bytes a second: 4.80 TB/s, 66.9 TFLOPS."""
    return "-" if value is None else f"{_three_digits(value, ' ')}{unit}"


def operations(report: Findings) -> str:
    """The unit of work."""
    if report.op != "gemm":
        return "B/s"
    return "OPS" if report.dtype.startswith("int") else "FLOPS"


@dataclass(frozen=True)
class Metric:
    """One figure of a report."""

    name: str
    value: float | None
    show: Callable[[float | None], str]

    @property
    def text(self) -> str:
        return "-" if self.value is None else self.show(self.value)


def metrics(report: Findings) -> list[Metric]:
    """The figures of the whole operation, then those of a multiprocessor that runs its main kernel."""
    totals, held, main, roof = report.totals, report.occupancy, report.main, report.roofline
    return [
        Metric("kernel launches", len(report.launches), count),
        Metric("global requests", totals.global_requests, count),
        Metric("sectors a request", totals.sectors_per_request, number),
        Metric("bytes moved (sectors x 32)", totals.bytes_moved, size),
        Metric("of these asked for", totals.used, percent),
        Metric("distinct bytes of the operands", roof.bytes_compulsory if roof else None, size),
        Metric("shared requests", totals.shared_requests, count),
        Metric("shared wavefronts", totals.wavefronts, count),
        Metric("wavefronts over ideal", totals.conflict, number),
        Metric("matrix instructions", totals.matrix_instructions, count),
        Metric("barriers", totals.barriers, count),
        Metric("bytes in flight a block", main.bytes_in_flight if main else None, size),
        Metric("threads a block", held.threads if held else None, count),
        Metric("registers a thread", held.registers if held else None, count),
        Metric("shared memory a block", held.shared_bytes if held else None, size),
        Metric("blocks a multiprocessor", held.blocks if held else None, count),
        Metric("occupancy", held.share if held else None, percent),
    ]


@dataclass(frozen=True)
class Change:
    """A metric of two reports."""

    before: Metric
    after: Metric

    @property
    def factor(self) -> float | None:
        """After divided by before; None if there is no ratio."""
        if not self.before.value or not self.after.value:
            return None
        return self.after.value / self.before.value

    @property
    def matters(self) -> bool:
        """Whether the figure changes by more than 5 %, from zero, or to zero."""
        if bool(self.before.value) != bool(self.after.value):
            return True
        return self.factor is not None and abs(math.log(self.factor)) > math.log(1.05)

    @property
    def text(self) -> str:
        """1/32, 16 x, + 5 %."""
        if not self.matters:
            return "="
        if self.factor is None:
            return "new" if self.after.value else "gone"
        if self.factor >= 2:
            return f"{number(self.factor)} x"
        if self.factor <= 0.5:
            return f"1/{number(1 / self.factor)}"
        return f"{100 * (self.factor - 1):+.0f} %"

    def __str__(self) -> str:
        return f"{self.before.name} {self.before.text} -> {self.after.text} ({self.text})"


def changes(before: Findings, after: Findings) -> list[Change]:
    pairs = zip(metrics(before), metrics(after), strict=True)
    return [Change(*pair) for pair in pairs if any(metric.value for metric in pair)]


def largest_changes(before: Findings, after: Findings, count: int = 6) -> list[Change]:
    """The largest changes first."""
    found = [change for change in changes(before, after) if change.matters]
    found.sort(key=lambda change: abs(math.log(change.factor)) if change.factor else math.inf, reverse=True)
    return found[:count]


def wastes(site: Site) -> bool:
    """Whether the site needs at least 2 times the fewest possible sectors, or 1.5 times the wavefronts."""
    if site.conflict is not None:
        return site.conflict >= 1.5
    return site.space == "global" and site.sectors >= 2 * max(site.requests, site.bytes_used / SECTOR)
