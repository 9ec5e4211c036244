"""Measures which kernel is fastest where, and writes csrc/core/static_tables.cpp from all such measurements.

    python tools/make_static_tables.py                     measure this processor, then write the C++ table
    python tools/make_static_tables.py --device cuda       the same for this GPU
    python tools/make_static_tables.py --op gemm --dtype float32    measure again only this part of it
    python tools/make_static_tables.py --device cuda --part skinny --part odd     only these shapes
    python tools/make_static_tables.py --from-bench FILE   add what `fastgemm bench --json FILE` measured
    python tools/make_static_tables.py --from-json         write the C++ table, measure nothing
    python tools/make_static_tables.py --from-json --check fail if the C++ table is not what the JSON gives

Measurements are kept in benchmarks/results/<cpu or GPU>/tuning_<type>.json, one file for each type of processor
or GPU; the C++ table holds them all. Candidates are the rungs from level 4 up (2 on a GPU) and torch. What a point
names is decided in fastgemm.bench.static_tables, and for problems between the points in csrc/core/nearest.cpp.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastgemm
import torch
from fastgemm.bench import (
    Add,
    Gemm,
    Problem,
    Transpose,
    describe,
    instantiate,
    interleave,
    using_threads,
)
from fastgemm.bench.environment import usable_cores
from fastgemm.bench.problems import ARITHMETIC, LAYOUTS, Call, Instance
from fastgemm.bench.records import Report, read_report
from fastgemm.bench.session import REFUSAL, Session
from fastgemm.bench.static_tables import (
    BY_WIDTH,
    CPP_TYPES,
    FORMAT,
    LIBRARIES,
    PRECISIONS,
    Point,
    generate,
    order,
    winner,
)
from fastgemm.bench.timing import Interleaved
from fastgemm.table import KernelInfo
from rich.progress import track

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
TARGET = ROOT / "csrc" / "core" / "static_tables.cpp"
TENSOR_CORES = 6  # the level
LOWEST_LEVEL = {"cpu": 4, "cuda": 2}
SLOW = {"cpu": 0.1, "cuda": 0.0005}  # seconds from which a kernel far behind is left out
HOPELESS = 3  # times as slow as the fastest in its first samples: no more follow
SUPERSEDED = ("wmma", "wgmma")  # rungs of level 6 that a later one does everything better than
# Precisions of own kernels alone are timed together with IEEE, whose kernels may serve them as well.
BESIDE_IEEE = ("bf16x3", "fp16x3")

# What is measured: (batch, m, n, k). Squares, few rows or columns, short and long K, odd sizes, batches.
SQUARES = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
GEMM_GRID = [
    *((1, n, n, n) for n in SQUARES),
    *((1, m, n, n) for m in (1, 4, 16, 64) for n in (256, 1024, 4096)),
    *((1, n, m, n) for m in (1, 4, 16, 64) for n in (256, 1024, 4096)),
    *((1, n, n, k) for n, k in ((512, 1), (1024, 16), (1024, 64), (4096, 16), (4096, 64))),
    *((1, n, n, k) for n, k in ((1, 16384), (16, 4096), (16, 65536), (64, 4096), (64, 65536), (256, 16384))),
    *((1, *sizes) for sizes in ((63, 65, 127), (257, 255, 259), (1000, 777, 3001), (513, 1025, 2049))),
    *((b, n, n, n) for b, n in ((256, 16), (64, 64), (16, 256), (8, 512))),
]
TRANSPOSE_GRID = [
    *((1, n, n, 0) for n in (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3001, 4096, 6144)),
    *((1, *s, 0) for s in ((3, 1 << 20), (16, 65536), (64, 65536), (1 << 20, 3), (65536, 16), (65536, 64))),
    *((1, *s, 0) for s in ((1, 4096), (1000, 3001), (4097, 1023))),
    *((b, n, n, 0) for b, n in ((256, 32), (64, 128))),
]
ADD_GRID = [(1, 1, n, 0) for n in (64, 1024, 16384, 1 << 18, 1 << 22, 1 << 25)] + [(1, 1000, 3001, 0)]
GRIDS = {"gemm": GEMM_GRID, "transpose": TRANSPOSE_GRID, "add": ADD_GRID}

# On a GPU: a fine lattice of tiny sizes, where a kernel is late by its launch; a coarse one of all others; and
# sizes as chance has them, most of them odd, which costs libraries more than us.
TINY = tuple(
    (1, m, n, k)
    for m in (1, 4, 16, 32, 64, 128)
    for n in (1, 4, 16, 32, 64, 128)
    for k in (4, 16, 32, 64, 128)
)
COARSE = (16, 128, 1024, 4096)
CHANCE = random.Random(0)


def log_uniform(largest: int) -> int:
    return round(2 ** CHANCE.uniform(0, math.log2(largest)))


GENERAL = [
    *(s for s in itertools.product((1,), COARSE, COARSE, COARSE) if s not in TINY),
    *((1, n, n, n) for n in (192, 256, 384, 512, 768, 1536, 2048, 3072, 6144, 8192, 16384)),
    *((1, *s) for s in ((257, 129, 511), (513, 1025, 2049), (1000, 777, 3001), (4095, 4097, 4093))),
    *((1, *s) for s in ((1, 4096, 4096), (4096, 1, 4096), (4096, 4096, 1), (1, 1, 4096), (256, 256, 65536))),
    *((b, n, n, n) for b, n in ((256, 16), (64, 64), (64, 128), (16, 256), (8, 512), (8, 1024))),
    *((1, log_uniform(8192), log_uniform(8192), log_uniform(8192)) for _ in range(150)),
]
CHANCES = [(1, log_uniform(8192), log_uniform(8192), log_uniform(8192)) for _ in range(150)]

Sizes = tuple[int, int, int, int]

# Weights of a network, as rows and columns, with a few rows of activations before them or a few columns behind.
FEW = (1, 2, 4, 8, 16, 32, 64)
WEIGHTS = ((1024, 1024), (4096, 4096), (8192, 8192), (11008, 4096), (4096, 11008))
SKINNY = [
    *(((1, m, n, k), layout) for m in FEW for k, n in WEIGHTS for layout in ("NN", "NT")),
    *(((1, m, n, m), layout) for m, n in ((8, 4096),) for layout in ("NN", "NT")),
    *(((1, n, m, k), layout) for m in (1, 8, 64) for n, k in WEIGHTS[:3] for layout in ("NN", "TN")),
    *(
        ((1, m, n, k), layout)
        for m in (1, 8, 64)
        for k, n in ((4095, 4097), (2500, 1003))
        for layout in ("NN", "NT")
    ),
]
# A small result of a long sum.
LONG_K = [
    ((1, m, n, k), layout)
    for m, n, k in (
        *((n, n, k) for n in (1, 16, 64, 128, 256) for k in (16384, 65536)),
        *((512, 512, 16384), (64, 256, 65536), (129, 127, 32771), (33, 7, 20001)),
    )
    for layout in ("NN", "NT")
]
BATCHES = [
    ((b, n, n, n), layout)
    for b, n in (
        *((1024, 16), (256, 32), (64, 64), (512, 64), (64, 128), (256, 128), (32, 256), (16, 512)),
        *((512, 17), (128, 33), (64, 65), (64, 127), (32, 255)),
    )
    for layout in ("NN", "NT")
]
# Rows of A, of B, of the result, or of all of them that do not start at multiples of 16 bytes.
ODD = [
    ((1, *sizes), layout)
    for n in (256, 512, 1024, 2048, 4096)
    for sizes in ((n - 1, n + 1, n - 3), (n, n + 1, n), (n, n, n + 1))
    for layout in ("NN", "NT", "TN")
] + [((1, 1000, 3000, 777), layout) for layout in LAYOUTS]


def in_turns(grid: list[Sizes]) -> list[tuple[Sizes, str]]:
    """Squares from 256 up in every layout, the others in one: by their work, the layouts take turns."""
    turns = itertools.cycle(LAYOUTS)
    found = []
    for sizes in sorted(grid, key=lambda sizes: work_of("gemm", sizes)):
        square = sizes[0] == 1 and len(set(sizes[1:])) == 1 and sizes[1] >= 256
        found += [(sizes, layout) for layout in (LAYOUTS if square else (next(turns),))]
    return found


def gpu_parts() -> dict[str, list[tuple[Sizes, str]]]:
    """The products to measure on a GPU, by the part of the grid that ``--part`` names."""
    lattice = in_turns([*TINY, *GENERAL])
    return {
        "tiny": [point for point in lattice if point[0] in TINY],
        "general": [point for point in lattice if point[0] not in TINY],
        "chance": in_turns(CHANCES),
        "skinny": SKINNY,
        "long_k": LONG_K,
        "batches": BATCHES,
        "odd": ODD,
    }


PARTS = ("tiny", "general", "chance", "skinny", "long_k", "batches", "odd")
GPU_GRIDS = {
    "transpose": [
        *((1, n, n, 0) for n in (16, 64, 128, 256, 512, 1024, 2048, 4096, 8191, 8192, 16384)),
        *(
            (1, *s, 0)
            for s in ((3, 1 << 20), (16, 65536), (64, 65536), (1 << 20, 3), (65536, 16), (65536, 64))
        ),
        *((1, *s, 0) for s in ((1, 4096), (1000, 3001), (4097, 1023))),
        *((b, n, n, 0) for b, n in ((256, 32), (64, 128), (16, 1024))),
    ],
    "add": [(1, 1, n, 0) for n in (64, 4096, 1 << 18, 1 << 22, 1 << 25, 1 << 27)] + [(1, 1000, 3001, 0)],
}


def dtypes_of(op: str) -> dict[str, torch.dtype]:
    return BY_WIDTH if op == "transpose" else ARITHMETIC


def grid_of(op: str, device: str, parts: list[str] | None = None) -> list[tuple[Sizes, str]]:
    """What to measure, from little work to much: sizes and layout."""
    if (op, device) == ("gemm", "cuda"):
        named = gpu_parts()
        grid = list(dict.fromkeys(point for part in parts or PARTS for point in named[part]))
    else:
        grid = [(sizes, "NN") for sizes in (GPU_GRIDS if device == "cuda" else GRIDS)[op]]
    return sorted(grid, key=lambda point: work_of(op, point[0]))


def problem_at(op: str, sizes: Sizes, layout: str, dtype: torch.dtype, precision: str | None) -> Problem:
    batch, m, n, k = sizes
    if op == "gemm":
        return Gemm(m, n, k, dtype, layout, batch, precision)
    return Transpose(m, n, dtype, batch) if op == "transpose" else Add(m, n, dtype)


def candidates_of(op: str, device: str, dtype: torch.dtype, precision: str | None) -> list[KernelInfo]:
    """The rungs that may win. A kernel of IEEE precision satisfies every request of float32; the planes of bf16x3
    and fp16x3 are timed beside it (BESIDE_IEEE)."""
    rows = [row for row in fastgemm.kernels(op, device, dtype) if row.role == "rung" and row.available]
    rows = [row for row in rows if row.level >= LOWEST_LEVEL[device] and row.name not in SUPERSEDED]
    if dtype != torch.float32 or device != "cuda":
        return rows
    precisions = ("ieee", precision) if precision else ("ieee", *BESIDE_IEEE)
    return [row for row in rows if row.level > TENSOR_CORES or row.precision in precisions]


class Series:
    """The points of one op, dtype, precision and thread count, measured from little work to much.

    A kernel that is HOPELESS, by its best rate so far or on a GPU by its first samples, is left out.
    """

    def __init__(
        self, op: str, name: str, precision: str | None, session: Session, budget: float, slowest: float
    ):
        self.op, self.name, self.dtype, self.precision = op, name, dtypes_of(op)[name], precision
        self.session, self.budget, self.slowest = session, budget, slowest
        self.candidates = candidates_of(op, session.device, self.dtype, precision)
        self.rates: dict[str, float] = {}

    def _hopeless(self, seconds: dict[str, float], least: float = 0.0) -> set[str]:
        """Kernels of more than ``least`` seconds and HOPELESS times those of the fastest one that is no less
        precise. The libraries stay on a GPU: there the others' speeds are told beside theirs."""
        split = {row.name for row in self.candidates if row.precision in BESIDE_IEEE}
        usual = min((time for name, time in seconds.items() if name not in split), default=math.inf)
        kept = LIBRARIES if self.session.device == "cuda" else ()
        return {
            name
            for name, time in seconds.items()
            if name not in kept and time >= max(least, HOPELESS * usual)
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
        """Whether the kernel takes the problem; only libraries on a GPU may refuse one."""
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
        """On a GPU without those that are hopeless from the start."""
        first: dict[str, float] = {}
        if self.session.device == "cuda":
            sample = self.session.timer.sample
            first = {name: min(sample(call, 1) for _ in range(2)) for name, call in calls.items()}
            hopeless = self._hopeless(first)
            calls = {name: call for name, call in calls.items() if name not in hopeless}
        options = {"budget": self.budget, "max_rounds": 32, "timer": self.session.timer}
        return interleave(calls, estimates={name: first[name] for name in calls if name in first}, **options)

    def measure(self, sizes: Sizes, layout: str = "NN") -> list[Point]:
        """The point, in each precision that its kernels have; none where even the fastest would take too long."""
        problem = problem_at(self.op, sizes, layout, self.dtype, self.precision)
        instance = instantiate(problem, device=self.session.device)
        calls = self._calls(instance)
        if not calls:
            return []
        samples = self._time(calls)
        seconds = {name: samples.seconds(name).median for name in calls if samples.has(name)}
        for name, time in seconds.items():
            self.rates[name] = max(self.rates.get(name, 0.0), instance.problem.work / time)
        batch, m, n, k = sizes
        transposed = {f"{x}_transposed": letter == "T" for x, letter in zip("ab", layout, strict=True)}
        gpu = instance.device == "cuda"
        point = {"op": self.op, "dtype": self.name, "threads": instance.threads}
        point |= {"batch": batch, "m": m, "n": n, "k": k, **(transposed if gpu else {})}
        if not gpu:
            levels = {row.name: row.level for row in self.candidates}
            point["kernel"] = winner(samples, levels, seconds)
        rounded = {name: float(f"{time:.4g}") for name, time in seconds.items()}
        return [point | found for found in self._by_precision(rounded)]

    def _by_precision(self, seconds: dict[str, float]) -> Iterator[Point]:
        """What belongs into the point of each precision; torch has none of the split ones."""
        of = {row.name: row.precision for row in self.candidates}
        split = [precision for precision in BESIDE_IEEE if precision in of.values()]
        named = {"precision": self.precision} if self.precision else {}
        yield named | {"seconds": {name: time for name, time in seconds.items() if of[name] not in split}}
        for precision in split:
            able = (precision, "ieee")
            found = {name: time for name, time in seconds.items() if of[name] in able and name != "torch"}
            yield {"precision": precision, "seconds": found}


def work_of(op: str, sizes: Sizes) -> float:
    batch, m, n, k = sizes
    return batch * m * n * max(k, 1)


def measure(
    ops: list[str],
    dtypes: list[str] | None,
    threads: list[int],
    budget: float,
    slowest: float,
    device: str = "cpu",
    least_work: float = 0,
    parts: list[str] | None = None,
) -> list[Point]:
    """``dtypes``: names of types, and of precisions of float32."""
    points = []
    with Session(device) as session:
        for op in ops:
            all_series = [(name, None) for name in dtypes_of(op)]
            if (op, device) == ("gemm", "cuda"):
                all_series += [
                    ("float32", precision) for precision in PRECISIONS if precision not in BESIDE_IEEE
                ]
            for name, precision in all_series:
                if dtypes and (precision or name) not in dtypes:
                    continue
                for count in threads:
                    series = Series(op, name, precision, session, budget, slowest)
                    title = f"{op} {precision or name}, " + (
                        f"{count} thread(s)" if device == "cpu" else "GPU"
                    )
                    grid = [s for s in grid_of(op, device, parts) if work_of(op, s[0]) >= least_work]
                    with using_threads(count):
                        for sizes, layout in track(grid, title, transient=True):
                            points += series.measure(sizes, layout)
    return points


def merge(path: Path, new: list[Point], device: str = "cpu") -> dict[str, Any]:
    """The file's points, with those that were measured now in place of what was measured there before."""
    old = json.loads(path.read_text())["points"] if path.exists() else []
    replaced = {order(p) for p in new}
    kept = [p for p in old if order(p) not in replaced]
    return {"format": FORMAT, "environment": describe(device), "points": sorted(kept + new, key=order)}


def from_benchmark(report: Report, known: list[Point]) -> list[Point]:
    """Products that a benchmark measured, by the kernel of level 6 and by torch, and the table lacks."""
    points: dict[tuple, Point] = {}
    for row in report.results:
        if (
            row.op != "gemm"
            or not row.seconds
            or not (row.choice == "level 6" or row.kernel == "torch.matmul")
        ):
            continue
        m, n, k = row.shape
        point = {"op": "gemm", "dtype": row.dtype, "threads": 0, "batch": 1, "m": m, "n": n, "k": k}
        point |= {f"{x}_transposed": letter == "T" for x, letter in zip("ab", row.layout, strict=True)}
        point |= {"precision": row.precision} if row.precision else {}
        seconds = points.setdefault(order(point), point | {"seconds": {}})["seconds"]
        seconds["torch" if row.kernel == "torch.matmul" else row.kernel] = float(f"{row.seconds.median:.4g}")
    there = {order(point) for point in known}
    return [point for key, point in points.items() if key not in there]


def write_json(path: Path, data: dict[str, Any]) -> None:
    """One point a line, so that a new measurement reads well as a difference."""
    head = {name: value for name, value in data.items() if name != "points"}
    lines = ",\n".join(json.dumps(point) for point in data["points"])
    text = json.dumps(head, indent=1)[:-2] + ',\n "points": [\n' + lines + "\n]}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def clang_format(text: str) -> str:
    beside = Path(sys.executable).parent / "clang-format"
    program = str(beside) if beside.exists() else shutil.which("clang-format")
    if program is None:
        raise SystemExit("clang-format not found: pip install '.[lint]'")
    command = [program, f"--style=file:{ROOT / '.clang-format'}", "--assume-filename=static_tables.cpp"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--from-json", action="store_true", help="measure nothing")
    parser.add_argument(
        "--from-bench", type=Path, metavar="FILE", help="measure nothing, add what a benchmark did"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the C++ table is out of date"
    )
    parser.add_argument(
        "--no-cpp", action="store_true", help="only measure, where clang-format is not installed"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--op", action="append", choices=list(GRIDS), help="default: all")
    parser.add_argument("--part", action="append", choices=PARTS, help="of a GPU's products; default: all")
    types = [*CPP_TYPES, *(precision for precision in PRECISIONS if precision not in BESIDE_IEEE)]
    parser.add_argument("--dtype", action="append", choices=types, help="default: all")
    parser.add_argument("--least-work", type=float, default=0, help="leave out points of fewer multiply-adds")
    parser.add_argument("--budget", type=float, default=0.06, help="seconds for each kernel at each point")
    parser.add_argument(
        "--slowest", type=float, default=0.7, help="leave out points that would take longer, seconds"
    )
    parser.add_argument("--json", type=Path, help="where measurements go; default: by the processor's type")
    return parser.parse_args(arguments)


def file_for(device: str) -> Path:
    """Where the measurements of this processor or GPU are kept: results/h200 for an NVIDIA H200."""
    env = describe(device)
    model = env["gpu_model"] if device == "cuda" else env["cpu_model"]
    folder = "cpu" if device == "cpu" else env["device"].removeprefix("NVIDIA ").lower().replace(" ", "_")
    return RESULTS / folder / f"tuning_{re.sub(r'[^A-Za-z0-9-]+', '_', model)}.json"


def add_benchmark(path: Path) -> None:
    """To the table beside the file."""
    (table,) = path.parent.glob("tuning_*.json")
    data = json.loads(table.read_text())
    new = from_benchmark(read_report(path), data["points"])
    write_json(table, data | {"points": sorted(data["points"] + new, key=order)})
    print(f"{len(new)} points added: {table}")


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.from_bench:
        add_benchmark(options.from_bench)
    elif not options.from_json and not options.check:
        path = options.json or file_for(options.device)
        threads = sorted({1, usable_cores()}) if options.device == "cpu" else [1]
        new = measure(
            options.op or list(GRIDS),
            options.dtype,
            threads,
            options.budget,
            options.slowest,
            options.device,
            options.least_work,
            options.part,
        )
        write_json(path, merge(path, new, options.device))
        print(f"{len(new)} points measured: {path}")
        if options.no_cpp:
            return 0
    text = clang_format(generate(sorted(RESULTS.glob("**/tuning_*.json")), ROOT))
    if options.check:
        if TARGET.read_text() != text:
            print(
                f"{TARGET} is out of date: run python tools/make_static_tables.py --from-json",
                file=sys.stderr,
            )
            return 1
        return 0
    TARGET.write_text(text)
    print(f"written: {TARGET}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
