"""Fits the constants of the predicted times of kernels, and writes csrc/cuda/gemm/predict/*.def.

    python benchmarks/fits/fit_costs.py            from h200.json, h200_graphs.json and h200_portable.json
    python benchmarks/fits/fit_costs.py --check    fail if the files do not match the measurements

Counts come from the library (csrc/cuda/gemm/predict), measurements from measure_kernels.py and, for 16-bit types
on Hopper, from measure_graphs.py.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

from fastgemm import _introspect
from fastgemm._choice.fit import error_of, fit_limited, thin
from generated_files import same_but_for_rounding
from points import Point, read_points, series_of
from static_tables.generate import ARITHMETIC_TYPES

DATA = Path(__file__).resolve().parent
ROOT = DATA.parent.parent
TARGET = ROOT / "csrc" / "cuda" / "gemm" / "predict"
# The GPU as its driver describes it.
H200 = {"capability": 90, "multiprocessors": 132, "clock": 1.98e9, "bandwidth": 4.916736e12, "wgmma": True}
GRAPHS = "h200_graphs.json"
PATHS = {"hopper": "h200.json", "portable": "h200_portable.json"}
BOTH = "both"
LIBRARY = "library"  # torch, or cuBLASLt if torch has no such product
HALF = ("float16", "bfloat16")
LEVELS = {row["name"]: row["level"] for row in _introspect.table() if row["device"] == "cuda"}
SEVERAL = 5  # levels from this one on have several predicted kernels
OTHER_SUMS = {"bf16x3", "fp16x3"}  # kernels that are chosen only for precisions of these names
FEWEST = 30  # the fewest points to fit a kernel to
SELDOM = 0.006  # a kernel that is the fastest at a smaller share of its points needs no prediction
# Types that share the constants of a kernel, on both paths. Constants of their own would describe each type a
# little better, but would not make better choices (check_choices.py).
SHARED = {
    "vectorized": ("int32",),
    "tiled": ("int32",),
    "thread_tile": ("int32",),
    "warp_specialized": ("float32 half",),
    "cp_async": ("float64", "float32", "half"),
    "small": ("float64 float32", "half", "int8", "int32"),
    "narrow": ("float64",),
    "direct": ("float64",),
    "wgmma_specialized": ("float32 int8",),
    "fp16x3": ("float32",),
    "bf16x3": ("float32",),
    "batched": ("float32", "int32"),
    "bf16x6_fused": ("float32",),
    "int8x10": ("int32",),
}
KEPT = {"float64": 400, "float32": 340, "tf32": 330, "int8": 240}  # of the library's points


def nearness(kernel: str, seconds: Mapping[str, float], among: Container[str]) -> float:
    """The weight of a measurement of a kernel: less if it is slower than the fastest rival, up to twice as slow,
    because a choice needs such a time less exactly."""
    fastest = min(time for name, time in seconds.items() if name in among)
    return math.sqrt(max(fastest / seconds[kernel], 0.5))


def problem_of(point: Point) -> tuple:
    sizes = (point[name] for name in ("batch", "m", "n", "k", "a_transposed", "b_transposed"))
    return point["dtype"], point.get("precision", "ieee"), *sizes


def type_of(problem: tuple) -> str:
    """The type, or "half" for both types of 16 bits, which have the same constants."""
    return "half" if problem[0] in HALF else problem[0]


def points_of(path: Path) -> Iterator[tuple[str, tuple, dict[str, float]]]:
    """Series (a dtype, or tf32), problem, and seconds by kernel."""
    return ((series_of(point), problem_of(point), point["seconds"]) for point in read_points(path)[1])


def observations() -> dict[tuple[str, str, str], list[tuple[list[float], float, float]]]:
    """By path, kernel and type (or "half"): counts, seconds and weight of each measurement."""
    found = defaultdict(list)
    for path, file in PATHS.items():
        gpu = {**H200, "wgmma": path == "hopper"}
        for _, problem, measured in [
            *points_of(DATA / file),
            *(points_of(DATA / GRAPHS) if gpu["wgmma"] else ()),
        ]:
            for kernel in measured.keys() - {LIBRARY}:
                try:
                    counts = _introspect.counts(kernel, problem, gpu)
                except ValueError:  # a rung that is not predicted
                    continue
                weight = nearness(kernel, measured, rivals(kernel))
                found[path, kernel, type_of(problem)].append((counts, measured[kernel], weight))
    return found


@functools.cache
def fitted() -> dict[tuple[str, str, str], list[float]]:
    """The constants by kernel, path and types. All types that share constants have the same weight in the fit."""
    measured, groups = observations(), defaultdict(list)
    for (path, kernel, dtype), points in measured.items():
        weights = [weight for *_, weight in points]
        everywhere = [point for key, each in measured.items() if key[1:] == (kernel, dtype) for point in each]
        wins = sum(weight == 1 for *_, weight in everywhere)
        if len(points) >= FEWEST and 1.0 in weights and wins >= SELDOM * len(everywhere):
            types = next((types for types in SHARED.get(kernel, ()) if dtype in types.split()), "")
            even = statistics.mean(weights) * math.sqrt(len(points))
            group = groups[(kernel, BOTH, types) if types else (kernel, path, dtype)]
            group += [(counts, seconds, weight / even) for counts, seconds, weight in points]
    return {key: fit_limited(*zip(*points, strict=True)) for key, points in groups.items()}


@functools.cache
def rivals(kernel: str) -> set[str]:
    """The kernels among which it may be chosen, and itself: those of its level, or all if it is alone there."""
    level = LEVELS[kernel]
    others = {name for name in LEVELS if level < SEVERAL or LEVELS[name] == level}
    return {kernel} | (others - OTHER_SUMS)


def rows_in_graphs() -> list[str]:
    """The kernels of level 6 that were the fastest in CUDA graphs, most often first."""
    won: Counter[str] = Counter()
    for *_, seconds in points_of(DATA / GRAPHS):
        own = [kernel for kernel in seconds if kernel != LIBRARY and LEVELS[kernel] == 6]
        won.update(kernel for kernel in own if nearness(kernel, seconds, rivals(kernel)) == 1)
    return [kernel for kernel, _ in won.most_common()]


def fields(costs: list[float]) -> str:
    return ", ".join(
        f".{name} = {value:g}" for name, value in zip(_introspect.COUNTS, costs, strict=True) if value
    )


def costs_def() -> str:
    lines = [
        "// What each count costs a kernel (counts.h), by source path and type.",
        "// Written by benchmarks/fits/fit_costs.py.",
        "// FASTGEMM_COSTS(row, path, types, constants)",
    ]
    order = list(LEVELS)
    for (kernel, path, types), costs in sorted(
        fitted().items(), key=lambda item: (order.index(item[0][0]), item[0])
    ):
        names = " | ".join(ARITHMETIC_TYPES.get(dtype, dtype) for dtype in types.split())
        lines.append(f"FASTGEMM_COSTS({kernel}, {path}, {names}, {fields(costs)})")
    return "\n".join([*lines, "#undef FASTGEMM_COSTS", ""])


@functools.cache
def library_series() -> dict[str, list[tuple[tuple, float]]]:
    """Problems and the library's seconds, by series."""
    measured = defaultdict(list)
    eager = [point for point in points_of(DATA / PATHS["hopper"]) if point[0] not in HALF]
    for series, problem, times in [*eager, *points_of(DATA / GRAPHS)]:
        if LIBRARY in times:
            measured[series].append((problem, times[LIBRARY]))
    return measured


@functools.cache
def library_model(series: str) -> tuple[list[float], list[float]]:
    """The constants of the library's model, and log(measured / predicted) at each of its points."""
    problems, seconds = zip(*library_series()[series], strict=True)
    counts = [_introspect.counts("library", p, H200) for p in problems]
    costs = fit_limited(counts, seconds)
    return costs, [error_of(c, costs, t) for c, t in zip(counts, seconds, strict=True)]


def percents_of_octave(off: float) -> int:
    return round(100 * off / math.log(2))


def library_defs() -> tuple[str, str]:
    """The library's points that are kept, and the constants of its model."""
    head = f"Written by benchmarks/fits/fit_costs.py from h200.json and {GRAPHS}."
    points, models = [f"// Measured products of the library. {head}", ""], [f"// Its model. {head}"]
    for series in (*KEPT, *HALF):
        costs, off = library_model(series)
        name = "k" + series.capitalize() if series in KEPT else "{}"
        dtype, precision = (
            ("f32", series) if series not in ARITHMETIC_TYPES else (ARITHMETIC_TYPES[series], "ieee")
        )
        models.append(f"FASTGEMM_LIBRARY({name}, {dtype}, {precision}, {fields(costs)})")
        if series in HALF:  # half_points() has them
            continue
        problems = [problem for problem, _ in library_series()[series]]
        points.append(f"constexpr LibraryPoint {name}[] = {{")
        for i in thin([_introspect.place(p) for p in problems], off, KEPT[series]):
            _, _, batch, m, n, k, a, b = problems[i]
            points.append(
                f"    {{{batch}, {m}, {n}, {k}, {'NT'[a]}, {'NT'[b]}, {percents_of_octave(off[i])}}},"
            )
        points += ["};", ""]
    return "\n".join(points), "\n".join([*models, "#undef FASTGEMM_LIBRARY", ""])


def half_points() -> str:
    """How far the constants of kernels for 16-bit types, and of the library in each type, are off at each
    product that was measured in CUDA graphs."""
    measured = [(problem, times) for *_, problem, times in points_of(DATA / GRAPHS) if problem[0] == HALF[1]]
    names = rows_in_graphs()
    costs = {
        kernel: each
        for (kernel, path, types), each in fitted().items()
        if path != "portable" and "half" in types
    }
    library = [
        {problem[1:]: off for (problem, _), off in zip(library_series()[t], library_model(t)[1], strict=True)}
        for t in HALF
    ]
    lines = [
        "// Measured products of 16-bit types: of kernels, then of the library in float16 and in bfloat16.",
        f"// Written by benchmarks/fits/fit_costs.py from {GRAPHS}.",
        f"constexpr Row kMeasuredRows[] = {{{', '.join(f'Row::{name}' for name in names)}}};",
        "constexpr HalfPoint kHalfPoints[] = {",
    ]
    for problem, times in measured:
        _, _, batch, m, n, k, a, b = problem
        # `outer` is timed where k is short.
        offs = [
            error_of(_introspect.counts(name, problem, H200), costs[name], times[name])
            if name in times
            else 0.0
            for name in names
        ]
        offs += [found[problem[1:]] for found in library]
        percents = ", ".join(str(percents_of_octave(off)) for off in offs)
        lines.append(f"    {{{batch}, {m}, {n}, {k}, {'NT'[a]}, {'NT'[b]}, {{{percents}}}}},")
    return "\n".join([*lines, "};", ""])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    check = parser.parse_args().check
    points, models = library_defs()
    stale = 0
    for name, text in (
        ("costs.def", costs_def()),
        ("library_points.def", points),
        ("library_costs.def", models),
        ("half_points.def", half_points()),
    ):
        path = TARGET / name
        if check and not same_but_for_rounding(path.read_text(), text):
            print(f"{path} is out of date: run python benchmarks/fits/fit_costs.py", file=sys.stderr)
            stale += 1
        elif not check:
            path.write_text(text)
            print(f"written: {path}, {len(text.splitlines())} lines")
    return stale > 0


if __name__ == "__main__":
    sys.exit(main())
