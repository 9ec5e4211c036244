"""Helpers of the pytest-benchmark suites: pytest benchmarks/ --benchmark-only

They time every available row of the kernel table, the fastest known choice (``best``) and torch. Each result
is checked before it is timed. Sizes are small, so that the whole suite takes about a minute. ``fastgemm
bench`` measures more precisely, and in turns with torch.
"""

from __future__ import annotations

from collections.abc import Callable

import fastgemm
import pytest
import torch
from fastgemm.bench import Instance, Problem, check, instantiate
from fastgemm.bench.checking import Reference
from fastgemm.bench.devices import best_device
from fastgemm.bench.problems import dtype_name


def contenders(op: str, dtypes: list[torch.dtype]) -> list:
    """(device, kernel, dtype): each row that can run here, the fastest known choice as ``best``, and ``torch``."""
    devices = ["cpu", "cuda"] if best_device() == "cuda" else ["cpu"]
    return [
        pytest.param(device, kernel, dtype, id=f"{device}-{kernel}-{dtype_name(dtype)}")
        for device in devices
        for dtype in dtypes
        for kernel in [
            r.name for r in fastgemm.kernels(op, device, dtype) if r.available and r.name != "torch"
        ]
        + ["best", "torch"]
    ]


def precision_of(device: str, kernel: str, dtype: torch.dtype) -> str | None:
    """The precision argument that a row needs: its own if it rounds float32 operands, else None."""
    rows = {row.name: row for row in fastgemm.kernels("gemm", device, dtype)}
    rounds = dtype == torch.float32 and kernel in rows and rows[kernel].precision != "ieee"
    return rows[kernel].precision if rounds else None


def call_of(instance: Instance, kernel: str) -> Callable[[], object]:
    if kernel == "best":
        return instance.ours()
    call = instance.torch() if kernel == "torch" else instance.ours(kernel=kernel)
    if call is None:
        pytest.skip(f"torch has no {dtype_name(instance.problem.dtype)} {instance.problem.op} on CUDA")
    return call


def synchronized(call: Callable[[], object]) -> Callable[[], object]:
    def run() -> None:
        call()
        torch.cuda.synchronize()

    return run


@pytest.fixture
def measure(benchmark):
    """Checks a kernel on a problem, then times it."""

    def run(problem: Problem, device: str, kernel: str) -> None:
        instance = instantiate(problem, device=device)
        call = call_of(instance, kernel)
        try:
            outcome = check(call, Reference(instance))
        except RuntimeError as refusal:
            if "cannot run here" not in str(refusal):
                raise
            pytest.skip(str(refusal))
        outcome.raise_if_wrong(f"{problem.op} {kernel}")
        benchmark.extra_info.update(
            kernel=instance.chosen() if kernel == "best" else kernel, unit=instance.unit[0]
        )
        rounds = max(3, min(50, int(0.1 / max(outcome.seconds, 1e-6))))
        if device == "cuda":
            call = synchronized(call)
        benchmark.pedantic(call, rounds=rounds, warmup_rounds=1)
        benchmark.extra_info["rate"] = problem.work / benchmark.stats.stats.median / instance.unit[1]

    return run
