"""The main job: every level of an operation, checked, then timed against torch and the machine's limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..table import kernels
from .checking import Check, Reference, check
from .environment import describe, usable_cores, using_threads
from .limits import fma_peak
from .problems import Instance, Problem, instantiate
from .records import Measurement, Report, select
from .timing import CpuTimer, Timer, interleave

LEVELS = range(1, 8)
BASELINE, COPY = "torch", "copy"
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Step:
    """One row of the ladder: the kernel that runs, and how it is asked for."""

    level: int
    kernel: str
    role: str
    choice: dict[str, int | str]

    @property
    def key(self) -> str:
        return f"{self.level} {self.kernel}"


def steps(instance: Instance) -> list[Step]:
    """All rows of the table that can run the instance, by level: first the rung that the level picks.

    A second rung of a level is an ``alternative``. Level 7 is one step, the choice among all rows; what it adds
    to them, torch, is the baseline of the report.
    """
    found: list[Step] = []
    for row in kernels(instance.problem.op, "cpu", instance.problem.dtype):
        if not row.available:
            continue
        taken = any(step.level == row.level and step.role == "rung" for step in found)
        role = "alternative" if row.role == "rung" and taken else row.role
        if row.level < LEVELS[-1]:
            found.append(Step(row.level, row.name, role, {"level": row.level, "kernel": row.name}))
        elif not taken:
            found.append(Step(row.level, instance.chosen(), role, {"level": row.level}))
    return found


def _check_all(instance: Instance, progress: Progress) -> dict[str, tuple[Step, Check]]:
    reference = Reference(instance)
    outcomes = {}
    todo = steps(instance)
    for i, step in enumerate(todo):
        progress(f"{instance.problem.op}: checking level {step.key}", i / len(todo))
        call = instance.ours(**step.choice)
        try:
            outcome = check(call, reference)
        except RuntimeError as error:
            outcome = Check(False, 0.0, 0, reference.rows, 0.0, f"raised {type(error).__name__}: {error}")
        outcomes[step.key] = step, outcome
    return outcomes


def run_problem(
    problem: Problem, *, budget: float, timer: Timer, progress: Progress = lambda text, share: None
) -> list[Measurement]:
    """The ladder of one problem with the threads torch has now."""
    threads = torch.get_num_threads()
    instance = instantiate(problem)
    outcomes = _check_all(instance, lambda text, share: progress(text, 0.4 * share))
    calls = {key: instance.ours(**step.choice) for key, (step, outcome) in outcomes.items() if outcome.right}
    calls[BASELINE] = instance.torch()
    if problem.op != "gemm":
        calls[COPY] = instance.copy()
    samples = interleave(
        calls,
        budget=budget,
        estimates={key: outcome.seconds for key, (_, outcome) in outcomes.items() if outcome.right},
        min_rounds=2,
        timer=timer,
        on_sample=lambda share: progress(f"{problem.op}: timing", 0.4 + 0.6 * share),
    )
    rows = []
    for key, (step, outcome) in outcomes.items():
        row = Measurement.of(problem, step.kernel, step.level, threads, role=step.role)
        row.checked(outcome)
        if outcome.right:
            row.timed(problem, samples, key, BASELINE)
        rows.append(row)
    extra = {BASELINE: (problem.baseline, "baseline"), COPY: ("copy_", "limit")}
    for name in (n for n in extra if n in calls):
        row = Measurement.of(problem, extra[name][0], None, threads, role=extra[name][1])
        row.timed(problem, samples, name, BASELINE)
        rows.append(row)
    _set_limit(problem, rows, threads)
    _set_gains(rows)
    return rows


def _set_limit(problem: Problem, rows: list[Measurement], threads: int) -> None:
    if problem.op == "gemm":
        limit, name = fma_peak(problem.dtype, threads), "FMA peak"
    else:
        (copy,) = select(rows, role="limit")
        if problem.op == "add":
            copy.rate *= 2 / 3  # a copy moves two matrices, an addition three
        limit, name = copy.rate, "copy_"
    for row in rows:
        row.against(limit, name)


def _set_gains(rows: list[Measurement]) -> None:
    below: Measurement | None = None
    for row in select(rows, role="rung"):
        if below and below.seconds and row.seconds:
            row.gain = below.seconds.median / row.seconds.median
        below = row


def order_violations(rows: list[Measurement]) -> list[str]:
    """Where a ladder breaks its rule: 1 to 5 each faster, 6 at least 0.98 of 5, 7 at least 0.98 of the best."""
    rungs = {row.level: row.rate for row in select(rows, role="rung") if row.rate}
    broken = []
    for level in range(2, 6):
        if level in rungs and level - 1 in rungs and rungs[level] <= rungs[level - 1]:
            broken.append(f"level {level} is not faster than level {level - 1}")
    if 6 in rungs and 5 in rungs and rungs[6] < 0.98 * rungs[5]:
        broken.append(f"level 6 reaches {rungs[6] / rungs[5]:.2f} of level 5")
    best = max(rungs.values(), default=0.0)
    if 7 in rungs and rungs[7] < 0.98 * best:
        broken.append(f"level 7 reaches {rungs[7] / best:.2f} of the best level")
    return broken


def run_ladder(
    problems: list[Problem],
    *,
    threads: int | None = None,
    budget: float = 0.6,
    timer: Timer | None = None,
    progress: Progress = lambda text, share: None,
) -> Report:
    """Runs the ladder of each problem and returns the report."""
    timer = timer or CpuTimer()
    with using_threads(threads) as count:
        report = Report(
            "ladder",
            describe(),
            {"timer": timer.name, "text": timer.method, "threads": count, "budget_seconds": budget},
        )
        for i, problem in enumerate(problems):
            rows = run_problem(
                problem,
                budget=budget,
                timer=timer,
                progress=lambda text, share, i=i: progress(text, (i + share) / len(problems)),
            )
            report.results += rows
            report.summary[problem.op] = {"order_violations": order_violations(rows)}
        report.environment["oversubscribed"] = count > usable_cores()
    return report
