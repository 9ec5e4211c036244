"""Times every kernel that may be the fastest, and the library, on this GPU: what predictions are fitted to.

    python tools/measure_kernels.py --grid --random 120 --seed 77 --json kernels.json --library library.json
    python tools/measure_kernels.py --random 100 --seed 7 --json choices.json        the library among the kernels
    python tools/measure_kernels.py --random 40 --multiprocessors 64 --json ...      on a part of the GPU
    python tools/measure_kernels.py --again kernels.json --kernel dmma --json ...    after a change of one kernel
    python tools/measure_kernels.py --again kernels.json --at bf16x6 --kernel crt --json ...    a new kernel
    python tools/measure_kernels.py --again kernels.json --random 60 --json ... --library ...   new problems

Kernels far behind are left out of a point. tools/fit_costs.py reads the first two files, tools/check_choices.py
all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from fastgemm.bench import describe
from fastgemm.bench.problems import LAYOUTS
from fastgemm.bench.session import Session
from static_tables.grid import Sizes, grid_of, work_of
from static_tables.series import BESIDE_IEEE, Series

FORMAT = 1
SERIES = {name: (name, None) for name in ("float64", "float32", "float16", "bfloat16", "int8", "int32")} | {
    "tf32": ("float32", "tf32")
}
ORDER = ("float64", "float32", "tf32", "float16", "bfloat16", "int8", "int32")
LIBRARY_FIELD = "torch, or cuBLASLt where torch has no such product"
LIBRARY = ("torch", "cublaslt_1")  # the latter where torch has no such product, or its flags let it round
ALIGNED, UNIT = 0.4, 64  # this share of random problems has sides of whole units


def random_problems(count: int, seed: int, least: int, most: int) -> list[tuple[Sizes, str]]:
    """Shapes log-uniform in ``least`` to ``most``, in random layouts."""
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
    """Runs on so many of the GPU's; its L2 cache and its bandwidth stay whole."""
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


def measure(
    problems: dict[str, list[tuple[Sizes, str]]], budget: float, only: list[str] | None = None
) -> dict[tuple, dict[str, float]]:
    """Microseconds by kernel, by (series, layout, batch, m, n, k). ``problems``: those of each series."""
    found: dict[tuple, dict[str, float]] = {}
    with Session("cuda") as session:
        for name, wanted in problems.items():
            dtype, precision = SERIES[name]
            series = Series("gemm", dtype, precision, session, budget, slowest=0.7, only=only)
            if only:  # without yardsticks: none of these kernels was far behind at these points
                series.candidates = [row for row in series.candidates if row.name in only]
            for sizes, layout in sorted(wanted, key=lambda problem: work_of("gemm", problem[0])):
                times: dict[str, float] = {}
                for point in series.measure(sizes, layout):
                    split = point.get("precision") in BESIDE_IEEE
                    for kernel, seconds in point["seconds"].items():
                        if not split or kernel == point["precision"]:
                            times[kernel] = float(f"{seconds * 1e6:.4g}")
                library = next((times[k] for k in LIBRARY if k in times), None)
                times = {k: t for k, t in times.items() if k != "torch" and not k.startswith("cublas")}
                found[(name, layout, *sizes)] = times | ({LIBRARY[0]: library} if library else {})
            print(f"{name}: {sum(key[0] == name for key in found)} problems")
            torch.cuda.empty_cache()
    return {key: times for key, times in found.items() if times}


def of_kernels(path: Path, names: list[str]) -> tuple[dict[tuple, dict[str, float]], dict[str, list]]:
    """The points of a file, and of each series the problems at which it has one of the kernels."""
    points = {
        (series, layout, *sizes): times
        for series, layout, *sizes, times in json.loads(path.read_text())["points"]
    }
    problems: dict[str, list[tuple[Sizes, str]]] = {}
    for (series, layout, *sizes), times in points.items():
        if not times.keys().isdisjoint(names):
            problems.setdefault(series, []).append((tuple(sizes), layout))
    return points, problems


def write(path: Path, points: dict[tuple, Any], last: str, kept: list[dict[str, str]] | None = None) -> None:
    """One point a line. ``kept``: what the file says of the times in it that are older, the last ones first."""
    head = {
        "format": FORMAT,
        "unit": "microseconds: median, L2 cache cold, kernels in turn",
        "fields": ["dtype or precision", "layout", "batch", "m", "n", "k", last],
        "environment": describe("cuda"),
    }
    if kept:
        head["measured before"] = kept
    rows = sorted(points.items(), key=lambda item: (ORDER.index(item[0][0]), item[0][2:], item[0][1]))
    lines = ",\n".join(json.dumps([*key, value], separators=(",", ":")) for key, value in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(head, indent=1)[:-2] + ',\n "points": [\n' + lines + "\n]}\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument(
        "--library", type=Path, help="a file of its own for the library (with --again: that is added to)"
    )
    parser.add_argument(
        "--grid", type=int, nargs="?", const=1 << 30, default=0, help="so many points of the grid"
    )
    parser.add_argument("--random", type=int, default=0, help="so many random problems")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sides", type=int, nargs=2, default=(16, 8192), help="of random problems")
    parser.add_argument("--dtype", action="append", choices=ORDER, help="default: all, and tf32")
    parser.add_argument("--budget", type=float, default=0.006, help="seconds for each kernel at each point")
    parser.add_argument("--again", type=Path, help="the points of this file, of which --kernel are measured")
    parser.add_argument("--kernel", action="append", default=[], help="with --again")
    parser.add_argument(
        "--at", action="append", help="with --again: the problems of this kernel, not its own"
    )
    parser.add_argument("--multiprocessors", type=int, help="a green context of so many")
    options = parser.parse_args()
    with multiprocessors(options.multiprocessors):
        if options.again:
            measure_again(options)
        else:
            measure_new(options)


def split_off_library(points: dict[tuple, dict[str, float]]) -> dict[tuple, float]:
    return {key: times.pop(LIBRARY[0]) for key, times in points.items() if LIBRARY[0] in times}


def measure_new(options: argparse.Namespace) -> None:
    grid = grid_of("gemm", "cuda") if options.grid else []
    problems = random.Random(options.seed).sample(grid, min(options.grid, len(grid)))
    problems += random_problems(options.random, options.seed, *options.sides)
    points = measure(dict.fromkeys(options.dtype or ORDER, problems), options.budget)
    if options.library:
        write(options.library, split_off_library(points), LIBRARY_FIELD)
    write(options.json, points, "by kernel")


def kept_of(head: dict[str, Any], measured: str) -> list[dict[str, str]]:
    """What a file says of the times that are older than those that are ``measured`` now."""
    older = {"what": f"all but {measured}"} | {key: head["environment"][key] for key in ("date", "commit")}
    return [older, *head.get("measured before", [])]


def measure_again(options: argparse.Namespace) -> None:
    """Writes after every series, so that what was measured is kept when time is up."""
    points, wanted = of_kernels(options.again, options.at or options.kernel)
    measured = ", ".join([*options.kernel, *["new problems"] * (options.random > 0)])
    kept = kept_of(json.loads(options.again.read_text()), measured)
    for name in options.dtype or ORDER:
        if name in wanted:
            for sizes, layout in wanted[name]:
                for kernel in options.kernel:
                    points[(name, layout, *sizes)].pop(kernel, None)
            for key, times in measure({name: wanted[name]}, options.budget, options.kernel).items():
                points[key] |= {kernel: time for kernel, time in times.items() if kernel in options.kernel}
            write(options.json, points, "by kernel", kept)
    if options.random:
        problems = random_problems(options.random, options.seed, *options.sides)
        new = measure(dict.fromkeys(options.dtype or ORDER, problems), options.budget)
        library = split_off_library(new)
        write(options.json, points | new, "by kernel", kept)
        if options.library:
            head = json.loads(options.library.read_text())
            before = {(series, layout, *sizes): time for series, layout, *sizes, time in head["points"]}
            write(options.library, before | library, LIBRARY_FIELD, kept_of(head, "new problems"))


if __name__ == "__main__":
    main()
