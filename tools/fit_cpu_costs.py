"""Fits the constants by which products on CPUs are predicted, and writes csrc/cpu/gemm/predict/costs.def.

    python tools/fit_cpu_costs.py            from what tools/make_static_tables.py measured
    python tools/fit_cpu_costs.py --check    fail if the file is not what the measurements give

Counts come from the library (csrc/cpu/gemm/predict), for the processor that was measured. Needs scipy.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from fastgemm import _introspect
from fastgemm._fit import fit

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "benchmarks/results/cpu/tuning_AuthenticAMD-25-17-avx2_avx512_avx512_vnni_avx512_bf16.json"
TARGET = ROOT / "csrc/cpu/gemm/predict/costs.def"
# Its clock follows from the rate of multiply-adds on registers; Linux in a virtual machine does not state it.
ZEN4 = {"isa": "avx512", "vnni": True, "dot_bf16": True, "amx_bf16": False, "amx_int8": False, "fp16": False}
ZEN4 |= {"clock": 3.6e9, "vector_issue": 1.0, "cores": 2, "l2": 1 << 20, "l3": 32 << 20}
ZEN4 |= {"core_bandwidth": 20e9, "bandwidth": 40e9, "model": "AuthenticAMD-25-17-as_measured"}
TYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "int32": "i32",
}

Point = dict[str, Any]


def points() -> list[Point]:
    return [point for point in json.loads(MEASURED.read_text())["points"] if point["op"] == "gemm"]


def problem_of(point: Point) -> tuple:
    return point["dtype"], "ieee", *(point[size] for size in ("batch", "m", "n", "k")), False, False


def fitted(measured: list[Point]) -> dict[tuple[str, str], list[float]]:
    """The constants of each kernel, and of torch, for each type."""
    counts, seconds = defaultdict(list), defaultdict(list)
    for point in measured:
        for kernel, spent in point["seconds"].items():
            key = kernel, point["dtype"]
            counts[key].append(_introspect.cpu_counts(kernel, problem_of(point), point["threads"], ZEN4))
            seconds[key].append(spent)
    return {key: fit(counts[key], seconds[key]) for key in counts}


def costs_def() -> str:
    found = fitted(points())
    order = [row["name"] for row in _introspect.table() if (row["op"], row["device"]) == ("gemm", "cpu")]
    lines = [
        "// What each count costs a kernel (counts.h), as a multiple of its nominal time. Written by",
        f"// tools/fit_cpu_costs.py from benchmarks/results/cpu/{MEASURED.name}.",
        "// clang-format off: one row a line",
    ]
    for kernel, dtype in sorted(found, key=lambda key: (order.index(key[0]), list(TYPES).index(key[1]))):
        named = zip(_introspect.CPU_COUNTS, found[kernel, dtype], strict=True)
        constants = ", ".join(
            f"{{k{name.title().replace('_', '')}, {cost:.4g}}}" for name, cost in named if cost
        )
        lines.append(f"FASTGEMM_CPU_COSTS({kernel}, {TYPES[dtype]}, {constants})")
    return "\n".join([*lines, ""])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is out of date")
    check = parser.parse_args(arguments).check
    text = costs_def()
    if not check:
        TARGET.write_text(text)
        print(f"written: {TARGET}")
    elif TARGET.read_text() != text:
        print(f"{TARGET} is out of date: run python tools/fit_cpu_costs.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
