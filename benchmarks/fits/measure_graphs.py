"""Times the kernels of 16-bit types, and the library, in CUDA graphs. In graphs, level=None chooses by
these times.

    python benchmarks/fits/measure_graphs.py --seed 7 --json h200_graphs.json
    python benchmarks/fits/measure_graphs.py --rest --add h200_graphs.json    the ordinary products that it lacks
    python benchmarks/fits/measure_graphs.py --layers 0 --batches 0 --sides 1 8192 --add h200_graphs.json
    python benchmarks/fits/measure_graphs.py --only outer --most-k 32 --add h200_graphs.json    a new kernel

Most products of a model follow one another without a pause, so kernels are timed that way: replays of a graph of
about 20 calls, whose weights are cold and whose activations are warm, as in `python benchmarks/run.py grid`.
Kernels take the same time in both types, so they are timed in bfloat16; the library is timed in each.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import fastgemm
import torch
from fastgemm import _introspect
from fastgemm.bench.session import REFUSAL
from fit_costs import LIBRARY
from measure_kernels import history, problem_in, random_problems, together
from points import Point, read_points, write_points

sys.path.append(str(Path(__file__).resolve().parent.parent))
from presets.grid import ACTIVATIONS, GraphTimer, captured, rotation
from static_tables.grid import Sizes
from studies import layers
from studies.environment import describe

ROUNDS, HOPELESS = 7, 3.0  # a kernel that many times as slow as the best is sampled twice
TYPES = (torch.bfloat16, torch.float16)
LAYOUTS = ("NT", "NN", "NT", "NN", "TN")  # of ordinary products; gradients of weights are TN


def rest(measured: list[Point]) -> list[tuple[Sizes, str]]:
    """The ordinary products, in both layouts of a layer, that are not measured yet."""
    known = {
        tuple(point[x] for x in ("batch", "m", "n", "k", "a_transposed", "b_transposed"))
        for point in measured
    }
    every = [((1, *shape), layout) for shape in layers.problems() for layout in ("NT", "NN")]
    return [(sizes, layout) for sizes, layout in every if (*sizes, False, layout == "NT") not in known]


def of_short_k(measured: list[Point], most_k: int) -> list[tuple[Sizes, str]]:
    """The products of the file up to this k."""
    return sorted({problem_in(point) for point in measured if point["k"] <= most_k})


def odd_multiple(size: int, unit: int) -> int:
    """An odd multiple of ``unit`` near ``size``."""
    return size // (2 * unit) * 2 * unit + unit


def problems(options: argparse.Namespace) -> list[tuple[Sizes, str]]:
    draw = random.Random(options.seed)
    shapes = layers.drawn(options.seed, options.layers)
    found = [((1, *shape), draw.choice(LAYOUTS)) for shape, _ in shapes]
    for sizes, layout in random_problems(options.random, options.seed, *options.sides):
        batch, m, n, k = sizes
        if options.most_k:
            k = k % options.most_k + 1
        if options.unit:
            m, n, k = (odd_multiple(size, options.unit) for size in (m, n, k))
        found.append(((batch, m, n, k), layout))
    for (_, *sizes), layout in random_problems(options.batches, options.seed + 1, 16, 1024):
        found.append(((draw.choice((2, 4, 8, 16, 32, 64)), *sizes), layout))
    return found


class Operands:
    """The tensors of a product in one type, and the calls of a graph."""

    def __init__(self, sizes: Sizes, layout: str, dtype: torch.dtype, cache: int):
        batch, m, n, k = sizes
        self.plan = rotation(batch * n * k * dtype.itemsize, cache)
        sets = 1 + max(j for _, j in self.plan)
        self.a = [self._random(batch, m, k, layout[0], dtype) for _ in range(ACTIVATIONS)]
        self.b = [self._random(batch, k, n, layout[1], dtype) for _ in range(sets)]
        self.out = [self.a[0].new_empty((batch, m, n)[batch == 1 :]) for _ in range(sets)]

    @staticmethod
    def _random(batch: int, rows: int, columns: int, letter: str, dtype: torch.dtype) -> torch.Tensor:
        sizes = (rows, columns) if letter == "N" else (columns, rows)
        x = torch.randn((batch, *sizes)[batch == 1 :], device="cuda", dtype=dtype)
        return x if letter == "N" else x.mT

    def graph(self, multiply: Any) -> Any:
        calls = [partial(multiply, self.a[i], self.b[j], out=self.out[j]) for i, j in self.plan]
        calls[0]()
        return captured(calls)


def point_of(sizes: Sizes, layout: str, cache: int, also: list[str], only: str | None = None) -> list[Point]:
    """The kernels that are timed: for bfloat16 all, or ``only`` this one; for float16 only the library."""
    timer, graphs, calls = GraphTimer(), {}, 1
    transposed = tuple(letter == "T" for letter in layout)
    every = [Operands(sizes, layout, dtype, cache) for dtype in TYPES]  # graphs do not own what they read
    for operands, dtype in zip(every, TYPES, strict=True):
        name = str(dtype).removeprefix("torch.")
        calls = len(operands.plan)
        if not only:
            graphs[name, LIBRARY] = operands.graph(torch.matmul)
        if name == "float16":
            continue
        predicted = dict(_introspect.predictions((name, "ieee", *sizes, *transposed)))
        kernels = [only] if only else [*predicted, *(each for each in also if each not in predicted)]
        for kernel in kernels:
            if kernel == LIBRARY:
                continue
            try:
                graphs[name, kernel] = operands.graph(partial(fastgemm.matmul, kernel=kernel))
            except RuntimeError as error:
                if REFUSAL not in str(error):
                    raise
    samples = {key: [timer.sample(graph, 1) for _ in range(2)] for key, graph in graphs.items()}
    best = min(min(each) for each in samples.values())
    kept = [key for key, each in samples.items() if min(each) < HOPELESS * best]
    for key in kept:
        samples[key] = []
    for _ in range(ROUNDS):
        for key in random.sample(kept, len(kept)):
            samples[key].append(timer.sample(graphs[key], 1))
    batch, m, n, k = sizes
    point = {"op": "gemm", "threads": 0, "batch": batch, "m": m, "n": n, "k": k}
    point |= {f"{x}_transposed": t for x, t in zip("ab", transposed, strict=True)}
    found: dict[str, dict[str, float]] = {}
    for (name, kernel), each in samples.items():
        found.setdefault(name, {})[kernel] = statistics.median(each) / calls
    return [point | {"dtype": name, "seconds": seconds} for name, seconds in found.items()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    file = parser.add_mutually_exclusive_group(required=True)
    file.add_argument("--json", type=Path, help="the file to write")
    file.add_argument("--add", type=Path, help="the file to add to")
    parser.add_argument("--rest", action="store_true", help="the ordinary products that the file lacks")
    parser.add_argument(
        "--layers", type=int, default=300, help="so many ordinary products (studies/layers.py)"
    )
    parser.add_argument("--random", type=int, default=120, help="so many of random sides")
    parser.add_argument("--sides", type=int, nargs=2, default=(16, 8192), help="range of random sides")
    parser.add_argument("--unit", type=int, help="random sides are odd multiples of it: 8 splits sectors")
    parser.add_argument("--batches", type=int, default=40, help="so many batches")
    parser.add_argument("--also", action="append", default=[], help="a kernel that is not predicted yet")
    parser.add_argument("--only", help="with --add: times this kernel at the file's products")
    parser.add_argument("--most-k", type=int, help="products up to this k")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--budget", type=float, default=560, help="seconds")
    options = parser.parse_args()
    cache, end = torch.cuda.get_device_properties().L2_cache_size, time.monotonic() + options.budget
    head: dict[str, Any] = {"environment": describe("cuda")}
    points: list[Point] = []
    if options.add:
        before, points = read_points(options.add)
        head |= history(before, options.only or "new problems")
    if options.only:
        wanted = of_short_k(points, options.most_k or max(point["k"] for point in points))
    else:
        wanted = rest(points) if options.rest else problems(options)
    random.Random(options.seed).shuffle(wanted)  # so the first ones are a fair selection
    with torch.no_grad():
        for i, (sizes, layout) in enumerate(wanted):
            if time.monotonic() > end:
                print(f"{len(wanted) - i} of {len(wanted)} problems were not measured")
                break
            points = together(points, point_of(sizes, layout, cache, options.also, options.only))
            torch.cuda.empty_cache()
    path = options.add or options.json
    write_points(path, head, points)
    print(f"{len(points)} points in {path}")


if __name__ == "__main__":
    main()
