"""Times the library and every kernel that may be the fastest on this GPU. Predictions are fitted to these times.

    python benchmarks/fits/measure_kernels.py --grid --random 120 --seed 77 --json h200.json
    python benchmarks/fits/measure_kernels.py --random 100 --seed 7 --json h200_choices.json
    python benchmarks/fits/measure_kernels.py --random 40 --multiprocessors 64 --json ...      on a part of the GPU
    python benchmarks/fits/measure_kernels.py --again h200.json --kernel dmma      after a change of one kernel
    python benchmarks/fits/measure_kernels.py --again h200.json --at bf16x6 --kernel crt       a new kernel
    python benchmarks/fits/measure_kernels.py --again h200.json --at direct --kernel outer --most-k 32
    python benchmarks/fits/measure_kernels.py --again h200.json --random 60       new problems

A point leaves out kernels that are far slower. fit_costs.py reads the first file, check_choices.py all files.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from fastgemm.bench.problems import LAYOUTS
from fastgemm.bench.session import Session
from fit_costs import LIBRARY, problem_of
from points import Point, read_points, series_of, write_points
from static_tables.grid import Sizes, grid_of, work_of
from static_tables.series import BESIDE_IEEE, Series

sys.path.append(str(Path(__file__).resolve().parent.parent))
from studies.environment import describe

ORDER = ("float64", "float32", "tf32", "float16", "bfloat16", "int8", "int32")
LIBRARIES = ("torch", "cublaslt_1")  # the second if torch has no such product, or may round operands
ALIGNED, UNIT = 0.4, 64  # this share of random problems has sides that are multiples of UNIT
Problems = dict[str, list[tuple[Sizes, str]]]  # by series: a dtype, or tf32


def random_problems(count: int, seed: int, least: int, most: int) -> list[tuple[Sizes, str]]:
    """Shapes with log-uniform sides from ``least`` to ``most``, in random layouts."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        sides = [math.exp(draw.uniform(math.log(least), math.log(most))) for _ in range(3)]
        aligned = draw.random() < ALIGNED
        sizes = [max(UNIT, round(side / UNIT) * UNIT) if aligned else round(side) for side in sides]
        found.append(((1, *sizes), draw.choice(LAYOUTS)))
    return found


@contextlib.contextmanager
def multiprocessors(count: int | None) -> Iterator[None]:
    """Uses only this many multiprocessors of the GPU, with its whole L2 cache and bandwidth."""
    if count is None:
        yield
        return
    from torch.cuda.green_contexts import GreenContext

    context = GreenContext.create(count, torch.cuda.current_device())
    context.set_context()
    try:
        yield
    finally:
        context.pop_context()


def measure(problems: Problems, budget: float, only: list[str] | None = None) -> Iterator[Point]:
    """A point for each problem that some kernel takes."""
    with Session("cuda") as session:
        for name, wanted in problems.items():
            dtype, precision = ("float32", name) if name == "tf32" else (name, None)
            series = Series("gemm", dtype, precision, session, budget, slowest=0.7, only=only)
            if only:  # no yardsticks: none of these kernels was far slower at these points
                series.candidates = [row for row in series.candidates if row.name in only]
            for sizes, layout in sorted(wanted, key=lambda problem: work_of("gemm", problem[0])):
                if point := one_point(series.measure(sizes, layout), only):
                    yield point
            print(f"{name}: {len(wanted)} problems")
            torch.cuda.empty_cache()


def one_point(points: list[Point], only: list[str] | None) -> Point | None:
    """Joins the points of all precisions into one. A split precision adds only the kernel of its own name."""
    times: dict[str, float] = {}
    for point in points:
        split = point.get("precision") in BESIDE_IEEE
        times |= {k: t for k, t in point["seconds"].items() if not split or k == point["precision"]}
    library = next((times[k] for k in LIBRARIES if k in times), None)
    times = {k: t for k, t in times.items() if k != "torch" and not k.startswith("cublas")}
    times |= {LIBRARY: library} if library else {}
    times = {k: t for k, t in times.items() if not only or k in only}
    return points[0] | {"seconds": times} if times else None


def key_of(point: Point) -> tuple[Any, ...]:
    return ORDER.index(series_of(point)), *problem_of(point)


def together(old: list[Point], new: list[Point]) -> list[Point]:
    """Both lists in one. For a problem in both, the times of ``new`` replace those of ``old``."""
    found = {key_of(point): point for point in old}
    for point in new:
        before = found.get(key_of(point), point)
        found[key_of(point)] = point | {"seconds": before["seconds"] | point["seconds"]}
    return [found[key] for key in sorted(found)]


def without(points: list[Point], problems: Problems, kernels: list[str]) -> list[Point]:
    """The points without these kernels' times at these problems: a kernel that is now far slower has no time."""

    def left(point: Point) -> Point:
        if problem_in(point) not in problems.get(series_of(point), ()):
            return point
        return point | {"seconds": {k: t for k, t in point["seconds"].items() if k not in kernels}}

    return [left(point) for point in points]


def problem_in(point: Point) -> tuple[Sizes, str]:
    _, _, *sizes, a, b = problem_of(point)
    return tuple(sizes), "NT"[a] + "NT"[b]


def problems_at(points: list[Point], kernels: list[str], most_k: float = math.inf) -> Problems:
    """The problems at which one of the kernels was measured, with a k of at most ``most_k``."""
    found: Problems = {}
    for point in points:
        if point["k"] <= most_k and not point["seconds"].keys().isdisjoint(kernels):
            found.setdefault(series_of(point), []).append(problem_in(point))
    return found


def history(before: dict[str, Any], new: str) -> dict[str, Any]:
    """An entry for the head of a file: what is older than its ``new`` measurements, from the head ``before``."""
    older = {key: before["environment"][key] for key in ("date", "commit")}
    return {"measured before": [{"what": f"all but {new}", **older}, *before.get("measured before", [])]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="default: the file of --again")
    parser.add_argument(
        "--grid", type=int, nargs="?", const=1 << 30, default=0, help="how many points of the grid"
    )
    parser.add_argument("--random", type=int, default=0, help="how many random problems")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sides", type=int, nargs=2, default=(16, 8192), help="range of random sides")
    parser.add_argument("--dtype", action="append", choices=ORDER, help="default: all dtypes, and tf32")
    parser.add_argument("--budget", type=float, default=0.006, help="seconds for each kernel at each point")
    parser.add_argument("--again", type=Path, help="measure --kernel again at this file's points")
    parser.add_argument("--kernel", action="append", default=[], help="with --again: what to measure")
    parser.add_argument("--at", action="append", help="with --again: the problems of this other kernel")
    parser.add_argument(
        "--most-k", type=int, default=math.inf, help="with --again: only problems up to this k"
    )
    parser.add_argument("--multiprocessors", type=int, help="use a green context with this many")
    options = parser.parse_args()
    if not (options.json or options.again):
        parser.error("--json or --again is needed")
    with multiprocessors(options.multiprocessors):
        run(options)


def run(options: argparse.Namespace) -> None:
    """Writes the file after every series, so that an interrupted run keeps its measurements."""
    head: dict[str, Any] = {"environment": describe("cuda")}
    points: list[Point] = []
    steps: list[tuple[Problems, list[str] | None]] = []
    if options.again:
        before, points = read_points(options.again)
        what = ", ".join([*options.kernel, *["new problems"] * (options.random > 0)])
        head |= history(before, what)
        at = problems_at(points, options.at or options.kernel, options.most_k)
        steps += [({name: at[name]}, options.kernel) for name in options.dtype or ORDER if name in at]
    grid = grid_of("gemm", "cuda") if options.grid else []
    problems = random.Random(options.seed).sample(grid, min(options.grid, len(grid)))
    problems += random_problems(options.random, options.seed, *options.sides)
    steps += [({name: problems}, None) for name in options.dtype or ORDER if problems]
    for wanted, only in steps:
        new = list(measure(wanted, options.budget, only))
        points = together(without(points, wanted, only) if only else points, new)
        write_points(options.json or options.again, head, points)


if __name__ == "__main__":
    main()
