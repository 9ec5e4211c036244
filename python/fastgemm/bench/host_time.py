"""What one call costs the host, beside torch: on 16 x 16 operands the product itself is nothing.

Beside one shape repeated stand the layers of a model in turn, by which decisions made anew at every call are seen.
"""

from __future__ import annotations

import torch

from .. import ops
from .cuda_timing import HostTimer
from .environment import describe, using_threads
from .problems import Call, Gemm, Instance, instantiate
from .records import Measurement, Report
from .timing import interleave
from .turns import TurnTimer, measure_turns

BATCHES = 400
SIZE = 16


def contenders(instance: Instance) -> dict[str, Call]:
    a, b = instance.operands
    bare = torch.ops.fastgemm._matmul.default
    return {
        "torch.mm": lambda: torch.mm(a, b),
        "torch.ops.fastgemm._matmul": lambda: bare(a, b),
        "fastgemm.matmul": lambda: ops.matmul(a, b),
    }


def run_host_time(device: str, dtype: torch.dtype = torch.float32) -> Report:
    """Seconds of host time a call, without gradients; each makes its own result, as most user code does."""
    timer = HostTimer(device)
    instance = instantiate(Gemm(SIZE, SIZE, SIZE, dtype), device=device, allocate=True)
    with torch.no_grad():
        samples = interleave(contenders(instance), rounds=BATCHES, timer=timer)
    method = {"timer": timer.name, "text": timer.method, "batches": BATCHES, "calls_a_batch": timer.BATCH}
    method["in_turn"] = TurnTimer.method
    report = Report("host-time", describe(device), method)
    for name in contenders(instance):
        row = Measurement.of(instance, name, None, role="rung" if "fastgemm" in name else "baseline")
        row.seconds, row.baseline = samples.seconds(name), "torch.mm"
        if name != "torch.mm":
            row.speedup = samples.speedup(name, over="torch.mm")
        report.results.append(row)
    report.summary["relative_to_torch_mm"] = {
        row.kernel: row.seconds.median / report.results[0].seconds.median for row in report.results
    }
    with using_threads(1):
        report.results += measure_turns(device)
    return report
