"""Measures the host's time of a call when a model's layers are called in turn, and when each is called alone.

A repeated shape always finds its remembered decision. A model calls another shape each time. If the decision for a
layer is forgotten between two calls of this layer, it is made again at every call. That costs host time, and
repeated calls of one shape do not show it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from fastgemm import nn, ops
from fastgemm._drop_in.patch import patch
from fastgemm.bench.problems import Gemm, Instance, instantiate
from fastgemm.bench.records import Measurement
from fastgemm.bench.timing import Interleaved, interleave
from torch import Tensor

from .timers import HostTimer

ROWS = (1, 8, 32)
DTYPES = (torch.bfloat16, torch.float32)
# The hidden size and the inner sizes of two feed-forward layers, from Llama models of 1.1 and 1.2 billion
# parameters. On a CPU a call returns only when its product is finished, so sizes are small there, to show the
# host's time. They are multiples of 64, as in real layers.
SIZES = {"cuda": (2048, 5632, 8192), "cpu": (64, 192, 256)}
BATCHES = 15
BASELINE = "torch.matmul"
LAYER, TRAINED = "torch.nn.functional.linear", "functional.linear, forward and backward"
IN_TURN, ALONE = "in turn", "alone"


class ContextTimer(HostTimer):
    """Enters the context of a call once for each batch, before the clock starts."""

    def sample(self, call: Turn, repeats: int) -> float:
        with call.inside():
            return super().sample(call, repeats)


class TurnTimer(ContextTimer):
    """Times batches of turns. They are short, because the host would wait if a GPU's launch queue were full."""

    BATCH = 20
    method = (
        "wall clock of batches of 20 turns of asynchronous calls, a turn calling each layer once, or one of them "
        "as often, synchronized between batches, contenders in changing order; median over batches"
    )


@dataclass(frozen=True)
class Turn:
    """Several products in order. ``inside``: the context of a whole batch, entered before the clock starts."""

    product: Callable[..., Tensor]
    operands: list[tuple[Tensor, ...]]
    inside: Callable[[], Any] = field(default=contextlib.nullcontext)

    def __call__(self) -> None:
        product = self.product
        for operands in self.operands:
            product(*operands)

    def results(self) -> list[Tensor]:
        with self.inside():
            return [self.product(*operands).detach() for operands in self.operands]


Operands = tuple[Tensor, ...]


def _of_product(a: Tensor, weight: Tensor, bias: Tensor) -> Operands:
    return a, weight.t()


def _of_layer(a: Tensor, weight: Tensor, bias: Tensor) -> Operands:
    return a, weight, bias


def _wanting_gradients(*operands: Tensor) -> Operands:
    return tuple(x.detach().requires_grad_() for x in operands)


@dataclass(frozen=True)
class CallPath:
    """A way of calling a layer's product: its function, its context, its baseline and its operands."""

    product: Callable[..., Tensor]
    inside: Callable[[], Any] = contextlib.nullcontext
    baseline: str = BASELINE
    operands: Callable[[Tensor, Tensor, Tensor], Operands] = _of_product


def _bare_layer(a: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _bare(a, weight, bias, trans_b=True)


def _trained(layer: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def step(*operands: Tensor) -> Tensor:
        out = layer(*operands)
        torch.autograd.grad(out, operands, out)
        return out

    return step


@contextlib.contextmanager
def _patched_with_gradients() -> Iterator[None]:
    with torch.enable_grad(), patch():
        yield


_bare = torch.ops.fastgemm._gemm.default
_linear = torch.nn.functional.linear
WAYS: dict[str, CallPath] = {
    BASELINE: CallPath(torch.matmul),
    "torch.ops.fastgemm._matmul": CallPath(torch.ops.fastgemm._matmul.default),
    "fastgemm.matmul": CallPath(ops.matmul),
    "torch.matmul in a patch": CallPath(torch.matmul, patch),
    LAYER: CallPath(_linear, baseline=LAYER, operands=_of_layer),
    "torch.ops.fastgemm._gemm": CallPath(_bare_layer, baseline=LAYER, operands=_of_layer),
    "fastgemm.nn.linear": CallPath(nn.linear, baseline=LAYER, operands=_of_layer),
    "functional.linear in a patch": CallPath(_linear, patch, LAYER, _of_layer),
    TRAINED: CallPath(_trained(_linear), torch.enable_grad, TRAINED, _wanting_gradients),
    "nn.linear, forward and backward": CallPath(
        _trained(nn.linear), torch.enable_grad, TRAINED, _wanting_gradients
    ),
    "functional.linear in a patch, forward and backward": CallPath(
        _trained(_linear), _patched_with_gradients, TRAINED, _wanting_gradients
    ),
}


def layers(device: str, rows: int, dtype: torch.dtype) -> list[Gemm]:
    """The products of a model's six layers. Weights are stored as in torch.nn.Linear."""
    hidden, inner, wide = SIZES[device]
    sizes = [(hidden, hidden), (inner, hidden), (hidden, inner), (wide, hidden), (hidden, wide), (wide, wide)]
    return [Gemm(rows, n, k, dtype, "NT") for n, k in sizes]


def key(way: str, layer: int | None = None) -> str:
    """The name of a contender. ``layer`` None means all layers in turn."""
    return way if layer is None else f"{way}, layer {layer}"


def contenders(instances: list[Instance]) -> dict[str, Turn]:
    """Every way of calling, for all layers in turn and for each alone. Each layer has a random bias."""
    stored = [(a, b.t(), torch.randn_like(b[0])) for a, b in (instance.operands for instance in instances)]
    found = {}
    for name, way in WAYS.items():
        operands = [way.operands(*layer) for layer in stored]
        found[key(name)] = Turn(way.product, operands, way.inside)
        for i, layer in enumerate(operands):
            found[key(name, i)] = Turn(way.product, [layer] * len(operands), way.inside)
    return found


def wrong_results(instances: list[Instance], turns: dict[str, Turn]) -> dict[str, str]:
    """Messages about wrong results, by way of calling. Errors are relative to the largest element."""
    allowed = 1e-4 if instances[0].problem.dtype == torch.float32 else 2e-2
    wrong = {}
    for name, way in WAYS.items():
        turn = turns[key(name)]
        for instance, operands, result in zip(instances, turn.operands, turn.results(), strict=True):
            a, b = instance.operands
            exact = a.double() @ b.double()
            if way.operands is not _of_product:
                exact += operands[2].detach().double()
            error = ((result.double() - exact).abs().max() / exact.abs().max()).item()
            if not error < allowed:
                wrong[name] = f"{instance.problem.shape}: off by {error:.1e} of the largest element"
    return wrong


def measure_turns(device: str, batches: int | None = None) -> list[Measurement]:
    """The host's time of a product for each way of calling, with torch's current number of threads.

    Args:
        device: ``"cpu"``, where the time includes the product, or ``"cuda"``, where it runs asynchronously.
        batches: samples of each contender.

    Returns:
        For each dtype and number of rows, a row for the layers in turn and one for each layer alone: ``choice``
        says which. ``group`` is the number of rows, ``kernel`` the way of calling.
    """
    found = []
    for dtype in DTYPES:
        for rows in ROWS:
            found += _measure(device, rows, dtype, batches or BATCHES)
    return found


def _measure(device: str, rows: int, dtype: torch.dtype, batches: int) -> list[Measurement]:
    instances = [instantiate(p, device=device, allocate=True) for p in layers(device, rows, dtype)]
    with torch.no_grad():
        turns = contenders(instances)
        wrong = wrong_results(instances, turns)
        samples = interleave(turns, rounds=batches, timer=TurnTimer(device))
    return [
        _row(instances, way, layer, samples, wrong.get(way, ""))
        for way in WAYS
        for layer in (None, *range(len(instances)))
    ]


def _row(
    instances: list[Instance], way: str, layer: int | None, samples: Interleaved, message: str
) -> Measurement:
    rows = instances[0].problem.m
    row = Measurement.of(
        instances[layer or 0],
        way,
        None,
        role="baseline" if way == WAYS[way].baseline else "rung",
        group=f"{rows} row{'s' if rows > 1 else ''}",
        choice=IN_TURN if layer is None else ALONE,
        right=not message,
        message=message,
    )
    if layer is None:
        row.shape, row.label = (), f"{len(instances)} layers"
    row.seconds = samples.seconds(key(way, layer)).scaled(1 / len(instances))
    row.baseline = baseline = WAYS[way].baseline
    if way != baseline:
        row.speedup = samples.speedup(key(way, layer), over=key(baseline, layer))
    return row


def without(found: list[Measurement]) -> list[Measurement]:
    """The rows of a report without those that time layers in turn."""
    return [row for row in found if row.choice not in (IN_TURN, ALONE)]


@dataclass(frozen=True)
class Line:
    """Nanoseconds for each call, for one way of calling, dtype and number of rows."""

    dtype: str
    rows: str
    way: str
    in_turn: float
    alone: list[float]  # one value for each layer
    speedup: float  # in turn, over the baseline

    @property
    def mean_alone(self) -> float:
        return sum(self.alone) / len(self.alone)

    @property
    def dearer(self) -> float:
        """The time in turn, divided by the mean time of the layers alone."""
        return self.in_turn / self.mean_alone


def lines(found: list[Measurement]) -> list[Line]:
    """The lines of the tables. Rows that were not measured in turn are left out."""
    alone: dict[tuple[str, str, str], list[float]] = {}
    for row in found:
        if row.choice == ALONE:
            alone.setdefault((row.dtype, row.group, row.kernel), []).append(row.seconds.median * 1e9)
    return [
        Line(
            *(row.dtype, row.group, row.kernel, row.seconds.median * 1e9),
            alone[row.dtype, row.group, row.kernel],
            row.speedup.median if row.speedup else 1.0,
        )
        for row in found
        if row.choice == IN_TURN
    ]
