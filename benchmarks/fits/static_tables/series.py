"""Times every kernel that may be the fastest at the points of the static tables."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from fastgemm.bench.environment import using_threads
from fastgemm.bench.problems import Call, Instance, instantiate
from fastgemm.bench.session import REFUSAL, Session
from fastgemm.bench.timing import Interleaved, interleave
from fastgemm.table import LOWER_PRECISIONS, KernelInfo, kernels
from points import Point
from rich.progress import track

from .generate import LIBRARIES, winner
from .grid import Sizes, dtypes_of, grid_of, problem_at, work_of

TENSOR_CORES = 6  # the level
LOWEST_LEVEL = {"cpu": 4, "cuda": 2}
SLOW = {"cpu": 0.1, "cuda": 0.0005}  # a far slower kernel that takes at least these seconds is left out
HOPELESS = 3  # a kernel this many times as slow as the fastest in its first samples gets no more
# cuBLASLt's other candidates gain nothing in long calls, and long calls take seconds to time.
OTHER_CANDIDATES, LONG = ("cublaslt_2", "cublaslt_3", "cublaslt_4"), 0.005
YARDSTICKS = ("torch", "cublaslt_1")  # measured beside kernels that are otherwise measured alone
SUPERSEDED = ("wmma", "wgmma")  # a later rung of level 6 is faster than these at every problem
# Only own kernels have these precisions. They are timed together with IEEE kernels, which may serve them, too.
BESIDE_IEEE = ("bf16x3", "fp16x3")


def candidates_of(op: str, device: str, dtype: torch.dtype, precision: str | None) -> list[KernelInfo]:
    """The rungs that may win. A kernel of IEEE precision is accurate enough for every precision of float32. bf16x3
    and fp16x3 are timed beside it (BESIDE_IEEE)."""
    rows = [row for row in kernels(op, device, dtype) if row.role == "rung" and row.available]
    rows = [row for row in rows if row.level >= LOWEST_LEVEL[device] and row.name not in SUPERSEDED]
    if dtype != torch.float32 or device != "cuda":
        return rows
    precisions = ("ieee", precision) if precision else ("ieee", *BESIDE_IEEE)
    return [row for row in rows if row.level > TENSOR_CORES or row.precision in precisions]


class Series:
    """The points of one op, dtype, precision and thread count, measured from little work to much.

    A kernel that is HOPELESS by its best rate so far is left out. On a GPU its first samples decide, too.
    """

    def __init__(
        self,
        op: str,
        name: str,
        precision: str | None,
        session: Session,
        budget: float,
        slowest: float,
        only: list[str] | None = None,
    ):
        self.op, self.name, self.dtype, self.precision = op, name, dtypes_of(op)[name], precision
        self.session, self.budget, self.slowest = session, budget, slowest
        rows = candidates_of(op, session.device, self.dtype, precision)
        self.candidates = [row for row in rows if not only or row.name in (*only, *YARDSTICKS)]
        self.rates: dict[str, float] = {}

    def _hopeless(self, seconds: dict[str, float], least: float = 0.0) -> set[str]:
        """Kernels that take at least ``least`` seconds, and HOPELESS times as long as the fastest kernel of usual
        precision. On a GPU the libraries stay, because speeds are relative to theirs."""
        split = {row.name for row in self.candidates if row.precision in BESIDE_IEEE}
        usual = min((spent for name, spent in seconds.items() if name not in split), default=math.inf)
        kept = LIBRARIES if self.session.device == "cuda" else ()
        return {
            name
            for name, spent in seconds.items()
            if name not in kept and spent >= max(least, HOPELESS * usual)
        }

    def _calls(self, instance: Instance) -> dict[str, Call]:
        work = instance.problem.work
        known = {name: work / rate for name, rate in self.rates.items()}
        if min(known.values(), default=0.0) > self.slowest:
            return {}
        hopeless = self._hopeless(known, SLOW[self.session.device])
        calls = {}
        for row in self.candidates:
            call = self._call(instance, row)
            if row.name not in hopeless and self._takes(call):
                calls[row.name] = call
        return calls

    def _call(self, instance: Instance, row: KernelInfo) -> Call:
        if row.precision in BESIDE_IEEE and self.op == "gemm":
            instance = replace(instance, problem=replace(instance.problem, precision=row.precision))
        return instance.ours(kernel=row.name)

    def _takes(self, call: Call) -> bool:
        """Whether the kernel takes the problem. Only libraries on a GPU may refuse it."""
        if self.session.device == "cpu":
            return True
        try:
            call()
        except RuntimeError as refusal:
            if REFUSAL in str(refusal):
                return False
            raise
        return True

    def _time(self, calls: dict[str, Call]) -> Interleaved:
        """Times the calls. On a GPU, kernels that are hopeless from the start are left out."""
        first: dict[str, float] = {}
        if self.session.device == "cuda":
            sample = self.session.timer.sample
            first = {name: sample(call, 1) for name, call in calls.items()}
            first |= {
                name: min(spent, sample(calls[name], 1)) for name, spent in first.items() if spent < LONG
            }
            hopeless = self._hopeless(first) | {
                name for name, spent in first.items() if name in OTHER_CANDIDATES and spent > LONG
            }
            calls = {name: call for name, call in calls.items() if name not in hopeless}
        long = max(first.values(), default=0.0) > LONG
        options = {"budget": self.budget, "max_rounds": 32, "timer": self.session.timer}
        options |= {"min_rounds": 2} if long else {}
        return interleave(calls, estimates={name: first[name] for name in calls if name in first}, **options)

    def measure(self, sizes: Sizes, layout: str = "NN") -> list[Point]:
        """The point in each precision of its kernels. Empty if even the fastest kernel would take too long."""
        problem = problem_at(self.op, sizes, layout, self.dtype, self.precision)
        instance = instantiate(problem, device=self.session.device)
        calls = self._calls(instance)
        if not calls:
            return []
        samples = self._time(calls)
        seconds = {name: samples.seconds(name).median for name in calls if samples.has(name)}
        for name, spent in seconds.items():
            self.rates[name] = max(self.rates.get(name, 0.0), instance.problem.work / spent)
        batch, m, n, k = sizes
        transposed = {f"{x}_transposed": letter == "T" for x, letter in zip("ab", layout, strict=True)}
        gpu = instance.device == "cuda"
        point = {"op": self.op, "dtype": self.name, "threads": instance.threads}
        point |= {"batch": batch, "m": m, "n": n, "k": k, **(transposed if gpu else {})}
        if not gpu:
            levels = {row.name: row.level for row in self.candidates}
            point["kernel"] = winner(samples, levels, seconds)
        rounded = {name: float(f"{spent:.4g}") for name, spent in seconds.items()}
        return [point | found for found in self._by_precision(rounded)]

    def _by_precision(self, seconds: dict[str, float]) -> Iterator[Point]:
        """The kernels' times for the point of each precision. torch has no split precision."""
        of = {row.name: row.precision for row in self.candidates}
        split = [precision for precision in BESIDE_IEEE if precision in of.values()]
        named = {"precision": self.precision} if self.precision else {}
        yield named | {"seconds": {name: spent for name, spent in seconds.items() if of[name] not in split}}
        for precision in split:
            able = (precision, "ieee")
            found = {name: spent for name, spent in seconds.items() if of[name] in able and name != "torch"}
            yield {"precision": precision, "seconds": found}


@dataclass(frozen=True)
class Wanted:
    """What to measure. ``dtypes``: names of types and of precisions of float32. ``kernels``: None for all."""

    ops: list[str]
    dtypes: list[str] | None
    threads: list[int]
    device: str = "cpu"
    parts: list[str] | None = None
    least_work: float = 0
    kernels: list[str] | None = None

    def series(self) -> Iterator[tuple[str, str, str | None, int]]:
        for op in self.ops:
            all_series = [(name, None) for name in dtypes_of(op)]
            if (op, self.device) == ("gemm", "cuda"):
                all_series += [("float32", p) for p in LOWER_PRECISIONS if p not in BESIDE_IEEE]
            for name, precision in all_series:
                if not self.dtypes or (precision or name) in self.dtypes:
                    yield from ((op, name, precision, count) for count in self.threads)

    def grid(self, op: str) -> list[tuple[Sizes, str]]:
        return [p for p in grid_of(op, self.device, self.parts) if work_of(op, p[0]) >= self.least_work]


def measure(wanted: Wanted, budget: float, slowest: float, limit: float = math.inf) -> list[Point]:
    """All points. After ``limit`` seconds the current series ends early, and later series are missing."""
    points, start = [], time.monotonic()
    with Session(wanted.device) as session:
        for op, name, precision, count in wanted.series():
            series = Series(op, name, precision, session, budget, slowest, wanted.kernels)
            title = f"{op} {precision or name}, " + (
                f"{count} thread(s)" if wanted.device == "cpu" else "GPU"
            )
            grid, began, before = wanted.grid(op), time.monotonic(), len(points)
            with using_threads(count):
                for done, (sizes, layout) in enumerate(track(grid, title, transient=True)):
                    if time.monotonic() - start > limit:
                        print(f"{title}: out of time after {done} of {len(grid)} problems")
                        return points
                    points += series.measure(sizes, layout)
            print(f"{title}: {len(points) - before} points in {time.monotonic() - began:.0f} s")
    return points
