"""Many problems, each against torch: what ``fastgemm bench`` runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from ..table import kernels
from ..tuning import autotune
from .checking import Reference, check
from .environment import describe, using_threads
from .ladder import BASELINE, COPY
from .limits import fma_peak
from .presets import Case
from .problems import Instance, instantiate
from .records import Measurement, Report
from .timing import CpuTimer, Timer, geometric_mean, interleave

Choice = tuple[tuple[str, int | str], ...]


def kernel_name(instance: Instance, choice: Choice) -> str:
    """The kernel that a choice runs."""
    wanted = dict(choice)
    if "kernel" in wanted:
        return str(wanted["kernel"])
    level = wanted.get("level")
    if level in (None, 7):
        return instance.chosen()
    rows = kernels(instance.problem.op, "cpu", instance.problem.dtype)
    return next((r.name for r in rows if r.level == level and r.role == "rung" and r.available), "none")


def choice_text(choice: Choice) -> str:
    return ", ".join(f"{name} {value}" for name, value in choice) or "fastest"


class Peaks:
    """Peaks of a run, each measured once."""

    def __init__(self) -> None:
        self._known: dict[tuple[torch.dtype, int], float | None] = {}

    def of(self, dtype: torch.dtype, threads: int) -> float | None:
        key = dtype, threads
        if key not in self._known:
            self._known[key] = fma_peak(dtype, threads)
        return self._known[key]


def run_case(
    case: Case, *, budget: float, checks: bool, timer: Timer, peaks: Peaks, tune: bool = False
) -> list[Measurement]:
    """Checks, then times, every choice of a case and torch, with the threads torch has now."""
    problem, threads = case.problem, torch.get_num_threads()
    instance = instantiate(problem, allocate=case.allocate)
    if tune and problem.op != "add":
        autotune(*instance.operands)
    calls, rows, estimates = {}, {}, {}
    reference = Reference(instance) if checks else None
    for choice in case.choices:
        row = Measurement.of(problem, kernel_name(instance, choice), dict(choice).get("level"), threads)
        row.group, row.choice = case.group, choice_text(choice)
        rows[choice] = row
        call = instance.ours(**dict(choice))
        try:
            if reference:
                outcome = check(call, reference)
                row.checked(outcome)
                estimates[choice_text(choice)] = outcome.seconds
            else:
                call()
        except (RuntimeError, ValueError) as error:
            row.right, row.message = False, f"raised {type(error).__name__}: {error}"
        if row.right:
            calls[choice_text(choice)] = call
    if not calls:
        return list(rows.values())
    calls[BASELINE] = instance.torch()
    if problem.op != "gemm":
        calls[COPY] = instance.copy()
    samples = interleave(calls, budget=budget, estimates=estimates, timer=timer)
    limit = samples.seconds(COPY).median if problem.op != "gemm" else None
    for choice, row in rows.items():
        if row.right:
            row.timed(problem, samples, choice_text(choice), BASELINE)
            if limit is None:
                row.against(peaks.of(problem.dtype, threads), "FMA peak")
            else:
                copied = 2 * instance.operands[0].nbytes
                row.against(copied / limit / 1e9, "copy_")
    baseline = Measurement.of(problem, problem.baseline, None, threads, role="baseline", group=case.group)
    baseline.timed(problem, samples, BASELINE, BASELINE)
    return [*rows.values(), baseline]


def group_means(rows: Iterable[Measurement]) -> dict[str, dict[str, float | int]]:
    """Geometric mean of the speedup over torch, and the least, per group and choice of a kernel."""
    timed = [row for row in rows if row.role != "baseline" and row.speedup]
    choices: dict[str, set[str]] = {}
    for row in timed:
        choices.setdefault(row.group, set()).add(row.choice)
    found: dict[str, list[float]] = {}
    for row in timed:
        name = row.group if len(choices[row.group]) == 1 else f"{row.group}, {row.choice}"
        found.setdefault(name, []).append(row.speedup.median)
    return {
        name: {"speedup": geometric_mean(values), "least": min(values), "problems": len(values)}
        for name, values in found.items()
    }


def run_sweep(
    cases: list[Case],
    *,
    threads: int | None = None,
    budget: float = 0.5,
    checks: bool = True,
    tune: bool = False,
    timer: Timer | None = None,
    progress: Callable[[str, float], None] = lambda text, share: None,
    on_rows: Callable[[list[Measurement]], None] = lambda rows: None,
) -> Report:
    """Runs all cases. A case's own thread count goes before ``threads``."""
    timer, peaks = timer or CpuTimer(), Peaks()
    with using_threads(threads):
        method = {"timer": timer.name, "text": timer.method, "budget_seconds": budget, "checked": checks}
        report = Report("bench", describe(), method)
        for i, case in enumerate(cases):
            progress(case.group, i / len(cases))
            with using_threads(case.threads):
                rows = run_case(case, budget=budget, checks=checks, timer=timer, peaks=peaks, tune=tune)
            report.results += rows
            on_rows(rows)
        report.summary = {"geometric_means": group_means(report.results)}
    return report
