"""The products that ``fastgemm tune`` measures: of many usual shapes, and none that takes too long."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from .. import _introspect
from .._choice.predictions import Problem

# The pairs of dtype and precision that are measured one after the other. Kernels of three planes have no pair of
# their own: they are timed beside IEEE products, whose kernels may serve their precisions, too.
SERIES = (
    ("float64", "ieee"),
    ("float32", "ieee"),
    ("float32", "tf32"),
    ("float16", "ieee"),
    ("bfloat16", "ieee"),
    ("int8", "ieee"),
    ("int32", "ieee"),
)
SIZE_OF = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "int32": 4}
LONGEST = 2e-3  # seconds that the fastest kernel may be predicted to take
MOST_BYTES = 1 << 30  # of operands and result
ALIGNED = 0.6  # share of problems whose sizes are multiples of 8 or 64


def log_uniform(draw: random.Random, least: int, most: int) -> int:
    return round(math.exp(draw.uniform(math.log(least), math.log(most))))


def _rounded(size: int) -> int:
    multiple = 64 if size >= 128 else 8
    return max(multiple, round(size / multiple) * multiple)


def _sizes(draw: random.Random, kind: int) -> list[int]:
    """Batch, m, n, k: out of eight, one is square, one thin along m, n or k, one a batch; five have any shape."""
    if kind == 0:
        return [1, *[log_uniform(draw, 64, 16384)] * 3]
    if kind == 1:
        sizes = [log_uniform(draw, 64, 32768) for _ in range(3)]
        sizes[draw.randrange(3)] = log_uniform(draw, 1, 32)
        return [1, *sizes]
    if kind == 2:
        return [log_uniform(draw, 2, 512), *(log_uniform(draw, 8, 1024) for _ in range(3))]
    return [1, *(log_uniform(draw, 8, 16384) for _ in range(3))]


def bytes_of(problem: Problem) -> int:
    dtype, _, batch, m, n, k, *_ = problem
    size = SIZE_OF[dtype]
    return batch * ((m * k + k * n) * size + m * n * max(size, 4 if dtype == "int8" else size))


def problems(
    dtype: str, precision: str, gpu: dict[str, Any], *, most_bytes: int = MOST_BYTES, seed: int = 0
) -> Iterator[Problem]:
    """An endless series, the same for the same seed and GPU."""
    draw = random.Random(f"{seed} {dtype} {precision}")
    kind = 0
    while True:
        sizes = _sizes(draw, kind % 8)
        if draw.random() < ALIGNED:
            thin = min(sizes[1:]) < 8
            sizes[1:] = [size if thin and size <= 32 else _rounded(size) for size in sizes[1:]]
        transposed = draw.random() < 0.5, draw.random() < 0.5
        problem: Problem = (dtype, precision, sizes[0], sizes[1], sizes[2], sizes[3], *transposed)
        own = [s for name, s in _introspect.predictions(problem, gpu) if name != "library"]
        if bytes_of(problem) <= most_bytes and own and min(own) <= LONGEST:
            kind += 1
            yield problem
