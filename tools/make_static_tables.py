"""Measures which kernel is fastest where, and writes csrc/core/static_tables.cpp from all such measurements.

    python tools/make_static_tables.py                     measure this machine, then write the C++ table
    python tools/make_static_tables.py --op gemm --dtype float32    measure again only this part of it
    python tools/make_static_tables.py --from-json         write the C++ table, measure nothing
    python tools/make_static_tables.py --from-json --check fail if the C++ table is not what the JSON gives

Measurements are kept in benchmarks/results/cpu/tuning_<processor>.json, one file for each type of processor;
the C++ table holds them all. Candidates are the rungs from level 4 up and torch. An own kernel goes before
torch, and a higher level before a lower one, when it is within 2 % of the fastest: noise must not decide.
"""

from __future__ import annotations

import argparse
import json
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
    Interleaved,
    Problem,
    Transpose,
    describe,
    instantiate,
    interleave,
    using_threads,
)
from fastgemm.bench.environment import usable_cores
from fastgemm.bench.problems import ARITHMETIC, Instance
from fastgemm.table import WIDTH_NAMES, KernelInfo
from rich.progress import track

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
TARGET = ROOT / "csrc" / "core" / "static_tables.cpp"
FORMAT = 1
CLOSE_ENOUGH = 0.98
LOWEST_LEVEL = 4

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

# A transpose moves bytes; one dtype stands for each width.
BY_WIDTH = {
    WIDTH_NAMES[t.itemsize]: t
    for t in (torch.int8, torch.bfloat16, torch.float32, torch.float64, torch.complex128)
}
CPP_TYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "int32": "i32",
    **{name: name for name in BY_WIDTH},
}
Point = dict[str, Any]


def dtypes_of(op: str) -> dict[str, torch.dtype]:
    return BY_WIDTH if op == "transpose" else ARITHMETIC


def problem_at(op: str, point: tuple[int, int, int, int], dtype: torch.dtype) -> Problem:
    batch, m, n, k = point
    if op == "gemm":
        return Gemm(m, n, k, dtype, batch=batch)
    return Transpose(m, n, dtype, batch) if op == "transpose" else Add(m, n, dtype)


def candidates_of(op: str, dtype: torch.dtype) -> list[KernelInfo]:
    rows = fastgemm.kernels(op, "cpu", dtype)
    return [row for row in rows if row.role == "rung" and row.available and row.level >= LOWEST_LEVEL]


class Series:
    """The points of one op, dtype and thread count, measured from little work to much.

    torch's float16 product is 100 times slower than its float32 one; a kernel that, by its best rate so far,
    would take a tenth of a second and three times as long as the best one is left out.
    """

    def __init__(self, op: str, name: str, dtype: torch.dtype, budget: float, slowest: float):
        self.op, self.name, self.dtype = op, name, dtype
        self.budget, self.slowest = budget, slowest
        self.rates: dict[str, float] = {}

    def _expected(self, kernel: str, work: float) -> float:
        return work / self.rates[kernel] if kernel in self.rates else 0.0

    def _calls(self, instance: Instance) -> dict[str, Any]:
        work = instance.problem.work
        candidates = candidates_of(self.op, self.dtype)
        fastest = min((self._expected(row.name, work) for row in candidates), default=0.0)
        if fastest > self.slowest:
            return {}
        calls = {}
        for row in candidates:
            expected = self._expected(row.name, work)
            if expected < 0.1 or expected < 3 * fastest:
                calls[row.name] = instance.ours(kernel=row.name)
        return calls

    def measure(self, point: tuple[int, int, int, int]) -> Point | None:
        """The fastest kernel at a point; None where even that would take too long."""
        instance = instantiate(problem_at(self.op, point, self.dtype))
        calls = self._calls(instance)
        if not calls:
            return None
        samples = interleave(calls, budget=self.budget, max_rounds=32)
        seconds = {name: samples.seconds(name).median for name in calls}
        for name, time in seconds.items():
            self.rates[name] = max(self.rates.get(name, 0.0), instance.problem.work / time)
        levels = {row.name: row.level for row in candidates_of(self.op, self.dtype)}
        batch, m, n, k = point
        return {
            "op": self.op,
            "dtype": self.name,
            "threads": torch.get_num_threads(),
            "batch": batch,
            "m": m,
            "n": n,
            "k": k,
            "kernel": winner(samples, levels, seconds),
            "seconds": {name: float(f"{time:.4g}") for name, time in seconds.items()},
        }


def winner(samples: Interleaved, levels: dict[str, int], seconds: dict[str, float]) -> str:
    """Of the kernels within 2 % of the fastest: an own one before torch, then the highest level."""
    fastest = min(seconds, key=seconds.__getitem__)
    close = [n for n in seconds if n == fastest or samples.speedup(n, over=fastest).median >= CLOSE_ENOUGH]
    return max(close, key=lambda name: (name != "torch", levels[name], -seconds[name]))


def work_of(op: str, point: tuple[int, int, int, int]) -> float:
    batch, m, n, k = point
    return batch * m * n * max(k, 1)


def measure(
    ops: list[str], dtypes: list[str] | None, threads: list[int], budget: float, slowest: float
) -> list[Point]:
    points = []
    for op in ops:
        chosen = {name: t for name, t in dtypes_of(op).items() if not dtypes or name in dtypes}
        for name, dtype in chosen.items():
            for count in threads:
                series = Series(op, name, dtype, budget, slowest)
                grid = sorted(GRIDS[op], key=lambda point: work_of(op, point))
                with using_threads(count):
                    for point in track(grid, f"{op} {name}, {count} thread(s)", transient=True):
                        measured = series.measure(point)
                        if measured:
                            points.append(measured)
    return points


def merge(path: Path, new: list[Point]) -> dict[str, Any]:
    """The file's points, with those of every op, dtype and thread count that was measured now replaced."""

    def series(p: Point) -> tuple[str, str, int]:
        return p["op"], p["dtype"], p["threads"]

    old = json.loads(path.read_text())["points"] if path.exists() else []
    replaced = {series(p) for p in new}
    kept = [p for p in old if series(p) not in replaced]
    return {"format": FORMAT, "environment": describe(), "points": sorted(kept + new, key=order)}


def order(point: Point) -> tuple:
    """gemm, transpose, add; within, dtypes by their place in the list of types, then sizes."""
    place = list(GRIDS).index(point["op"]), list(CPP_TYPES).index(point["dtype"]), point["threads"]
    return (*place, *(point[name] for name in ("batch", "m", "n", "k")))


def write_json(path: Path, data: dict[str, Any]) -> None:
    """One point a line, so that a new measurement reads well as a difference."""
    head = {name: value for name, value in data.items() if name != "points"}
    lines = ",\n".join(json.dumps(point) for point in data["points"])
    text = json.dumps(head, indent=1)[:-2] + ',\n "points": [\n' + lines + "\n]}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def cpp_row(p: Point) -> str:
    sizes = f"{p['threads']}, {p['batch']}, {p['m']}, {p['n']}, {p['k']}"
    layout = ", ".join(str(p.get(name, False)).lower() for name in ("a_transposed", "b_transposed"))
    return f'    {{DType::{CPP_TYPES[p["dtype"]]}, {sizes}, {layout}, "{p["kernel"]}"}},'


def generate(files: list[Path]) -> str:
    """The C++ source for all measured processors."""
    arrays, tables, sources = [], [], []
    for index, path in enumerate(files):
        data = json.loads(path.read_text())
        if data.get("format") != FORMAT:
            raise SystemExit(f"{path}: not a tuning file of format {FORMAT}")
        env = data["environment"]
        sources.append(
            f"//   {path.relative_to(ROOT)}: {env['device']}, torch {env['torch']}, {env['date'][:10]}"
        )
        for op in GRIDS:
            points = [p for p in sorted(data["points"], key=order) if p["op"] == op]
            if not points:
                continue
            name = f"k{op.capitalize()}{index}"
            rows = "\n".join(map(cpp_row, points))
            arrays.append(f"constexpr Measured {name}[] = {{\n{rows}\n}};\n")
            tables.append(f'    {{"{env["cpu_model"]}", Op::{op}, {name}}},')
    listed = "\n".join(sources) or "//   (none yet)"
    body = "\n".join(arrays)
    if tables:
        table = "constexpr StaticTable kTables[] = {\n" + "\n".join(tables) + "\n};\n"
        body, result = f"namespace {{\n\n{body}\n{table}\n}}  // namespace\n", "kTables"
    else:
        result = "{}"
    return (
        "// Generated by `python tools/make_static_tables.py --from-json`; do not edit. Measured:\n"
        f"{listed}\n//\n// {{type, threads, batch, m, n, k, a and b transposed, fastest kernel}}\n"
        '#include "core/tuning.h"\n\nnamespace fastgemm {\n'
        f"{body}\nstd::span<const StaticTable> static_tables() {{ return {result}; }}\n\n"
        "}  // namespace fastgemm\n"
    )


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
        "--check", action="store_true", help="write nothing; fail if the C++ table is out of date"
    )
    parser.add_argument("--op", action="append", choices=list(GRIDS), help="default: all")
    parser.add_argument("--dtype", action="append", choices=list(CPP_TYPES), help="default: all")
    parser.add_argument("--budget", type=float, default=0.06, help="seconds for each kernel at each point")
    parser.add_argument(
        "--slowest", type=float, default=0.7, help="leave out points that would take longer, seconds"
    )
    parser.add_argument("--json", type=Path, help="where measurements go; default: by the processor's type")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if not options.from_json and not options.check:
        model = re.sub(r"[^A-Za-z0-9-]+", "_", fastgemm.build_info()["cpu_model"])
        path = options.json or RESULTS / "cpu" / f"tuning_{model}.json"
        threads = sorted({1, usable_cores()})
        new = measure(options.op or list(GRIDS), options.dtype, threads, options.budget, options.slowest)
        write_json(path, merge(path, new))
        print(f"{len(new)} points measured: {path}")
    text = clang_format(generate(sorted(RESULTS.glob("**/tuning_*.json"))))
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
