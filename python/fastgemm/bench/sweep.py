"""Runs many problems, each against torch, for ``fastgemm bench``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch

from ..table import kernels
from ..tuning import autotune
from .checking import Reference, raised
from .environment import describe, using_threads
from .presets import Case, Choice
from .problems import Instance, MemoryLimit, dtype_name, instantiate, label, torch_precision
from .records import Measurement, Report
from .session import BASELINE, LIMIT, LONGEST_IN_LADDER, LONGEST_IN_SWEEP, REFUSAL, Sensors, Session
from .timing import Interleaved, Timer, geometric_mean, interleave


def kernel_name(instance: Instance, choice: Choice) -> str:
    """The kernel that a choice runs. Raises RuntimeError if no kernel of a level can run."""
    wanted = dict(choice)
    if "kernel" in wanted:
        return str(wanted["kernel"])
    level = wanted.get("level")
    return instance.chosen(int(level) if level else None)


def is_in_table(instance: Instance, choice: Choice) -> bool:
    """Whether a row that the choice names can run on this device and takes the dtype."""
    wanted = dict(choice)
    return any(
        row.available and wanted.get("kernel", row.name) == row.name
        for row in kernels(instance.problem.op, instance.device, instance.problem.dtype)
        if wanted.get("level", row.level) == row.level
    )


def choice_text(choice: Choice) -> str:
    return ", ".join(f"{name} {value}" for name, value in choice) or "fastest"


@dataclass
class Method:
    """How a sweep measures, and its summary of all cases."""

    session: Session
    budget: float = 0.5
    checks: bool = True
    tune: bool = False
    # Best rates so far, by kernel and dtype: calls that would take too long are not even checked.
    rates: dict[tuple[str, torch.dtype], float] = field(default_factory=dict)

    def describe(self, cases: Iterable[Case] = ()) -> dict[str, Any]:
        return {**self.session.describe(), "budget_seconds": self.budget, "checked": self.checks}

    def begin(self, case: Case) -> None:
        """Before each case."""

    def memory_limit(self, instance: Instance) -> MemoryLimit:
        """The limit of an instance whose rate is in bytes."""
        return instance.memory_limit()

    def summary(self, cases: list[Case], found: list[list[Measurement]]) -> dict[str, Any]:
        """The summary of the rows of all cases."""
        return {"geometric_means": group_means(row for rows in found for row in rows)}

    def measure(
        self,
        case: Case,
        instance: Instance,
        calls: dict[str, Any],
        estimates: dict[str, float],
        rounds: int | None,
    ) -> tuple[Interleaved, dict[str, dict[str, Any] | None]]:
        """Samples of all calls, and the values of the sensors for each."""
        start = self.session.now()
        timer = self.session.timer
        samples = interleave(
            calls,
            budget=self.budget,
            estimates=estimates,
            min_rounds=8 if self.session.device == "cuda" else 4,
            timer=timer,
            rounds=rounds,
        )
        return samples, dict.fromkeys(calls, self.session.sensors.since(start))


def _expected(method: Method, instance: Instance, kernel: str) -> float | None:
    rate = method.rates.get((kernel, instance.problem.dtype))
    return instance.problem.work / rate if rate else None


def _prepare(
    case: Case, instance: Instance, method: Method
) -> tuple[dict[Choice, Measurement], dict[str, Any], dict[str, float]]:
    """A row for every choice of the case; and the calls that are correct and short enough, with estimates."""
    session = method.session
    reference = Reference(instance) if method.checks else None
    with _failing(lambda: instance.problem.baseline):
        baseline = session.baseline_seconds(instance)
    longest = LONGEST_IN_LADDER if case.slow_rungs else LONGEST_IN_SWEEP
    rows, calls, estimates = {}, {}, {}
    for choice in case.choices:
        if case.optional and not is_in_table(instance, choice):
            continue
        wanted: dict[str, Any] = dict(choice)
        name, call = choice_text(choice), instance.ours(**wanted)
        row = Measurement.of(instance, "", wanted.get("level"), group=case.group, choice=name)
        try:
            row.kernel = kernel_name(instance, choice)
            row.message = session.too_long(
                _expected(method, instance, row.kernel), baseline, LONGEST_IN_SWEEP
            )
            outcome = session.run_checked(call, reference) if reference and not row.message else None
        except (RuntimeError, ValueError) as refusal:
            if case.optional and REFUSAL in str(refusal):
                continue
            row.right, row.message = False, raised(refusal)
            outcome = None
        rows[choice] = row
        if outcome:
            row.checked(outcome)
        if row.right and not row.message:
            with _failing(partial(str, row.kernel)):
                estimate = session.estimate(call, outcome)
            row.message = session.too_long(estimate, baseline, longest)
            if not row.message:
                calls[name] = call
                if estimate is not None:
                    estimates[name] = estimate
    return rows, calls, estimates


def run_case(case: Case, method: Method, *, rounds: int | None = None) -> list[Measurement]:
    """Checks, then times, every choice of a case and torch, with the threads torch has now."""
    with torch_precision(case.problem):
        return _run_case(case, method, rounds)


NO_KERNEL = " (no kernel had run: this was for the operands and the result)"


class CaseFailed(RuntimeError):
    """The error of a case, and the kernel or call that raised it."""

    def __init__(self, kernel: str, error: Exception) -> None:
        super().__init__(raised(error) + ("" if kernel else NO_KERNEL))
        self.kernel = kernel


@contextlib.contextmanager
def _failing(kernel: Callable[[], str]) -> Iterator[None]:
    """If the ``with`` block raises, the error names the kernel."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, CaseFailed):
            raise
        raise CaseFailed(kernel(), error) from error


def _which_fails(calls: dict[str, Any], kernels_of: dict[str, str]) -> str:
    """Calls each kernel once more. Returns the name of the first one that raises, or all names if none raises
    again."""
    for name, call in calls.items():
        try:
            call()
        except (RuntimeError, MemoryError):
            return kernels_of.get(name, name)
    return " or ".join(kernels_of.get(name, name) for name in calls)


def run_or_report(case: Case, method: Method) -> list[Measurement]:
    """The rows of a case; if it raises, a failed row, so that earlier measurements are not lost."""
    try:
        return run_case(case, method)
    except (RuntimeError, MemoryError) as error:
        problem = case.problem
        names = problem.op, problem.shape, label(problem), dtype_name(problem.dtype), problem.layout
        failed = Measurement(*names, threads=0, kernel="", level=None, group=case.group, right=False)
        failed.message = raised(error)
        if isinstance(error, CaseFailed):
            failed.kernel, failed.message = error.kernel, str(error)
        return [failed]


def _run_case(case: Case, method: Method, rounds: int | None) -> list[Measurement]:
    problem, session = case.problem, method.session
    with _failing(lambda: ""):
        instance = instantiate(problem, device=session.device, allocate=case.allocate, in_bytes=case.in_bytes)
    if method.tune and problem.op != "add":
        autotune(*instance.operands, precision=problem.precision)
    rows, calls, estimates = _prepare(case, instance, method)
    if not calls:
        return list(rows.values())
    torch_call = instance.torch()
    if torch_call is not None:
        calls[BASELINE] = torch_call
    limit = method.memory_limit(instance) if instance.in_bytes else None
    if limit:
        calls[LIMIT] = limit.call
    names = {choice_text(choice): row.kernel for choice, row in rows.items()} | {BASELINE: problem.baseline}
    with _failing(lambda: _which_fails(calls, names)):
        samples, readings = method.measure(case, instance, calls, estimates, rounds)
    for choice, row in rows.items():
        name = choice_text(choice)
        if name in calls:
            _fill(row, instance, samples, name, readings, session, limit)
            assert row.seconds
            key = row.kernel, problem.dtype
            method.rates[key] = max(method.rates.get(key, 0.0), problem.work / row.seconds.median)
    found = list(rows.values())
    if torch_call is not None:
        row = Measurement.of(instance, problem.baseline, None, role="baseline", group=case.group)
        _fill(row, instance, samples, BASELINE, readings, session, limit)
        found.append(row)
    if limit and session.device == "cuda":
        row = Measurement.of(instance, limit.name, None, role="limit", group=case.group)
        _fill(row, instance, samples, LIMIT, readings, session, limit)
        row.rate = row.limit
        found.append(row)
    return found


def _fill(
    row: Measurement,
    instance: Instance,
    samples: Interleaved,
    name: str,
    readings: dict[str, dict[str, Any] | None],
    session: Session,
    limit: MemoryLimit | None,
) -> None:
    """The row of a measured call, with its limit: that of memory, or the arithmetic peak."""
    row.timed(instance, samples, name, BASELINE)
    row.telemetry = readings[name]
    row.joules = row.telemetry.get("joules_per_call") if row.telemetry else None
    if limit:
        row.against(limit.bytes / samples.seconds(LIMIT).median / instance.unit[1], limit.name)
    else:
        row.against(*session.arithmetic_peak(instance, row.telemetry))


def group_means(rows: Iterable[Measurement]) -> dict[str, dict[str, float | int]]:
    """Geometric mean of the speedup over torch, and the least, per group and choice of a kernel."""
    timed = [(row, row.speedup) for row in rows if row.role not in ("baseline", "limit") and row.speedup]
    choices: dict[str, set[str]] = {}
    for row, _ in timed:
        choices.setdefault(row.group, set()).add(row.choice)
    found: dict[str, list[float]] = {}
    for row, speedup in timed:
        name = row.group if len(choices[row.group]) == 1 else f"{row.group}, {row.choice}"
        found.setdefault(name, []).append(speedup.median)
    return {
        name: {"speedup": geometric_mean(values), "least": min(values), "problems": len(values)}
        for name, values in found.items()
    }


def run_sweep(
    cases: list[Case],
    *,
    device: str = "cpu",
    threads: int | None = None,
    budget: float = 0.5,
    checks: bool = True,
    tune: bool = False,
    timer: Timer | None = None,
    sensors: Sensors | None = None,
    make: Callable[[Session, float, bool, bool], Method] = Method,
    progress: Callable[[str, float], None] = lambda text, share: None,
    on_rows: Callable[[list[Measurement]], None] = lambda rows: None,
) -> Report:
    """Runs all cases, by the method that ``make`` makes. A case's own thread count goes before ``threads``."""
    with using_threads(threads), Session(device, timer, sensors) as session:
        method = make(session, budget, checks, tune)
        report = Report("bench", describe(device), method.describe(cases))
        found = []
        for i, case in enumerate(cases):
            progress(case.group, i / len(cases))
            method.begin(case)
            with using_threads(case.threads):
                found.append(run_or_report(case, method))
            on_rows(found[-1])
        report.summary = method.summary(cases, found)
        report.environment["load"] = asdict(session.load.load())
        report.results = [row for rows in found for row in rows]
    return report
