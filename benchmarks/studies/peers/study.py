"""Sets up, checks and times all contenders, in one process and on the same data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from fastgemm.bench.checking import error_bound, in_float64, poison, sampled_rows
from fastgemm.bench.problems import Gemm, Instance, instantiate
from fastgemm.bench.records import Measurement, Report
from fastgemm.bench.session import Session
from fastgemm.bench.timing import Interleaved, interleave
from torch import Tensor

from studies.environment import describe
from studies.telemetry import sensors_of
from studies.timers import BatchTimer

from . import own, vendor, with_jax, with_triton
from .contenders import (
    COMPILE,
    CUBLAS,
    FASTGEMM,
    GROUPS,
    JAX,
    MATMUL,
    PRESET,
    TRITON,
    Contender,
    contenders,
    problems,
)
from .prepared import NotInstalledError, Prepared

MAKERS: dict[str, Callable[[Contender, Instance], Prepared]] = {
    FASTGEMM: own.own,
    MATMUL: own.matmul,
    COMPILE: own.compiled,
    CUBLAS: vendor.emulated,
    TRITON: with_triton.product,
    JAX: with_jax.product,
}
ROWS = 256  # rows that are checked
BUDGET, SETUP = 0.1, 25.0  # seconds: to time a contender on a problem; to set up a product, in all
KEPT = 200  # characters of a peer's error message


class Exact:
    """Some rows of a product, computed in float64 on the CPU, and the errors of a result there."""

    def __init__(self, instance: Instance):
        a, b = instance.operands
        rows = a.shape[0]
        index = sampled_rows(rows, ROWS) if rows > ROWS else torch.arange(rows)
        value, magnitudes = in_float64(a.index_select(0, index.to(a.device)).cpu(), b.cpu())
        self._k, self.checked = a.shape[1], rows if rows <= ROWS else ROWS
        self._index, self._value, self._magnitudes = (x.to(a.device) for x in (index, value, magnitudes))

    def errors(self, result: Tensor, precision: str | None) -> tuple[float, float]:
        """The largest |C - float64's| / (|A| |B|), and the largest error in units of its bound. NaN stays."""
        picked = result.index_select(0, self._index)
        difference = (picked.double() - self._value).abs_()
        bound = error_bound(self._value, self._magnitudes.clone(), self._k, result.dtype, precision)
        return float((difference / self._magnitudes).max()), float((difference / bound).max())


class Setup:
    """Sets up contenders. Each kind of product has a time limit for all its set-ups."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._spent: dict[str, float] = {}

    def prepare(
        self, contender: Contender, instance: Instance, row: Measurement
    ) -> tuple[Prepared, Any] | None:
        """A call and its first result, or None and a message in ``row``."""
        spent = self._spent.get(contender.product, 0.0)
        if spent > self._seconds:
            row.message = f"left out: {self._seconds:.0f} s of set-up were used up"
            return None
        start = time.perf_counter()
        try:
            prepared = MAKERS[contender.product](contender, instance)
            poison(instance.out)
            with prepared.inside():
                result = prepared()
                prepared.finish(result)
        except NotInstalledError as error:
            row.message = str(error)
            return None
        except Exception as error:  # compilers raise anything
            text = " ".join(str(error).split())[:KEPT]
            row.message = f"refused: {type(error).__name__}: {text}"
            row.right = not (contender.is_own or contender.is_baseline)
            return None
        finally:
            row.setup_seconds = time.perf_counter() - start
            self._spent[contender.product] = spent + row.setup_seconds
        row.kernel = prepared.name
        return prepared, result


def _is_right(exact: Exact, prepared: Prepared, result: Any, contender: Contender, row: Measurement) -> bool:
    """Whether a first result is within its bound. A peer's wrong result is reported, but is no failure."""
    error, worst = exact.errors(prepared.as_tensor(result), contender.precision)
    row.component_error, row.worst_error, row.rows_checked = error, worst, exact.checked
    if worst <= 1:
        return True
    row.message = f"wrong: {worst:.3g} times its bound"
    row.right = not (contender.is_own or contender.is_baseline)
    return False


def _time(calls: dict[str, Prepared], session: Session, budget: float) -> tuple[Interleaved, Interleaved]:
    """Times batches of all calls, and single calls with a cold cache if events can time them."""
    least = 8 if session.device == "cuda" else 4
    seen = {name: call for name, call in calls.items() if call.on_stream}

    class Inside:
        """The session's timer, in the context that a call needs."""

        min_sample, overhead = session.timer.min_sample, session.timer.overhead

        @staticmethod
        def sample(call: Prepared, repeats: int) -> float:
            with call.inside():
                return session.timer.sample(call, repeats)

    cold = interleave(seen, budget=budget, min_rounds=least, timer=Inside())
    return cold, interleave(calls, budget=budget, min_rounds=4, timer=BatchTimer())


def measure(group: str, problem: Gemm, session: Session, setup: Setup, budget: float) -> list[Measurement]:
    """A row for every contender on a problem, even if it could not run."""
    instance = instantiate(problem, device=session.device, in_bytes=min(problem.shape) == 1)
    exact = Exact(instance)
    rows: dict[str, Measurement] = {}
    calls: dict[str, Prepared] = {}
    baseline = ""
    for contender in contenders(problem):
        name = f"{contender.product}, {contender.asked}"
        baseline = name if contender.is_baseline else baseline
        role = "baseline" if contender.is_baseline else "rung" if contender.is_own else "peer"
        row = rows[name] = Measurement.of(
            instance, contender.product, contender.level, role=role, group=group
        )
        row.choice, row.precision = contender.asked, contender.precision or ""
        found = setup.prepare(contender, instance, row)
        if found and _is_right(exact, *found, contender, row):
            calls[name] = found[0]
    start = session.now()
    cold, batches = _time(calls, session, budget)
    reading = session.sensors.since(start)
    for name in calls:
        row = rows[name]
        row.telemetry, row.baseline = reading, baseline
        row.back_to_back = batches.seconds(name)
        row.back_to_back_rate = instance.work / row.back_to_back.median / instance.unit[1]
        if cold.has(name):
            row.seconds = cold.seconds(name)
            row.rate = instance.work / row.seconds.median / instance.unit[1]
        if name != baseline and batches.has(baseline):
            row.speedup = batches.speedup(name, over=baseline)
    return list(rows.values())


def run_peers(
    device: str = "cuda",
    *,
    budget: float | None = None,
    setup: float | None = None,
    cases: Iterable[tuple[str, Gemm]] | None = None,
    progress: Callable[[str, float], None] = lambda text, share: None,
) -> Report:
    """Measures every product by every contender.

    Args:
        device: ``"cuda"``; with ``"cpu"``, only the contenders for CPUs run.
        budget: seconds to time a contender on a problem, by each method.
        setup: seconds that a product may take for compilation and autotuning, on all problems together.
        cases: groups and products; default: those of the preset.
        progress: receives the current problem and the share that is done.
    """
    cases = list(problems() if cases is None else cases)
    ready = Setup(SETUP if setup is None else setup)
    with torch.no_grad(), Session(device, sensors=sensors_of(device)) as session:
        method = {**session.describe(), "back_to_back": BatchTimer.method, "presets": [PRESET]}
        method |= {"budget_seconds": budget or BUDGET, "setup_seconds": SETUP if setup is None else setup}
        report = Report("bench", describe(device), method)
        for i, (group, problem) in enumerate(cases):
            progress(f"{group} {'x'.join(map(str, problem.shape))}", i / len(cases))
            report.results += measure(group, problem, session, ready, budget or BUDGET)
    report.results.sort(key=lambda row: (GROUPS.index(row.group), row.shape))
    report.environment["peers"] = {TRITON: with_triton.version(), JAX: with_jax.version()}
    return report
