"""The main job: every level of an operation, checked, then timed against torch and the machine's limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from .._ops.torch_flags import torch_fp32_precision
from ..table import KernelInfo, kernels
from .checking import Check, Reference
from .choice import why_below_torch
from .environment import describe, usable_cores, using_threads
from .load import LoadMeter
from .problems import TORCH_PRECISIONS, Instance, Problem, instantiate, torch_precision
from .records import Measurement, Report, select
from .session import BASELINE, COPY, LONGEST_IN_LADDER, Sensors, Session
from .timing import Timer, interleave

LEVELS = range(1, 8)
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Step:
    """One row of the ladder: the kernel that runs, and the arguments that choose it."""

    level: int
    kernel: str
    role: str
    choice: dict[str, Any]

    @property
    def key(self) -> str:
        return f"{self.level} {self.kernel}"


def lacks_precision(row: KernelInfo, problem: Problem) -> bool:
    """Whether a row computes float32 products in less than the requested precision."""
    asked = problem.precision or torch_fp32_precision()
    return problem.dtype == torch.float32 and row.precision not in ("ieee", asked)


def precision_notes(instance: Instance) -> list[str]:
    """Notes: which rows of a level are left out because of the precision, and which compute in a higher one."""
    precision = instance.problem.precision
    if precision not in (None, "ieee"):
        if precision in TORCH_PRECISIONS:
            return [f"levels 1 to 5 compute in IEEE float32, torch and level 6 in {precision}"]
        return [f"levels 1 to 5 and torch compute in IEEE float32, level 6 in {precision}"]
    found: dict[tuple[int, str], list[str]] = {}
    for row in kernels(instance.problem.op, instance.device, instance.problem.dtype):
        if row.available and lacks_precision(row, instance.problem):
            found.setdefault((row.level, row.precision), []).append(row.name)
    return [
        f"level {level} ({', '.join(names)}) computes float32 products in {precision}: --precision {precision}"
        for (level, precision), names in found.items()
    ]


def steps(instance: Instance) -> list[Step]:
    """All rows of the table that can run here, by level: first the rung that the level picks.

    Level 7 is one step, the choice among all rows. Its additional rows are shown beside the ladder: torch as the
    baseline of the report, other libraries by their names."""
    found: list[Step] = []
    for row in kernels(instance.problem.op, instance.device, instance.problem.dtype):
        if not row.available or row.role == "shortcut" or lacks_precision(row, instance.problem):
            continue
        by_name: dict[str, Any] = {"level": row.level, "kernel": row.name}
        if row.level < LEVELS[-1]:
            found.append(Step(row.level, row.name, row.role, by_name))
        elif row.name != BASELINE:
            found.append(Step(row.level, row.name, "library", by_name))
    if any(row.level == LEVELS[-1] for row in kernels(instance.problem.op, instance.device)):
        found.append(Step(LEVELS[-1], instance.chosen(), "rung", {"level": LEVELS[-1]}))
    return found


def _picked(instance: Instance, level: int) -> str | None:
    """The kernel that a level runs on the problem; None if there is none."""
    try:
        return instance.chosen(level)
    except RuntimeError:
        return None


def _check_all(
    instance: Instance, session: Session, progress: Progress
) -> tuple[dict[str, tuple[Step, Check]], list[str]]:
    """The outcome of each step that takes the problem, and the messages of those that refuse it.

    If a level has several rungs, the one that it picks for the problem represents the level; the others are
    ``alternative``.
    """
    reference = Reference(instance)
    outcomes: dict[str, tuple[Step, Check]] = {}
    refused = []
    picked = {level: _picked(instance, level) for level in LEVELS}
    rungs = sorted(steps(instance), key=lambda step: (step.level, step.kernel != picked[step.level]))
    for i, step in enumerate(rungs):
        progress(f"{instance.problem.op}: checking level {step.key}", i / len(rungs))
        try:
            outcome = session.run_checked(instance.ours(**step.choice), reference)
        except RuntimeError as refusal:
            refused.append(str(refusal))
            continue
        taken = any(s.level == step.level and s.role == "rung" for s, _ in outcomes.values())
        if step.role == "rung" and taken:
            step = replace(step, role="alternative")
        outcomes[f"{step.key} {step.role}"] = step, outcome
    return outcomes, refused


def run_problem(
    problem: Problem,
    *,
    budget: float,
    session: Session,
    progress: Progress = lambda text, share: None,
) -> tuple[list[Measurement], dict[str, list[str]]]:
    """Measures the ladder on one problem, with torch's current number of threads. Returns the measurements, and
    remarks on them by kind."""
    with torch_precision(problem):
        instance = instantiate(problem, device=session.device)
        meter = LoadMeter()
        rows, refused = _run_instance(instance, budget, session, progress)
        busy = meter.load().busy(instance.threads or 1)
        below = [why_below_torch(row, instance, busy) for row in select(rows, role="rung", level=LEVELS[-1])]
        return rows, {
            "order_violations": order_violations(rows),
            "below_torch": [text for text in below if text],
            "refused": [*precision_notes(instance), *refused],
        }


def _run_instance(
    instance: Instance, budget: float, session: Session, progress: Progress
) -> tuple[list[Measurement], list[str]]:
    problem = instance.problem
    outcomes, refused = _check_all(instance, session, lambda text, share: progress(text, 0.4 * share))
    baseline = session.baseline_seconds(instance)
    calls, estimates, rows = {}, {}, {}
    for key, (step, outcome) in outcomes.items():
        row = rows[key] = Measurement.of(instance, step.kernel, step.level, role=step.role)
        row.checked(outcome)
        if not outcome.right:
            continue
        call = instance.ours(**step.choice)
        estimates[key] = session.estimate(call, outcome) or 0.0
        row.message = session.too_long(estimates[key], baseline, LONGEST_IN_LADDER)
        if not row.message:
            calls[key] = call
    rows[BASELINE] = Measurement.of(instance, instance.baseline or "", None, role="baseline")
    rows[COPY] = Measurement.of(instance, "copy_", None, role="limit")
    torch_call = instance.torch()
    if torch_call is not None:
        calls[BASELINE] = torch_call
    if problem.op != "gemm":
        calls[COPY] = instance.copy()
    start = session.now()
    samples = interleave(
        calls,
        budget=budget,
        estimates={key: estimates[key] for key in calls if key in estimates},
        min_rounds=2,
        timer=session.timer,
        on_sample=lambda share: progress(f"{problem.op}: timing", 0.4 + 0.6 * share),
    )
    reading = session.sensors.since(start)
    for key in calls:
        rows[key].timed(instance, samples, key, BASELINE)
        rows[key].telemetry = reading
    found = [row for key, row in rows.items() if key in calls or key in outcomes]
    if problem.op == "gemm":
        limit, name = session.arithmetic_peak(instance, reading)
    else:
        limit, name = _copy_rate(rows[COPY], problem.op), "copy_"
    for row in found:
        row.against(limit, name)
    _set_gains(found)
    return found, refused


def _copy_rate(copy: Measurement, op: str) -> float | None:
    if op == "add" and copy.rate:
        copy.rate *= 2 / 3  # a copy moves two matrices, an addition three
    return copy.rate


def _set_gains(rows: list[Measurement]) -> None:
    below: Measurement | None = None
    for row in select(rows, role="rung"):
        if below and below.seconds and row.seconds:
            row.gain = below.seconds.median / row.seconds.median
        below = row


def order_violations(rows: list[Measurement]) -> list[str]:
    """Violations of the ladder's rule: levels 1 to 5 each faster, 6 at least 0.98 of 5, 7 at least 0.98 of the
    best."""
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


def _part_of(progress: Progress, i: int, count: int) -> Progress:
    """Converts the progress of one of ``count`` problems to that of all."""
    return lambda text, share: progress(text, (i + share) / count)


def run_ladder(
    problems: list[Problem],
    *,
    device: str = "cpu",
    threads: int | None = None,
    budget: float = 0.6,
    timer: Timer | None = None,
    sensors: Sensors | None = None,
    progress: Progress = lambda text, share: None,
) -> Report:
    """Runs the ladder of each problem and returns the report."""
    with using_threads(threads) as count, Session(device, timer, sensors) as session:
        method = {**session.describe(), "threads": count, "budget_seconds": budget}
        report = Report("ladder", describe(device), method)
        for i, problem in enumerate(problems):
            rows, report.summary[problem.op] = run_problem(
                problem,
                budget=budget,
                session=session,
                progress=_part_of(progress, i, len(problems)),
            )
            report.results += rows
        report.environment["load"] = asdict(session.load.load())
        report.environment["oversubscribed"] = device == "cpu" and count > usable_cores()
    return report
