"""Compares the host's time of small calls with and without torch.compile, and with torch: 64 x 64 products.

One compiled call of one product shows the cost of entering compiled code (guards, arguments). A compiled function
of several products shows the cost of each product inside, where no Python code of fastgemm runs. Besides one
repeated shape, the layers of a model are called in turn, to show decisions that are not remembered.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from fastgemm import ops
from fastgemm.bench.cuda_timing import HostTimer
from fastgemm.bench.environment import using_threads
from fastgemm.bench.problems import Call, Gemm, instantiate
from fastgemm.bench.records import Measurement, Report
from fastgemm.bench.timing import interleave
from torch import Tensor

from .environment import describe
from .turns import TurnTimer, measure_turns

SIZE = 64
CHAIN = 16
BATCHES = 40
BASELINE = "torch.matmul"
Product = Callable[[Tensor, Tensor], Tensor]


def _chain(product: Product, length: int) -> Product:
    """a @ b @ b ... with ``length`` products."""

    def run(a: Tensor, b: Tensor) -> Tensor:
        for _ in range(length):
            a = product(a, b)
        return a

    return run


def functions(device: str, length: int) -> dict[str, Product]:
    """The same chain of products in every way of calling it. torch.compile compiles at the first call."""
    torch_chain, our_chain = _chain(torch.matmul, length), _chain(ops.matmul, length)
    found = {
        BASELINE: torch_chain,
        "fastgemm.matmul": our_chain,
        "torch.matmul, compiled": torch.compile(torch_chain, fullgraph=True),
        "fastgemm.matmul, compiled": torch.compile(our_chain, fullgraph=True),
    }
    if device == "cuda":
        graphed = torch.compile(our_chain, fullgraph=True, mode="reduce-overhead")
        found["fastgemm.matmul, compiled, CUDA graphs"] = graphed
    return found


def _calls(instance_operands: tuple[Tensor, ...], device: str, length: int) -> dict[str, Call]:
    a, b = instance_operands
    return {name: lambda f=f: f(a, b) for name, f in functions(device, length).items()}


def _check(calls: dict[str, Call]) -> dict[str, str]:
    """Messages about wrong results, by contender. Errors are relative to the largest element."""
    exact = calls[BASELINE]().double()
    wrong = {}
    for name, call in calls.items():
        error = ((call().double() - exact).abs().max() / exact.abs().max()).item()
        if not error < 1e-4:
            wrong[name] = f"differs from {BASELINE} by {error:.1e} of the largest element"
    return wrong


@contextlib.contextmanager
def _compiling_anew() -> Iterator[None]:
    """Disables torch's caches on disk, because they do not notice changes inside fastgemm's ops."""
    import torch._functorch.config
    import torch._inductor.config

    with (
        torch._inductor.config.patch(fx_graph_cache=False),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        yield


def run_overhead(device: str, batches: int | None = None) -> Report:
    """The host's time of a product, without gradients: alone, as one of 16 in a compiled function, and in turn.

    Args:
        device: ``"cpu"``, where the time includes the product itself, on one thread, or ``"cuda"``, where the
            product runs asynchronously.
        batches: samples of each contender.
    """
    with using_threads(1):
        return _measure(device, batches or BATCHES)


def _measure(device: str, batches: int) -> Report:
    timer = HostTimer(device)
    instance = instantiate(Gemm(SIZE, SIZE, SIZE), device=device)
    method = {
        "timer": timer.name,
        "text": timer.method,
        "batches": batches,
        "calls_a_batch": timer.BATCH,
        "chain": CHAIN,
        "in_turn": TurnTimer.method,
    }
    report = Report("overhead", describe(device), method)
    for length in (1, CHAIN):
        torch._dynamo.reset()
        with torch.no_grad(), _compiling_anew():
            calls = _calls(instance.operands, device, length)
            wrong = _check(calls)
            samples = interleave(calls, rounds=batches, timer=timer)
        for name in calls:
            role = "baseline" if name == BASELINE else "rung" if "fastgemm" in name else "library"
            row = Measurement.of(instance, name, None, role=role, group=f"{length} in a call")
            row.right, row.message = name not in wrong, wrong.get(name, "")
            row.seconds, row.baseline = samples.seconds(name).scaled(1 / length), BASELINE
            if name != BASELINE:
                row.speedup = samples.speedup(name, over=BASELINE)
            report.results.append(row)
    report.results += measure_turns(device, batches)
    return report
