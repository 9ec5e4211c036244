"""Fits the predictions of products on CPUs, and writes costs.def and points.def of csrc/cpu/gemm/predict.

    python benchmarks/fits/fit_cpu_costs.py                fit to the measurements of --measure
    python benchmarks/fits/fit_cpu_costs.py --check        fail if the files do not match the measurements
    python benchmarks/fits/fit_cpu_costs.py --measure 200  measure this many sizes of all layouts first
    python benchmarks/fits/fit_cpu_costs.py --measure 200 --seed 1 --add   and keep the file's points

The library counts (csrc/cpu/gemm/predict), for the measured processors, one of each family. --measure writes the
file of this machine's processor. Needs scipy.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path

import fastgemm
import torch
from fastgemm import _introspect
from fastgemm._choice.fit import fit, predict, thin
from fastgemm._tune.cpu import TORCH, WORTH_LEAVING
from fastgemm.bench.environment import using_threads
from fastgemm.bench.timing import interleave
from generated_files import same_but_for_rounding
from points import Point, read_points, write_points
from rich.progress import track
from static_tables.generate import ARITHMETIC_TYPES

sys.path.append(str(Path(__file__).resolve().parent.parent))
from studies.environment import describe, folder_of

DATA = Path(__file__).resolve().parent
# The Emerald Rapids has its tile unit switched off, so its products of NARROW types are a family of their own.
WITHOUT_TILES, NARROW = "intel-6-207.json", ("bfloat16", "int8")
FILES = {
    "granite_rapids": [WITHOUT_TILES, "intel-6-167.json"],
    "without_tiles": [WITHOUT_TILES],
    "zen4": ["amd-25-17_tuning.json", "amd-25-17.json"],
    "zen3": ["amd-25-1.json"],
}
TARGET = DATA.parent.parent / "csrc/cpu/gemm/predict"
# AMD's clocks come from the measured rate of multiply-adds: Linux in a virtual machine reports no clock.
ZEN4 = {"isa": "avx512", "vnni": True, "dot_bf16": True, "amx_bf16": False, "amx_int8": False, "fp16": False}
ZEN4 |= {"clock": 3.6e9, "vector_issue": 1.0, "cores": 2, "l2": 1 << 20, "l3": 32 << 20}
ZEN4 |= {
    "mkl_avx2": True,
    "core_bandwidth": 20e9,
    "bandwidth": 40e9,
    "model": "AuthenticAMD-25-17-as_measured",
}
ZEN3 = ZEN4 | {"isa": "avx2", "vnni": False, "dot_bf16": False, "clock": 3.24e9, "vector_issue": 2.0}
ZEN3 |= {"l2": 1 << 19, "model": "AuthenticAMD-25-1-as_measured"}
GRANITE_RAPIDS = ZEN4 | {"amx_bf16": True, "amx_int8": True, "fp16": True, "clock": 3e9, "vector_issue": 2.0}
GRANITE_RAPIDS |= {
    "l2": 2 << 20,
    "l3": 480 << 20,
    "mkl_avx2": False,
    "model": "GenuineIntel-6-167-as_measured",
}
PROCESSORS = {
    "granite_rapids": GRANITE_RAPIDS,
    "without_tiles": GRANITE_RAPIDS | {"amx_bf16": False, "amx_int8": False},
    "zen4": ZEN4,
    "zen3": ZEN3,
}
# Measured points of a type that correct predictions.
KEPT = {"granite_rapids": 340, "without_tiles": 180, "zen4": 250, "zen3": 240}
MOST_WORK, MOST_LARGE_WORK = 2**27, 2**29  # multiply-adds of a measured product, and of one with large sides
BUDGET = 0.02  # seconds for each kernel at a point
LARGE = 6  # octaves: sides of at least 64
SLOW_IN_TORCH = ("float16", "int32")
CORES = len(os.sched_getaffinity(0))
# Typical costs. Each is added as one more point, for counts that are zero at most points.
USUAL = {"call": 19e3, "fork": 18e3, "multiply": 1, "tiles": 160, "pack_straight": 8, "pack_across": 6}
USUAL |= {"pack_scalar": 0.5, "epilogue": 8, "scalar": 1, "stream": 1.5, "stream_columns": 1.2, "shared": 4}
USUAL |= {"cache": 0.9, "memory": 1.1}


def points(family: str) -> list[Point]:
    def belongs(point: Point, file: str) -> bool:
        narrow = file == WITHOUT_TILES and point["dtype"] in NARROW
        return point["op"] == "gemm" and narrow == (family == "without_tiles")

    return [p for file in FILES[family] for p in read_points(DATA / file)[1] if belongs(p, file)]


def problem_of(point: Point) -> tuple:
    layout = point.get("a_transposed", False), point.get("b_transposed", False)
    return point["dtype"], "ieee", *(point[size] for size in ("batch", "m", "n", "k")), *layout


def sizes(rng: random.Random, most: float, least: int = 0) -> tuple[int, int, int]:
    """Log-uniform sizes from 2 ** ``least`` on, with at most ``most`` multiply-adds."""
    while True:
        m, n, k = (round(2 ** rng.uniform(least, octaves)) for octaves in (11, 11, 12))
        if m * n * k <= most:
            return m, n, k


def operand(batch: int, rows: int, cols: int, dtype: torch.dtype, transposed: bool) -> torch.Tensor:
    shape = (batch,) * (batch > 1) + ((cols, rows) if transposed else (rows, cols))
    x = (
        torch.randn(shape).to(dtype)
        if dtype.is_floating_point
        else torch.randint(-99, 99, shape, dtype=dtype)
    )
    return x.mT if transposed else x


def contenders(dtype: torch.dtype) -> list[str]:
    """The kernels that may be the fastest: the rungs from level 4 on that run here, and torch."""
    rows = fastgemm.kernels("gemm", "cpu", dtype)
    return [row.name for row in rows if row.level >= 4 and row.available and row.role == "rung"]


def measure(count: int, seed: int) -> list[Point]:
    """Random sizes and layouts. Two of eight products are batches and three have large sides. Three of eight run
    on all threads: one batch, one with large sides, and one other."""
    rng, found = random.Random(f"{count} {seed}"), []
    for at in track(range(count)):
        kind = at % 8
        batch, threads = rng.choice((4, 16, 64)) if kind in (5, 7) else 1, CORES if kind in (1, 3, 5) else 1
        large = kind in (2, 3, 6)
        m, n, k = sizes(rng, MOST_LARGE_WORK, LARGE) if large else sizes(rng, MOST_WORK / batch)
        layout = rng.random() < 0.4, rng.random() < 0.4
        for dtype in ARITHMETIC_TYPES:
            if dtype in SLOW_IN_TORCH and batch * m * n * k > MOST_WORK / 16:
                continue
            type_ = getattr(torch, dtype)
            a, b = operand(batch, m, k, type_, layout[0]), operand(batch, k, n, type_, layout[1])
            calls = {name: partial(fastgemm.matmul, a, b, kernel=name) for name in contenders(type_)}
            with using_threads(threads):
                samples = interleave(calls, budget=BUDGET, min_rounds=8, max_rounds=32)
            # Takes the shortest sample, because other programs only ever add time.
            seconds = {name: float(f"{samples.seconds(name).least:.4g}") for name in calls}
            point = {"op": "gemm", "dtype": dtype, "threads": threads, "batch": batch, "m": m, "n": n, "k": k}
            point |= {"a_transposed": layout[0], "b_transposed": layout[1]}
            found.append(point | {"seconds": seconds})
    return found


def choices(family: str, dtype: str) -> list[tuple[float, float]]:
    """The time of the choice at each measured point, divided by that of the fastest kernel and by torch's."""
    found = []
    for point in points(family):
        measured = point["seconds"]
        if point["dtype"] != dtype or TORCH not in measured:
            continue
        problem = problem_of(point), point["threads"]
        predicted = dict(_introspect.cpu_predictions(*problem, PROCESSORS[family]))
        predicted[TORCH] /= WORTH_LEAVING
        spent = measured[min(measured, key=predicted.__getitem__)]
        found.append((spent / min(measured.values()), spent / measured[TORCH]))
    return found


Series = tuple[str, str]  # kernel, dtype


def counts_of(family: str, measured: list[Point]) -> list[dict[str, list[float]]]:
    """The counts of each point, by kernel."""
    cpu = PROCESSORS[family]
    return [
        {name: _introspect.cpu_counts(name, problem_of(p), p["threads"], cpu) for name in p["seconds"]}
        for p in measured
    ]


def fitted(measured: list[Point], counted: list[dict[str, list[float]]]) -> dict[Series, list[float]]:
    """The constants of each kernel, and of torch, for each type."""
    counts, seconds = defaultdict(list), defaultdict(list)
    for point, of in zip(measured, counted, strict=True):
        for kernel, spent in point["seconds"].items():
            counts[kernel, point["dtype"]].append(of[kernel])
            seconds[kernel, point["dtype"]].append(spent)
    for (kernel, dtype), rows in counts.items():
        for name, cost in USUAL.items() if kernel != TORCH else ():
            rows.append([(name == other) / cost for other in _introspect.CPU_COUNTS])
            seconds[kernel, dtype].append(1.0)
    return {key: fit(counts[key], seconds[key]) for key in counts}


def errors(
    point: Point, counts: dict[str, list[float]], costs: dict[Series, list[float]]
) -> dict[str, float]:
    """How many octaves longer each kernel took than the model predicts."""
    model = {name: predict(counts[name], costs[name, point["dtype"]]) for name in point["seconds"]}
    return {name: math.log2(spent / model[name]) for name, spent in point["seconds"].items()}


def torch_apart(point: Point, errors: dict[str, float]) -> float:
    """The error, in octaves, of the model's ratio between torch and the fastest other kernel."""
    seconds = point["seconds"]
    best = min((name for name in seconds if name != TORCH), key=seconds.__getitem__)
    return errors.get(TORCH, 0.0) - errors[best]


def lines_of_points(
    family: str, measured: list[Point], off: list[dict[str, float]]
) -> tuple[list[str], list[str]]:
    """The most useful points as C++, and the entry of each type in the list of series. A point is useful if the
    model's ratio between torch and the fastest other kernel has a large error there."""
    arrays, series = [], []
    for dtype, cpp in ARITHMETIC_TYPES.items():
        own = [(p, errors) for p, errors in zip(measured, off, strict=True) if p["dtype"] == dtype]
        if not own:
            continue
        rows = list(dict.fromkeys(name for p, _ in own for name in p["seconds"]))
        places = [_introspect.cpu_place(problem_of(p), p["threads"]) for p, _ in own]
        kept = [own[i] for i in thin(places, [torch_apart(*entry) for entry in own], KEPT[family])]
        name = f"k{family.title().replace('_', '')}{dtype.capitalize()}"
        arrays.append(f"constexpr ShippedPoint {name}[] = {{")
        for p, errors in kept:
            numbers = ", ".join(
                str(round(100 * errors[row])) if row in errors else "kNotTimed" for row in rows
            )
            sizes = ", ".join(str(p[size]) for size in ("threads", "batch", "m", "n", "k"))
            layout = ", ".join("NT"[p.get(f"{x}_transposed", False)] for x in "ab")
            arrays.append(f"    {{{sizes}, {layout}, {{{numbers}}}}},")
        arrays += ["};", ""]
        names = ", ".join(f"Row::{row}" for row in rows)
        series.append(f"    {{Family::{family}, DType::{cpp}, {{{names}}}, {name}}},")
    return arrays, series


def definitions() -> dict[str, str]:
    """The texts of costs.def and points.def."""
    order = [row["name"] for row in _introspect.table() if (row["op"], row["device"]) == ("gemm", "cpu")]
    sources = [
        "// benchmarks/fits/fit_cpu_costs.py from files beside it:",
        *(f"// {family}: {', '.join(files)}" for family, files in FILES.items()),
        "// clang-format off: one row a line",
    ]
    costs = [
        "// What each count costs a kernel (counts.h), as a multiple of its nominal time. Written by",
        *sources,
    ]
    arrays = [
        "// Measured products, and how far the model is off at each (points.h). Written by",
        *sources,
        "",
    ]
    series: list[str] = []
    for family in FILES:
        measured = points(family)
        counted = counts_of(family, measured)
        found = fitted(measured, counted)
        for kernel, dtype in sorted(
            found, key=lambda key: (order.index(key[0]), list(ARITHMETIC_TYPES).index(key[1]))
        ):
            named = zip(_introspect.CPU_COUNTS, found[kernel, dtype], strict=True)
            constants = ", ".join(
                f"{{k{name.title().replace('_', '')}, {cost:.4g}}}" for name, cost in named if cost
            )
            costs.append(f"FASTGEMM_CPU_COSTS({kernel}, {family}, {ARITHMETIC_TYPES[dtype]}, {constants})")
        off = [errors(p, of, found) for p, of in zip(measured, counted, strict=True)]
        more = lines_of_points(family, measured, off)
        arrays += more[0]
        series += more[1]
    arrays += ["constexpr ShippedSeries kSeries[] = {", *series, "};", ""]
    return {"costs.def": "\n".join([*costs, ""]), "points.def": "\n".join(arrays)}


def comparable(text: str) -> str:
    """The text, with a layout's letter before each error of a point, as same_but_for_rounding() expects."""
    errors = re.compile(r"\{((?:-?\d+|kNotTimed)(?:, (?:-?\d+|kNotTimed))*)\}\}")
    return errors.sub(lambda found: "".join(f"N, {error} " for error in found[1].split(", ")), text)


def measure_here(count: int, seed: int, add: bool) -> None:
    """Measures this machine's processor and writes its file."""
    environment = describe("cpu")
    path = DATA / f"{folder_of(environment)}.json"
    if not any(path.name in files for files in FILES.values()):
        print(f"{path} is for a processor that no constants are fitted for", file=sys.stderr)
    measured = measure(count, seed)
    write_points(path, {"environment": environment}, [*(read_points(path)[1] if add else ()), *measured])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is out of date")
    parser.add_argument("--measure", type=int, metavar="COUNT", help="how many sizes to measure first")
    parser.add_argument("--seed", type=int, default=0, help="seed of these sizes")
    parser.add_argument("--add", action="store_true", help="keep the points in the file")
    options = parser.parse_args(arguments)
    if options.measure:
        measure_here(options.measure, options.seed, options.add)
    stale = 0
    for name, text in definitions().items():
        path = TARGET / name
        if not options.check:
            path.write_text(text)
            print(f"written: {path}, {len(text.splitlines())} lines")
        elif not same_but_for_rounding(comparable(path.read_text()), comparable(text)):
            print(f"{path} is out of date: run python benchmarks/fits/fit_cpu_costs.py", file=sys.stderr)
            stale += 1
    return stale > 0


if __name__ == "__main__":
    sys.exit(main())
