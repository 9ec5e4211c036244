"""Ordinary products of 16-bit types, in CUDA graphs with rotating operands, and in eager mode.

Weights are cold: there are up to 16 sets of weights, which together exceed three times the L2 cache if 16 are
enough. Activations are warm: there are two. torch, level=None, and torch in a patch with tune=True are timed
beside cuBLASLt's candidates and own kernels of levels 5 and 6. The file keeps the best candidate and the best own
kernel.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import fastgemm
import torch
from contests import Preset, Settings
from exact import Exact
from fastgemm import _introspect, _load_choices
from fastgemm.bench.checking import raised
from fastgemm.bench.cuda_timing import SPIN_CYCLES, CudaTimer
from fastgemm.bench.problems import dtype_name, label_of, random_matrix
from fastgemm.bench.records import Measurement, Report
from fastgemm.bench.session import REFUSAL
from fastgemm.bench.timing import Call, Interleaved, Timer, interleave
from fastgemm.table import kernels
from studies.environment import describe, folder_of
from studies.grid_means import DEFAULT, LIBRARY, OWN, TORCH, TUNED, means, slower
from studies.layers import Shape, drawn
from studies.reports import read_report
from studies.timers import WallTimer
from torch import Tensor

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
LAYOUTS = ("NT", "NN")  # NT: weights as torch.nn.Linear has them
CACHE = "FASTGEMM_CACHE_DIR"
COUNT, SEED = 60, 1  # problems for each type and layout
CALLS, MOST_SETS, ACTIVATIONS = 20, 16, 2
FEW = 6  # own kernels to try in any case, those with the least predicted times
HOPELESS = 2.0  # a contestant this many times as slow as the best in its first sample is not sampled again
LEAST_ROUNDS, MOST_ROUNDS = 8, 32
EAGER_SAMPLE = 1e-3  # least seconds for a sample of plain calls; the final wait for the GPU is included


class GraphTimer(CudaTimer):
    """Times replays between two events. Before them, a kernel spins while the host launches the replays."""

    name = "CUDA graphs"
    method = (
        "CUDA events around replays of a graph of about 20 calls, which rotate over weights of more than three "
        "times the L2 cache, at most 16, and over two activations; contestants in changing order, median over at "
        "least 8 rounds; eager (torch, level=None): wall clock of the same calls, from an idle GPU until the last "
        "has finished"
    )
    min_sample = 300e-6

    def __init__(self) -> None:
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sample(self, call: Call, repeats: int) -> float:
        torch.cuda._sleep(SPIN_CYCLES)
        return self.between_events(call, repeats)


def captured(calls: Sequence[Call]) -> Call:
    """Captures the calls in a CUDA graph, and returns its replay."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph.replay


@dataclass(frozen=True)
class Bench:
    """How calls are captured and timed. ``predict``: seconds of kernels by their names."""

    graph: Callable[[Sequence[Call]], Call]
    timer: Timer
    wall: Timer
    cache_bytes: int  # of L2
    predict: Callable[..., list[tuple[str, float]]]

    @classmethod
    def of_gpu(cls) -> Bench:
        cache = torch.cuda.get_device_properties().L2_cache_size
        return cls(captured, GraphTimer(), WallTimer(), cache, _introspect.predictions)


def rotation(weight_bytes: int, cache_bytes: int) -> list[tuple[int, int]]:
    """The indices of activation and weight for each call of a graph. Each weight is read equally often."""
    sets = min(MOST_SETS, 3 * cache_bytes // weight_bytes + 1)
    return [(i % ACTIVATIONS, i % sets) for i in range(sets * max(1, round(CALLS / sets)))]


def candidates(shape: Shape, dtype: torch.dtype, layout: str, device: str, bench: Bench) -> dict[str, str]:
    """The origin of each kernel, by name. The order is: cuBLASLt's kernels, own kernels by predicted time, own
    kernels without a prediction."""
    problem = (dtype_name(dtype), "ieee", 1, *shape, False, layout[1] == "T")
    predicted = dict(bench.predict(problem))
    rows = [row for row in kernels("gemm", device, dtype) if row.available and row.role != "pitfall"]
    own = [row.name for row in rows if row.level in (5, 6)]
    own.sort(key=lambda name: predicted.get(name, float("inf")))
    library = [row.name for row in rows if row.name.startswith("cublaslt_")]
    return dict.fromkeys(library, LIBRARY) | dict.fromkeys(own, OWN)


def tuned(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
    with fastgemm.patch(tune=True):
        return torch.matmul(a, b, out=out)


@dataclass
class Entry:
    """A contestant: its row, the calls of its graph, and the graph's replay."""

    row: Measurement
    calls: list[Call] = field(default_factory=list)
    replay: Call | None = None

    def call_all(self) -> None:
        for call in self.calls:
            call()


class Race:
    """The contestants of one problem. ``share``: seconds for the whole problem."""

    def __init__(
        self, shape: Shape, dtype: torch.dtype, layout: str, device: str, bench: Bench, share: float
    ):
        m, n, k = shape
        random = partial(random_matrix, dtype=dtype, device=device)
        self.bench, self.end, self.half = bench, time.perf_counter() + share, share / 2
        self.candidates = candidates(shape, dtype, layout, device, bench)
        self.plan = rotation(n * k * dtype.itemsize, bench.cache_bytes)
        sets = 1 + max(j for _, j in self.plan)
        self.a = [random(m, k) for _ in range(ACTIVATIONS)]
        self.b = [random(n, k).mT if layout[1] == "T" else random(k, n) for _ in range(sets)]
        self.out = [torch.empty(m, n, dtype=dtype, device=device) for _ in range(sets)]
        last_a, last_b = self.plan[-1]
        self.exact, self.last = Exact(self.a[last_a], self.b[last_b]), self.out[last_b]

    def left(self) -> float:
        return self.end - time.perf_counter()

    def entry(self, choice: str, multiply: Callable[..., Tensor]) -> Entry:
        """Makes the graph of a contestant, and checks the last result of its first replay."""
        calls: list[Call] = [partial(multiply, self.a[i], self.b[j], out=self.out[j]) for i, j in self.plan]
        _introspect.take_last_gemm_kernel()
        calls[0]()
        kernel = _introspect.take_last_gemm_kernel() or "torch.matmul"
        replay = self.bench.graph(calls)
        self.last.fill_(torch.nan)
        replay()
        row = Measurement(choice=choice, kernel=kernel, baseline=TORCH)
        if choice == TORCH:  # not checked, because torch may add parts of a sum in 16 bits
            row.role = "baseline"
        else:
            found = self.exact.check(self.last, "")
            row.right, row.message = found.get("right", True), found.get("message", "")
        return Entry(row, calls, replay)

    def entries(self) -> dict[str, Entry]:
        """Entries of all kernels that take the problem, and of those that fail with another error."""
        found = {TORCH: self.entry(TORCH, torch.matmul), DEFAULT: self.entry(DEFAULT, fastgemm.matmul)}
        for name, choice in self.candidates.items():
            own = sum(each.row.choice == OWN for each in found.values())
            if choice == OWN and own >= FEW and self.left() < self.half:
                break
            try:
                found[name] = self.entry(choice, partial(fastgemm.matmul, kernel=name))
            except (RuntimeError, MemoryError) as error:
                if REFUSAL not in str(error):
                    row = Measurement(choice=choice, kernel=name, right=False, message=raised(error))
                    found[name] = Entry(row)
        return found

    def timed(self, right: dict[str, Entry]) -> Interleaved:
        """Times the contestants that are not hopeless, and the best one of each choice."""
        timer = self.bench.timer
        first = {name: min(timer.sample(e.replay, 1) for _ in range(2)) for name, e in right.items()}
        best: dict[str, str] = {}
        for name in sorted(first, key=first.__getitem__):
            best.setdefault(right[name].row.choice, name)
        limit = HOPELESS * min(first.values())
        kept = {n: e.replay for n, e in right.items() if first[n] <= limit or n in best.values()}
        rounds = {"min_rounds": LEAST_ROUNDS, "max_rounds": MOST_ROUNDS}
        budget = max(0.0, self.left()) / 2 / len(kept)
        return interleave(kept, budget=budget, estimates=first, timer=timer, **rounds)

    def run(self) -> list[Measurement]:
        """Rows of torch, level=None, tune=True, the best candidate of cuBLASLt and the best own kernel. Wrong
        contestants also have a row, without a time."""
        entries = self.entries()
        eager = {name: entries[name].call_all for name in (TORCH, DEFAULT)}
        plain = interleave(eager, rounds=LEAST_ROUNDS, min_sample=EAGER_SAMPLE, timer=self.bench.wall)
        entries[TUNED] = self.entry(TUNED, tuned)  # from now on level=None takes what this found
        right = {name: each for name, each in entries.items() if each.row.right}
        samples = self.timed(right)
        winners: dict[str, str] = {}  # by choice
        for name in sorted(filter(samples.has, right), key=lambda name: samples.seconds(name).median):
            winners.setdefault(right[name].row.choice, name)
        for name in winners.values():
            row, calls = right[name].row, len(self.plan)
            row.seconds = samples.seconds(name).scaled(1 / calls)
            if name in eager:
                row.back_to_back = plain.seconds(name).scaled(1 / calls)
            if name != TORCH:
                row.speedup = samples.speedup(name, over=TORCH)
        return [e.row for name, e in entries.items() if not e.row.right or name in winners.values()]


def rows_of(shape: Shape, group: str, dtype: torch.dtype, layout: str, *where: Any) -> list[Measurement]:
    """The rows of a problem. If torch, level=None or tune=True failed, there is a single row with the error."""
    try:
        with torch.no_grad():
            rows = Race(shape, dtype, layout, *where).run()
    except (RuntimeError, MemoryError) as error:  # go on with the other problems
        rows = [Measurement(right=False, message=raised(error))]
    for row in rows:
        row.shape, row.dtype, row.layout, row.group = shape, dtype_name(dtype), layout, group
        row.label = label_of(shape, layout)
    return rows


def measure(settings: Settings, bench: Bench | None = None) -> Report:
    """Stops when the time is over. The report holds the number of problems that were not measured. What autotune
    and fastgemm.tune found earlier is not used."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get(CACHE)
        os.environ[CACHE] = folder
        _introspect.reset_predictions()
        fastgemm.tuning.clear_cache()
        try:
            return _measure(settings, bench)
        finally:
            os.environ.pop(CACHE)
            os.environ |= {} if before is None else {CACHE: before}
            fastgemm.tuning.clear_cache()
            _load_choices.load()


def _measure(settings: Settings, bench: Bench | None) -> Report:
    bench, device = bench or Bench.of_gpu(), settings.device
    end = time.perf_counter() + (settings.budget or settings.seconds)
    seed = SEED if settings.seed is None else settings.seed
    types = [TYPES[name] for name in settings.types or TYPES]
    shapes = drawn(seed, None if settings.all else COUNT)[: settings.most]
    problems = [(*each, dtype, layout) for each in shapes for dtype in types for layout in LAYOUTS]
    method = {"timer": bench.timer.name, "text": bench.timer.method, "seed": seed, "not_measured": 0}
    report = Report("grid", describe(device), method)
    for i, problem in enumerate(problems):
        left = end - time.perf_counter()
        if left <= 0:
            method["not_measured"] = len(problems) - i
            break
        settings.progress("grid", i / len(problems))
        rows = rows_of(*problem, device, bench, left / (len(problems) - i))
        settings.say(rows)
        report.results += rows
        if device == "cuda":
            torch.cuda.empty_cache()
    report.results += kept(settings, report, {dtype_name(each) for each in types})
    report.summary = {"means": means(report.results), "slower": slower(report.results)}
    return report


def kept(settings: Settings, report: Report, now: set[str]) -> list[Measurement]:
    """The file's rows of types that are not measured ``now``, if commit, device and seed are the same."""

    def origin(of: Report) -> tuple[Any, ...]:
        return of.environment["commit"], of.environment["device"], of.method["seed"]

    path = settings.out / folder_of(report.environment) / "grid.json"
    old = read_report(path) if path.exists() else report
    same = report.environment["commit"] and origin(old) == origin(report)
    return [row for row in old.results if same and row.dtype not in now]


PRESETS = {"grid": Preset({"cuda": 450}, measure, by_name=True)}
