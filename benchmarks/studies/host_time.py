"""Compares the host's time of one call with torch's. With 16 x 16 operands the product itself takes no time.

Besides one repeated shape, the layers of a model are called in turn, to show decisions that are not remembered.
"""

from __future__ import annotations

from functools import partial

import torch
from fastgemm import _override_library, ops
from fastgemm._drop_in.patch import patch
from fastgemm.bench.environment import using_threads
from fastgemm.bench.problems import Gemm, Instance, instantiate
from fastgemm.bench.records import Measurement, Report
from fastgemm.bench.timing import interleave

from .environment import describe
from .turns import ContextTimer, Turn, TurnTimer, measure_turns

BATCHES = 400
SIZE = 16


PRODUCT, SUM = "torch.mm", "torch.add"
BEFORE = ", before the first patch"


def contenders(instance: Instance) -> dict[str, Turn]:
    """The product in every way of calling it, and an op that a patch does not change."""
    operands = [instance.operands]
    return {
        PRODUCT: Turn(torch.mm, operands),
        "torch.ops.fastgemm._matmul": Turn(torch.ops.fastgemm._matmul.default, operands),
        "fastgemm.matmul": Turn(ops.matmul, operands),
        "torch.mm in a patch": Turn(torch.mm, operands, patch),
        "torch.mm in a patch that does not count": Turn(torch.mm, operands, partial(patch, count=False)),
        SUM: Turn(torch.add, operands),
        "torch.add in a patch": Turn(torch.add, operands, patch),
    }


def run_host_time(device: str, dtype: torch.dtype = torch.float32, *, in_turn: int | None = None) -> Report:
    """The host's time of a call, without gradients. Each call makes its own result, as in most user code.

    If this process has not entered a patch so far, torch's calls are also measured before the first patch, because
    after it they pass through fastgemm's kernels. ``in_turn``: batches of each way of calling layers in turn.
    """
    timer = ContextTimer(device)
    instance = instantiate(Gemm(SIZE, SIZE, SIZE, dtype), device=device, allocate=True)
    turns = contenders(instance)
    method = {"timer": timer.name, "text": timer.method, "batches": BATCHES, "calls_a_batch": timer.BATCH}
    method["in_turn"] = TurnTimer.method
    report = Report("host-time", describe(device), method)
    with torch.no_grad(), using_threads(1):
        first = (
            {}
            if _override_library.register.cache_info().currsize
            else {PRODUCT: turns[PRODUCT], SUM: turns[SUM]}
        )
        before = interleave(first, rounds=BATCHES, timer=timer) if first else None
        samples = interleave(turns, rounds=BATCHES, timer=timer)
    seconds = {name: samples.seconds(name) for name in turns}
    seconds |= {name + BEFORE: before.seconds(name) for name in first}
    for name, measured in seconds.items():
        role = "rung" if "fastgemm" in name or "patch" in name else "baseline"
        row = Measurement.of(instance, name, None, role=role)
        row.seconds, row.baseline = measured, PRODUCT
        if name in turns and name != PRODUCT:
            row.speedup = samples.speedup(name, over=PRODUCT)
        report.results.append(row)
    report.summary["relative_to_torch_mm"] = {
        row.kernel: row.seconds.median / report.results[0].seconds.median for row in report.results
    }
    with using_threads(1):
        report.results += measure_turns(device, in_turn)
    return report
