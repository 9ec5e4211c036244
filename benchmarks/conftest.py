"""Shared by the pytest-benchmark suites: pytest benchmarks/ --benchmark-only

Every available row of the kernel table, the fastest known choice (``best``) and torch, each checked before it is
timed. Sizes are small, so that the whole suite takes about a minute; ``fastgemm bench`` measures with a finer
method, interleaved with torch.
"""

from __future__ import annotations

from collections.abc import Callable

import fastgemm
import pytest
import torch
from fastgemm.bench import Instance, Problem, check, instantiate
from fastgemm.bench.checking import Reference
from fastgemm.bench.problems import dtype_name


def contenders(op: str, dtypes: list[torch.dtype]) -> list:
    """(kernel, dtype): each row that can run here, the fastest known choice as ``best``, and ``torch``."""
    return [
        pytest.param(kernel, dtype, id=f"{kernel}-{dtype_name(dtype)}")
        for dtype in dtypes
        for kernel in [
            r.name for r in fastgemm.kernels(op, "cpu", dtype) if r.available and r.name != "torch"
        ]
        + ["best", "torch"]
    ]


def call_of(instance: Instance, kernel: str) -> Callable[[], object]:
    if kernel == "torch":
        return instance.torch()
    return instance.ours() if kernel == "best" else instance.ours(kernel=kernel)


@pytest.fixture
def measure(benchmark):
    """Checks a kernel on a problem, then times it."""

    def run(problem: Problem, kernel: str) -> None:
        instance = instantiate(problem)
        call = call_of(instance, kernel)
        outcome = check(call, Reference(instance))
        outcome.raise_if_wrong(f"{problem.op} {kernel}")
        benchmark.extra_info.update(
            kernel=instance.chosen() if kernel == "best" else kernel, unit=problem.unit
        )
        rounds = max(3, min(50, int(0.1 / max(outcome.seconds, 1e-6))))
        benchmark.pedantic(call, rounds=rounds, warmup_rounds=1)
        benchmark.extra_info["rate"] = problem.work / benchmark.stats.stats.median / 1e9

    return run
