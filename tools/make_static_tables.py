"""Measures which kernel is fastest where, and writes csrc/core/static_tables.cpp from all such measurements.

    python tools/make_static_tables.py                     measure this processor, then write the C++ table
    python tools/make_static_tables.py --device cuda       the same for this GPU
    python tools/make_static_tables.py --op gemm --dtype float32    measure again only this part of it
    python tools/make_static_tables.py --from-bench FILE   add what `fastgemm bench --json FILE` measured
    python tools/make_static_tables.py --from-json         write the C++ table, measure nothing
    python tools/make_static_tables.py --from-json --check fail if the C++ table is not what the JSON gives

Measurements are kept in benchmarks/results/<cpu or GPU>/tuning_<type>.json, one file for each type of processor
or GPU; the C++ table holds them all. Candidates are the rungs from level 4 up (2 on a GPU) and torch. Noise must
not decide: on a CPU an own kernel goes before torch, and a higher level before a lower one, when it is within 2 %
of the fastest. On a GPU, where a point may speak for sizes whose alignment differs, it also says whether leaving
torch is clearly worth it (gpu_winner); the C++ side asks several neighbours.
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
    PRECISIONS,
    Point,
    generate,
    order,
    winner,
)
from fastgemm.table import KernelInfo
from rich.progress import track

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
TARGET = ROOT / "csrc" / "core" / "static_tables.cpp"
TENSOR_CORES = 6  # the level
LOWEST_LEVEL = {"cpu": 4, "cuda": 2}
SLOW = {"cpu": 0.1, "cuda": 0.005}  # seconds from which a kernel far behind is left out

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


GPU_GRIDS = {
    "gemm": [
        *TINY,
        *(s for s in itertools.product((1,), COARSE, COARSE, COARSE) if s not in TINY),
        *((1, n, n, n) for n in (192, 256, 384, 512, 768, 1536, 2048, 3072, 6144, 8192, 16384)),
        *((1, *s) for s in ((257, 129, 511), (513, 1025, 2049), (1000, 777, 3001), (4095, 4097, 4093))),
        *(
            (1, *s)
            for s in ((1, 4096, 4096), (4096, 1, 4096), (4096, 4096, 1), (1, 1, 4096), (256, 256, 65536))
        ),
        *((b, n, n, n) for b, n in ((256, 16), (64, 64), (64, 128), (16, 256), (8, 512), (8, 1024))),
        *((1, log_uniform(8192), log_uniform(8192), log_uniform(8192)) for _ in range(150)),
    ],
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


Sizes = tuple[int, int, int, int]


def grid_of(op: str, device: str) -> list[tuple[Sizes, str]]:
    """What to measure, from little work to much: sizes and layout."""
    grid = sorted((GPU_GRIDS if device == "cuda" else GRIDS)[op], key=lambda sizes: work_of(op, sizes))
    if device != "cuda" or op != "gemm":
        return [(sizes, "NN") for sizes in grid]
    # Squares from 256 up are measured in every layout, the others in one: the layouts take turns.
    turns = itertools.cycle(LAYOUTS)
    found = []
    for sizes in grid:
        square = sizes[0] == 1 and len(set(sizes[1:])) == 1 and sizes[1] >= 256
        found += [(sizes, layout) for layout in (LAYOUTS if square else (next(turns),))]
    return found


def problem_at(op: str, sizes: Sizes, layout: str, dtype: torch.dtype, precision: str | None) -> Problem:
    batch, m, n, k = sizes
    if op == "gemm":
        return Gemm(m, n, k, dtype, layout, batch, precision)
    return Transpose(m, n, dtype, batch) if op == "transpose" else Add(m, n, dtype)


def candidates_of(op: str, device: str, dtype: torch.dtype, precision: str | None) -> list[KernelInfo]:
    """The rungs that may win. Where libraries use tensor cores, of the own ones only what level 6 runs."""
    rows = [row for row in fastgemm.kernels(op, device, dtype) if row.role == "rung" and row.available]
    if dtype == torch.float32:
        rows = [row for row in rows if row.level > TENSOR_CORES or row.precision == (precision or "ieee")]
    first = (
        next((row for row in rows if row.level == TENSOR_CORES), None)
        if (op, device) == ("gemm", "cuda")
        else None
    )
    rows = [row for row in rows if first is None or row.level != TENSOR_CORES or row is first]
    lowest = TENSOR_CORES if first and dtype != torch.int8 else LOWEST_LEVEL[device]
    return [row for row in rows if row.level >= lowest]


class Series:
    """The points of one op, dtype, precision and thread count, measured from little work to much.

    torch's float16 product is 100 times slower than its float32 one; a kernel that, by its best rate so far,
    would take a tenth of a second and three times as long as the best one is left out.
    """

    def __init__(
        self, op: str, name: str, precision: str | None, session: Session, budget: float, slowest: float
    ):
        self.op, self.name, self.dtype, self.precision = op, name, dtypes_of(op)[name], precision
        self.session, self.budget, self.slowest = session, budget, slowest
        self.candidates = candidates_of(op, session.device, self.dtype, precision)
        self.rates: dict[str, float] = {}

    def _expected(self, kernel: str, work: float) -> float | None:
        return work / self.rates[kernel] if kernel in self.rates else None

    def _calls(self, instance: Instance) -> dict[str, Any]:
        work = instance.problem.work
        known = [self._expected(row.name, work) for row in self.candidates if row.name in self.rates]
        fastest = min(known, default=0.0)
        if fastest > self.slowest:
            return {}
        calls = {}
        for row in self.candidates:
            expected, call = self._expected(row.name, work), instance.ours(kernel=row.name)
            slow = expected is not None and expected >= max(SLOW[self.session.device], 3 * fastest)
            if not slow and self._takes(call):
                calls[row.name] = call
        return calls

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

    def measure(self, sizes: Sizes, layout: str = "NN") -> Point | None:
        """The fastest kernel at a point; None where even that would take too long."""
        problem = problem_at(self.op, sizes, layout, self.dtype, self.precision)
        instance = instantiate(problem, device=self.session.device)
        calls = self._calls(instance)
        if not calls:
            return None
        samples = interleave(calls, budget=self.budget, max_rounds=32, timer=self.session.timer)
        seconds = {name: samples.seconds(name).median for name in calls}
        for name, time in seconds.items():
            self.rates[name] = max(self.rates.get(name, 0.0), instance.problem.work / time)
        levels = {row.name: row.level for row in self.candidates}
        batch, m, n, k = sizes
        transposed = {f"{x}_transposed": letter == "T" for x, letter in zip("ab", layout, strict=True)}
        gpu = instance.device == "cuda"
        return {
            "op": self.op,
            "dtype": self.name,
            "threads": instance.threads,
            "batch": batch,
            "m": m,
            "n": n,
            "k": k,
            **(transposed if gpu else {}),
            **({"precision": self.precision} if self.precision else {}),
            **({} if gpu else {"kernel": winner(samples, levels, seconds)}),
            "seconds": {name: float(f"{time:.4g}") for name, time in seconds.items()},
        }


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
) -> list[Point]:
    """``dtypes``: names of types, and of precisions of float32."""
    points = []
    with Session(device) as session:
        for op in ops:
            all_series = [(name, None) for name in dtypes_of(op)]
            if (op, device) == ("gemm", "cuda"):
                all_series += [("float32", precision) for precision in PRECISIONS]
            for name, precision in all_series:
                if dtypes and (precision or name) not in dtypes:
                    continue
                for count in threads:
                    series = Series(op, name, precision, session, budget, slowest)
                    title = f"{op} {precision or name}, " + (
                        f"{count} thread(s)" if device == "cpu" else "GPU"
                    )
                    grid = [s for s in grid_of(op, device) if work_of(op, s[0]) >= least_work]
                    with using_threads(count):
                        for sizes, layout in track(grid, title, transient=True):
                            measured = series.measure(sizes, layout)
                            if measured:
                                points.append(measured)
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
    types = [*CPP_TYPES, *PRECISIONS]
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
