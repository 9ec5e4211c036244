"""Fits the constants by which products on CPUs are predicted, and writes csrc/cpu/gemm/predict/costs.def.

    python benchmarks/fits/fit_cpu_costs.py                from what make_static_tables.py and --measure measured
    python benchmarks/fits/fit_cpu_costs.py --check        fail if the file is not what the measurements give
    python benchmarks/fits/fit_cpu_costs.py --measure 200  measure so many sizes of all layouts first

Counts come from the library (csrc/cpu/gemm/predict), for the processor that was measured: one with AVX-512 and
one without. --measure writes the file of the processor at hand. Needs scipy.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path

import fastgemm
import torch
from fastgemm import _introspect
from fastgemm._choice.fit import fit, same_but_for_rounding
from fastgemm.bench.environment import using_threads
from fastgemm.bench.timing import interleave
from points import Point, read_points, write_points
from rich.progress import track
from static_tables.generate import ARITHMETIC_TYPES

sys.path.append(str(Path(__file__).resolve().parent.parent))
from studies.environment import describe, folder_of

DATA = Path(__file__).resolve().parent
FILES = {"avx512": ["amd-25-17_tuning.json", "amd-25-17.json"], "avx2": ["amd-25-1.json"]}
TARGET = DATA.parent.parent / "csrc/cpu/gemm/predict/costs.def"
# Their clocks follow from the rate of multiply-adds on registers; Linux in a virtual machine states none.
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
PROCESSORS = {"avx512": ZEN4, "avx2": ZEN3}
MOST_WORK = 2**27  # multiply-adds of a measured product
WORTH_LEAVING = 1.05  # times as fast as torch a kernel has to be predicted, as in core/can_run.cpp
SLOW_IN_TORCH = ("float16", "int32")
CORES = len(os.sched_getaffinity(0))
# What a cost is about, for counts of which few points have any: each stands for one more point.
USUAL = {"call": 19e3, "fork": 18e3, "multiply": 1, "tiles": 160, "pack_straight": 8, "pack_across": 6}
USUAL |= {"pack_scalar": 0.5, "epilogue": 8, "scalar": 1, "stream": 1.5, "stream_columns": 1.2, "shared": 4}
USUAL |= {"cache": 0.9, "memory": 1.1}


def points(isa: str) -> list[Point]:
    measured = [point for file in FILES[isa] for point in read_points(DATA / file)[1]]
    return [point for point in measured if point["op"] == "gemm"]


def problem_of(point: Point) -> tuple:
    layout = point.get("a_transposed", False), point.get("b_transposed", False)
    return point["dtype"], "ieee", *(point[size] for size in ("batch", "m", "n", "k")), *layout


def sizes(rng: random.Random, most: float) -> tuple[int, int, int]:
    while True:
        m, n, k = (round(2 ** rng.uniform(0, octaves)) for octaves in (11, 11, 12))
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


def measure(count: int) -> list[Point]:
    """Random sizes and layouts, which the static tables do not have; every fourth one on all threads, every
    fourth one a batch, half of these on all threads."""
    rng, found = random.Random(count), []
    for at in track(range(count)):
        batch, threads = rng.choice((4, 16, 64)) if at % 8 in (5, 7) else 1, CORES if at % 4 == 1 else 1
        m, n, k = sizes(rng, MOST_WORK / batch)
        layout = rng.random() < 0.4, rng.random() < 0.4
        for dtype in ARITHMETIC_TYPES:
            if dtype in SLOW_IN_TORCH and batch * m * n * k > MOST_WORK / 16:
                continue
            kind = getattr(torch, dtype)
            a, b = operand(batch, m, k, kind, layout[0]), operand(batch, k, n, kind, layout[1])
            rows = [r for r in fastgemm.kernels("gemm", "cpu", kind) if r.level >= 4 and r.available]
            calls = {r.name: partial(fastgemm.matmul, a, b, kernel=r.name) for r in rows}
            with using_threads(threads):
                samples = interleave(calls, budget=0.02, min_rounds=8, max_rounds=32)
            # The least of the samples: other programs only ever add to them.
            seconds = {name: float(f"{samples.seconds(name).least:.4g}") for name in calls}
            point = {"op": "gemm", "dtype": dtype, "threads": threads, "batch": batch, "m": m, "n": n, "k": k}
            point |= {"a_transposed": layout[0], "b_transposed": layout[1]}
            found.append(point | {"seconds": seconds})
    return found


def choices(isa: str, dtype: str) -> list[tuple[float, float]]:
    """What the choice takes at each measured point: of the time of the fastest kernel, and of torch's."""
    found = []
    for point in points(isa):
        measured = point["seconds"]
        if point["dtype"] != dtype or "torch" not in measured:
            continue
        predicted = dict(_introspect.cpu_predictions(problem_of(point), point["threads"], PROCESSORS[isa]))
        predicted["torch"] /= WORTH_LEAVING
        spent = measured[min(measured, key=predicted.__getitem__)]
        found.append((spent / min(measured.values()), spent / measured["torch"]))
    return found


def fitted(isa: str) -> dict[tuple[str, str], list[float]]:
    """The constants of each kernel, and of torch, for each type."""
    counts, seconds = defaultdict(list), defaultdict(list)
    for point in points(isa):
        for kernel, spent in point["seconds"].items():
            key = kernel, point["dtype"]
            counts[key].append(
                _introspect.cpu_counts(kernel, problem_of(point), point["threads"], PROCESSORS[isa])
            )
            seconds[key].append(spent)
    for (kernel, dtype), rows in counts.items():
        for name, cost in USUAL.items() if kernel != "torch" else ():
            rows.append([(name == other) / cost for other in _introspect.CPU_COUNTS])
            seconds[kernel, dtype].append(1.0)
    return {key: fit(counts[key], seconds[key]) for key in counts}


def costs_def() -> str:
    order = [row["name"] for row in _introspect.table() if (row["op"], row["device"]) == ("gemm", "cpu")]
    lines = [
        "// What each count costs a kernel (counts.h), as a multiple of its nominal time. Written by",
        "// benchmarks/fits/fit_cpu_costs.py from files beside it:",
        *(f"// {isa}: {', '.join(files)}" for isa, files in FILES.items()),
        "// clang-format off: one row a line",
    ]
    for isa in FILES:
        found = fitted(isa)
        for kernel, dtype in sorted(
            found, key=lambda key: (order.index(key[0]), list(ARITHMETIC_TYPES).index(key[1]))
        ):
            named = zip(_introspect.CPU_COUNTS, found[kernel, dtype], strict=True)
            constants = ", ".join(
                f"{{k{name.title().replace('_', '')}, {cost:.4g}}}" for name, cost in named if cost
            )
            lines.append(f"FASTGEMM_CPU_COSTS({kernel}, {isa}, {ARITHMETIC_TYPES[dtype]}, {constants})")
    return "\n".join([*lines, ""])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is out of date")
    parser.add_argument("--measure", type=int, metavar="COUNT", help="sizes to measure before")
    options = parser.parse_args(arguments)
    check = options.check
    if options.measure:
        environment = describe("cpu")
        file = f"{folder_of(environment)}.json"
        if not any(file in files for files in FILES.values()):
            print(f"{file} is of another processor than those that constants are fitted for", file=sys.stderr)
        measured = measure(options.measure)
        write_points(DATA / file, {"environment": environment}, measured)
    text = costs_def()
    if not check:
        TARGET.write_text(text)
        print(f"written: {TARGET}")
    elif not same_but_for_rounding(TARGET.read_text(), text):
        print(f"{TARGET} is out of date: run python benchmarks/fits/fit_cpu_costs.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
