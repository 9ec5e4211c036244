"""Measures the fastest kernels of problems, and writes csrc/core/static_tables.cpp from all such measurements.

    make_static_tables.py                          measure this processor, then write the C++ table
    make_static_tables.py --device cuda            this GPU: transpositions and sums
    make_static_tables.py --op gemm --dtype float32    measure only this part again
    make_static_tables.py --from-json              write the C++ table, measure nothing
    make_static_tables.py --from-json --check      fail if the C++ table differs from the JSON

Measurements are kept in <processor or GPU>_tuning.json beside this file. The C++ table holds all of them except
products on CPUs, which fit_cpu_costs.py uses. Candidates are the rungs from level 4 up (on a GPU from level 2)
and torch. static_tables.generate decides which kernel a point names, and csrc/core/nearest.cpp chooses for
problems between the points.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from fastgemm.bench.environment import usable_cores
from points import Point, read_points, write_points
from static_tables.generate import CPP_TYPES, generate, order
from static_tables.grid import GRIDS
from static_tables.series import Wanted, measure

sys.path.append(str(Path(__file__).resolve().parent.parent))
from studies.environment import describe, folder_of

DATA = Path(__file__).resolve().parent
ROOT = DATA.parent.parent
TARGET = ROOT / "csrc" / "core" / "static_tables.cpp"


def merge(path: Path, new: list[Point]) -> list[Point]:
    """The file's points, with the new points replacing old points of the same problems."""
    old = read_points(path)[1] if path.exists() else []
    replaced = {order(p) for p in new}
    return sorted([*new, *(p for p in old if order(p) not in replaced)], key=order)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--from-json", action="store_true", help="measure nothing")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the C++ table is out of date"
    )
    parser.add_argument("--no-cpp", action="store_true", help="only measure, leave the C++ table as it is")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--op", action="append", choices=list(GRIDS), help="default: all")
    parser.add_argument("--dtype", action="append", choices=list(CPP_TYPES), help="default: all")
    parser.add_argument("--least-work", type=float, default=0, help="leave out points with less work")
    parser.add_argument("--budget", type=float, default=0.06, help="seconds for each kernel at each point")
    parser.add_argument("--slowest", type=float, default=0.7, help="leave out points that take more seconds")
    parser.add_argument("--limit", type=float, default=math.inf, help="stop after this many seconds")
    parser.add_argument("--json", type=Path, help="file for the results; default: by the processor's type")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if not options.from_json and not options.check:
        environment = describe(options.device)
        path = options.json or DATA / f"{folder_of(environment)}_tuning.json"
        threads = sorted({1, usable_cores()}) if options.device == "cpu" else [1]
        wanted = Wanted(
            options.op or [op for op in GRIDS if (op, options.device) != ("gemm", "cuda")],
            options.dtype,
            threads,
            options.device,
            least_work=options.least_work,
        )
        new = measure(wanted, options.budget, options.slowest, options.limit)
        write_points(path, {"environment": environment}, merge(path, new))
        print(f"{len(new)} points measured: {path}")
        if options.no_cpp:
            return 0
    text = generate(sorted(DATA.glob("*_tuning.json")), ROOT)
    if options.check:
        if TARGET.read_text() != text:
            print(
                f"{TARGET} is out of date: run python benchmarks/fits/make_static_tables.py --from-json",
                file=sys.stderr,
            )
            return 1
        return 0
    TARGET.write_text(text)
    print(f"written: {TARGET}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
