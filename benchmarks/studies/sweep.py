"""Compares many problems with torch for the pages. It adds a GPU's sensor readings, a common time limit, a check
of random problems against the allowed time, and some back-to-back runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastgemm.bench.presets import Case
from fastgemm.bench.problems import Call, Instance, MemoryLimit
from fastgemm.bench.records import Measurement, Report
from fastgemm.bench.sweep import Method, run_case, run_sweep
from fastgemm.bench.timing import Interleaved, geometric_mean
from torch import Tensor

from .sustained import BACK_TO_BACK, SUSTAINED, back_to_back_counts, sustained, sustained_count
from .telemetry import sensors_of
from .timers import Pace

OUTLIER_PAIRS = 200


@dataclass(frozen=True)
class StudyCase(Case):
    settle_outliers: bool = False  # a case slower than torch is measured again with many pairs
    sustained: bool = False  # on a GPU: calls back to back, with power, clocks and energy


def _asks_for(case: Case, what: str) -> bool:
    return getattr(case, what, False)


@dataclass
class Study(Method):
    """How the pages' figures are measured. ``pace`` replaces the budget. ``sustained``: for all cases."""

    pace: Pace | None = None
    sustained: bool = False

    def describe(self, cases: Iterable[Case] = ()) -> dict[str, Any]:
        found = super().describe(cases)
        if self.sustained:
            found.update(timer="sustained", text=SUSTAINED)
        if any(_asks_for(case, "sustained") for case in cases):
            found["back_to_back"] = BACK_TO_BACK
        return found

    def begin(self, case: Case) -> None:
        if self.pace:
            self.budget = self.pace.budget(len(case.choices) + 1)

    def memory_limit(self, instance: Instance) -> MemoryLimit:
        """For a skinny product, a plain read of its largest operand, if Triton can compile one for this device."""
        a = instance.largest
        if instance.problem.op == "gemm" and instance.device == "cuda" and (read := _plain_read(a)):
            return MemoryLimit("plain read", read, a.nbytes)
        return super().memory_limit(instance)

    def measure(
        self,
        case: Case,
        instance: Instance,
        calls: dict[str, Any],
        estimates: dict[str, float],
        rounds: int | None,
    ) -> tuple[Interleaved, dict[str, dict[str, Any] | None]]:
        alone = _asks_for(case, "sustained")
        if not (self.sustained or alone):
            return super().measure(case, instance, calls, estimates, rounds)
        usual = dict.fromkeys(calls, sustained_count(instance.problem.shape[-3:]))
        counts = back_to_back_counts(calls, self.session.timer) if alone else usual
        samples, readings = sustained(calls, counts, self.session.sensors)
        return samples, {name: readings.get(name) for name in calls}

    def summary(self, cases: list[Case], found: list[list[Measurement]]) -> dict[str, Any]:
        """Measures outliers again. Their new rows replace the old ones in ``found``."""
        settle = any(_asks_for(case, "settle_outliers") for case in cases)
        outliers = _settle_outliers(cases, found, self) if settle else {}
        means = default_means(row for rows in found for row in rows)
        return {**outliers, **super().summary(cases, found), "default_of_best": means}


def run_study(
    cases: list[Case],
    *,
    device: str = "cpu",
    budget: float = 0.5,
    pace: Pace | None = None,
    sustained: bool = False,
    progress: Callable[[str, float], None] = lambda text, share: None,
    on_rows: Callable[[list[Measurement]], None] = lambda rows: None,
) -> Report:
    """Runs all cases."""
    return run_sweep(
        cases,
        device=device,
        budget=budget,
        sensors=sensors_of(device),
        make=partial(Study, pace=pace, sustained=sustained),
        progress=progress,
        on_rows=on_rows,
    )


def _plain_read(x: Tensor) -> Call | None:
    try:
        from .plain_read import plain_read

        call = plain_read(x)
        call()
    except Exception:  # without Triton, a C compiler or a supported GPU, errors have many types
        return None
    return call


def default_means(rows: Iterable[Measurement]) -> dict[str, dict[str, float | int]]:
    """The speed of level=None relative to the fastest contender of the same problem: geometric mean and least, by
    group. Only problems with another timed own kernel count."""
    problems: dict[tuple[str, ...], list[Measurement]] = {}
    for row in rows:
        if row.seconds:
            problems.setdefault((row.group, row.dtype, row.label), []).append(row)
    found: dict[str, list[float]] = {}
    for (group, *_), timed in problems.items():
        default = next((row for row in timed if row.choice == "fastest"), None)
        others = [row for row in timed if row is not default and row.role != "limit"]
        if default and any(row.role != "baseline" for row in others):
            best = min(row.seconds.median for row in others)
            found.setdefault(group, []).append(best / default.seconds.median)
    return {
        name: {"share": geometric_mean(values), "least": min(values), "problems": len(values)}
        for name, values in found.items()
    }


def share_of_allowed(rows: list[Measurement]) -> float | None:
    """The time of the own kernel (the slowest of several), divided by the allowed time, which is the larger of
    1.04 torch and torch + 1 us. None if one of them was not timed."""
    torch_row = next((row for row in rows if row.role == "baseline"), None)
    ours = [row.seconds.median for row in rows if row.role not in ("baseline", "limit") and row.seconds]
    if torch_row is None or torch_row.seconds is None or not ours:
        return None
    return max(ours) / max(1.04 * torch_row.seconds.median, torch_row.seconds.median + 1e-6)


def is_outlier(rows: list[Measurement]) -> bool:
    """Whether the own kernel is slower than max(1.04 torch, torch + 1 us)."""
    share = share_of_allowed(rows)
    return share is not None and share > 1


def _settle_outliers(
    cases: list[Case], found: list[list[Measurement]], method: Method
) -> dict[str, list[dict[str, Any]]]:
    """Measures outliers again with many pairs, if their case asks for it. The new rows replace the old ones."""
    again, remaining = [], []
    for i, case in enumerate(cases):
        if not _asks_for(case, "settle_outliers") or not is_outlier(found[i]):
            continue
        first, found[i] = found[i][0], run_case(case, method, rounds=OUTLIER_PAIRS)
        entry = {"problem": f"{found[i][0].dtype} {found[i][0].label}", "kernel": found[i][0].kernel}
        for name, row in (("first", first), ("settled", found[i][0])):
            entry[name] = row.speedup.median if row.speedup else None
        again.append(entry)
        if is_outlier(found[i]):
            remaining.append(entry)
    settled = [rows for case, rows in zip(cases, found, strict=True) if _asks_for(case, "settle_outliers")]
    return {"measured_again": again, "outliers": remaining, "against_torch": against_torch(settled)}


def against_torch(found: list[list[Measurement]]) -> dict[str, Any]:
    """A summary of all problems: the geometric mean of the speedup over torch, and the case with the largest share
    of its allowed time."""
    timed = {i: share for i, rows in enumerate(found) if (share := share_of_allowed(rows)) is not None}
    if not timed:
        return {"problems": 0}
    speedups = [found[i][0].speedup.median for i in timed]
    worst = max(timed, key=lambda i: timed[i])
    row = found[worst][0]
    return {
        "problems": len(timed),
        "speedup": geometric_mean(speedups),
        "least": min(speedups),
        "worst": {
            "problem": f"{row.dtype} {row.label}",
            "kernel": row.kernel,
            "speedup": row.speedup.median,
            "of_allowed_time": timed[worst],
        },
    }
