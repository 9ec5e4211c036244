"""Presets consist of contests. A contest is a problem and the calls that solve it. The calls are checked, and
then timed in turns."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import torch
from exact import Exact
from fastgemm._introspect import take_last_gemm_kernel
from fastgemm.bench.checking import raised
from fastgemm.bench.cuda_timing import CudaTimer
from fastgemm.bench.problems import ARITHMETIC, Gemm, dtype_name, label_of, torch_precision
from fastgemm.bench.records import Measurement, Report
from fastgemm.bench.timing import CpuTimer, Timer, interleave
from studies.environment import describe
from studies.timers import Pace
from torch import Tensor


@dataclass(frozen=True)
class Settings:
    """The settings of a preset.

    Attributes:
        seconds: time limit of the whole preset.
        budget: seconds for each call (for the preset grid: for all calls); None: what ``seconds`` allows.
        most: measures only this many of the preset's first problems.
        seed: for random numbers; None: a fresh one.
        out: the folder of the results.
        types: names of the types of the preset grid; empty: all types.
        all: measures all problems of the preset grid.
        say: called with the rows of each problem.
        progress: called with the current problem and the share that is done.
    """

    device: str
    seconds: float = 0.0
    budget: float | None = None
    most: int | None = None
    seed: int | None = None
    out: Path = Path()
    say: Callable[[list[Measurement]], None] = lambda rows: None
    progress: Callable[[str, float], None] = lambda text, share: None
    types: tuple[str, ...] = ()
    all: bool = False

    @property
    def a_seed(self) -> int:
        return secrets.randbits(32) if self.seed is None else self.seed

    def budget_of(self, calls: int) -> float:
        """Seconds for each of ``calls`` calls. Half of the seconds are kept for work that is not timed."""
        return self.budget or Pace(self.seconds, 1).budget(calls)


@dataclass(frozen=True)
class Preset:
    """``seconds``: the usual time, by device. ``obstacle``: why the preset cannot run. ``by_name``: it runs only
    if the command names it, because it takes long."""

    seconds: Mapping[str, float]
    measure: Callable[[Settings], Report]
    obstacle: Callable[[str], str] = lambda device: ""
    by_name: bool = False


@dataclass(frozen=True)
class Contest:
    """Calls that compute the same result.

    Attributes:
        calls: the calls, by contender's name.
        baseline: ratios compare with this contender, if it can run. beside: further contenders to compare with.
        check: computes fields of a contender's row from its result: right, message, component_error, more.
        operations: the number of operations in one call; None: that of a product; 0: no rate is shown.
        timed: if False, results are checked but not timed.
    """

    calls: Mapping[str, Callable[[], Tensor]]
    shape: tuple[int, ...]
    dtype: str
    baseline: str = "torch"
    beside: tuple[str, ...] = ()
    check: Callable[[str, Tensor], dict[str, Any]] = lambda name, result: {}
    operations: float | None = None
    timed: bool = True
    about: dict[str, Any] = field(default_factory=dict)  # further fields of all rows

    def run(self, budget: float, timer: Timer) -> list[Measurement]:
        """A row for each contender."""
        precision = self.about.get("precision") or None
        with torch.no_grad(), torch_precision(Gemm(1, 1, 1, precision=precision)):
            rows = {name: row for name in self.calls if (row := self._checked(name, timer))}
            if self.timed:
                self._time(rows, budget, timer)
        return list(rows.values())

    def _checked(self, name: str, timer: Timer) -> Measurement | None:
        """The row of one contender; None if the baseline library has no such product."""
        take_last_gemm_kernel()
        try:
            result = self.calls[name]()
        except RuntimeError:
            if name != self.baseline:
                raise
            return None
        row = Measurement(shape=self.shape, dtype=self.dtype, choice=name, **self.about)
        row.label = row.label or label_of(self.shape, row.layout)
        row.threads = torch.get_num_threads() if timer.name == "cpu" else 0
        row.kernel, row.baseline = take_last_gemm_kernel(), self.baseline
        for key, value in self.check(name, result).items():
            setattr(row, key, value)
        if name == self.baseline:
            row.role, row.right = "baseline", True  # the baseline's error is not checked
        return row

    def _time(self, rows: dict[str, Measurement], budget: float, timer: Timer) -> None:
        samples = interleave({name: self.calls[name] for name in rows}, budget=budget, timer=timer)
        whole = not ARITHMETIC.get(self.dtype, torch.float32).is_floating_point
        unit, scale = ("GFLOPS", 1e9) if timer.name == "cpu" else ("TOPS" if whole else "TFLOPS", 1e12)
        operations = 2.0 * prod(self.shape) if self.operations is None else self.operations
        for name, row in rows.items():
            row.seconds = samples.seconds(name)
            if operations:
                row.unit, row.rate = unit, operations / row.seconds.median / scale
            if name == self.baseline:
                continue
            if self.baseline in rows:
                row.speedup = samples.speedup(name, over=self.baseline)
            if self.beside and name not in self.beside:
                row.more["over"] = {other: samples.speedup(name, over=other).median for other in self.beside}


def product(
    a: Tensor,
    b: Tensor,
    ways: Mapping[str, Callable[[Tensor, Tensor], Tensor]],
    *,
    precision: str = "",
    layout: str = "",
    group: str = "",
    **more: Any,
) -> Contest:
    """A contest for a @ b; each contender's result is compared with the exact value."""
    exact, shape = Exact(a, b), (a.shape[0], b.shape[1], a.shape[1])
    more.setdefault("check", lambda name, result: exact.check(result, precision))
    about = {"precision": precision, "layout": layout, "group": group}
    calls = {name: partial(way, a, b) for name, way in ways.items()}
    return Contest(calls, shape, dtype_name(a.dtype), about=about, **more)


def torch_product(a: Tensor, b: Tensor) -> Tensor:
    """torch's product. Raises RuntimeError if torch has none."""
    return torch._int_mm(a, b) if a.dtype == torch.int8 else a @ b


def cubes(*sizes: int) -> list[tuple[int, int, int]]:
    return [(n, n, n) for n in sizes]


def of_contests(
    name: str, problems: Mapping[str, Sequence[tuple]], contest: Callable[..., Contest]
) -> Callable[[Settings], Report]:
    """A function that measures a preset: ``contest(device, *problem)`` for each problem of the device."""

    def measure(settings: Settings) -> Report:
        device, chosen = settings.device, problems[settings.device][: settings.most]
        timer: Timer = CudaTimer() if device == "cuda" else CpuTimer()
        report = Report(name, describe(device), {"timer": timer.name, "text": timer.method})
        pace = Pace(settings.seconds, len(chosen))
        for i, problem in enumerate(chosen):
            settings.progress(name, i / len(chosen))
            try:
                one = contest(device, *problem)
                rows = one.run(settings.budget or pace.budget(len(one.calls)), timer)
            except (RuntimeError, MemoryError) as error:  # go on with the other problems
                rows = [Measurement(label=str(problem), right=False, message=raised(error))]
            settings.say(rows)
            report.results += rows
        return report

    return measure
