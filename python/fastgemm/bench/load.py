"""The other load of the machine during a measurement: processor time of other programs, and time that the
hypervisor gave to other machines. Both come from the kernel's counters of ticks, so they describe exactly this
interval; the load average describes mostly the minute before it."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

STAT = Path("/proc/stat")
MOST_SHARED = 0.25  # cores that threads may have to share with other programs
MOST_STOLEN = 0.02  # of all processor time


@dataclass(frozen=True)
class Load:
    """The load during an interval of time.

    Attributes:
        cores: the machine's cores; this process may be limited to fewer.
        others: the number of cores that other programs kept busy; None if the kernel does not say.
        stolen: share of the processor time that went to other virtual machines; None if the kernel does not say.
        average: the load average at the beginning; None if there is none.
    """

    cores: int
    others: float | None = None
    stolen: float | None = None
    average: float | None = None

    def busy(self, threads: int) -> str:
        """How busy the machine was for this many threads; empty if each had a core for itself."""
        if self.others is None or self.stolen is None:
            if self.average is None or self.average <= self.cores:
                return ""
            return f"its load average was {self.average:.1f} on {self.cores} cores as this began"
        found = []
        if self.others + threads > self.cores + MOST_SHARED:
            found.append(f"other programs kept {self.others:.1f} of its {self.cores} cores busy")
        if self.stolen > MOST_STOLEN:
            found.append(f"{100 * self.stolen:.0f} % of its processor time went to other virtual machines")
        if found and self.average is not None and self.average > self.cores:
            found.append(f"its load average was {self.average:.1f} as this began")
        return ", ".join(found)


class LoadMeter:
    """Reads the counters when it is created, and again for each result."""

    def __init__(self) -> None:
        self._average = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        self._start = _counters()

    def load(self) -> Load:
        """The load since this was created."""
        cores, average = os.cpu_count() or 1, self._average
        end = _counters()
        if self._start is None or end is None:
            return Load(cores, average=average)
        seconds, own, busy, stolen = (b - a for a, b in zip(self._start, end, strict=True))
        if not seconds or not (busy or stolen):  # a container may show a file of zeros
            return Load(cores, average=average)
        return Load(cores, max(0.0, (busy - own) / seconds), stolen / (seconds * cores), average)


def _counters() -> tuple[float, float, float, float] | None:
    """Seconds: of the clock, of this process on all cores, of all programs, and stolen ones."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = STAT.read_text(encoding="ascii").split("\n", 1)[0].split()
        user, nice, system, _, _, irq, softirq, steal = (
            int(x) / os.sysconf("SC_CLK_TCK") for x in fields[1:9]
        )
        return time.perf_counter(), sum(os.times()[:2]), user + nice + system + irq + softirq, steal
    return None
