"""A mixture of experts in plain torch, under ``fastgemm.patch``, and with ``fastgemm.moe`` for its experts, side
by side.

    python examples/moe.py                                   # a GPU where there is one
    python examples/moe.py --device cpu --dtype float32 --json moe.json

Blocks as in Qwen3-MoE, with random weights: attention, a router that takes the best experts of each token, and
experts with a gate by silu. Three steps are timed: prefill (all tokens of some sequences), decode (one token of
each, after a context) and training (forward and backward pass). torch's experts are two calls of
torch.nn.functional.grouped_mm, as in the transformers library. Results are compared with those in float64.

Exit codes: 0 fine, 1 an error is more than twice that of torch, 2 usage.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import fastgemm
import repository  # noqa: F401
import torch
from comparing import give, options_of_ways
from fastgemm.bench.timing import CpuTimer, interleave
from fastgemm.cli import options
from rich.table import Table
from studies.timers import WallTimer
from torch import Tensor, nn
from torch.nn import functional

TORCH, PATCH, MOE = "torch", "patch", "moe"
STEPS = ("prefill", "decode", "training")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Sizes:
    layers: int
    hidden: int
    experts: int
    chosen: int  # experts of a token
    inner: int  # of an expert
    sequences: int
    tokens: int  # of a sequence


SIZES = {"cuda": Sizes(4, 2048, 64, 8, 768, 4, 1024), "cpu": Sizes(2, 512, 16, 4, 384, 4, 64)}
HEAD = 64  # size of an attention head


def experts_by_torch(x: Tensor, gate_up: Tensor, down: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    """What the transformers library does: sort, two grouped products, and the sum of each token."""
    tokens, chosen = ids.shape
    ordered, order = ids.flatten().sort()
    ends = torch.searchsorted(
        ordered, torch.arange(gate_up.shape[0], device=x.device), right=True, out_int32=True
    )
    if x.dtype == torch.float64:  # torch has no grouped product of it
        product = fastgemm.grouped_mm
    else:
        product = lambda a, b, offs: functional.grouped_mm(a, b, offs=offs)  # noqa: E731
    gate, up = product(x[order // chosen], gate_up.mT, ends).chunk(2, -1)
    y = product(functional.silu(gate) * up, down.mT, ends) * weights.flatten()[order, None]
    back = torch.empty_like(order)
    back[order] = torch.arange(order.shape[0], device=x.device)
    return y[back].view(tokens, chosen, -1).sum(1).to(x.dtype)


class Block(nn.Module):
    """Attention and experts, each after a norm and with a residual connection around it."""

    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.chosen, self.by = s.chosen, experts_by_torch
        self.norms = nn.ModuleList([nn.RMSNorm(s.hidden), nn.RMSNorm(s.hidden)])
        self.qkv = nn.Linear(s.hidden, 3 * s.hidden, bias=False)
        self.project = nn.Linear(s.hidden, s.hidden, bias=False)
        self.router = nn.Linear(s.hidden, s.experts, bias=False)
        self.gate_up = nn.Parameter(torch.randn(s.experts, 2 * s.inner, s.hidden) / s.hidden**0.5)
        self.down = nn.Parameter(torch.randn(s.experts, s.hidden, s.inner) / s.inner**0.5)
        self.prefer = nn.Parameter(torch.randn(s.experts), requires_grad=False)  # skews the routes

    def forward(self, x: Tensor, kept: Tensor | None) -> Tensor:
        """``kept``: keys and values of the tokens before, (2, sequences, heads, tokens, HEAD)."""
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, -1, HEAD)).permute(2, 0, 3, 1, 4)
        if kept is not None:
            k, v = torch.cat([kept[0], k], -2), torch.cat([kept[1], v], -2)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=kept is None)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        h = self.norms[1](x).flatten(0, 1)
        weights, ids = (self.router(h) + self.prefer).softmax(-1, dtype=torch.float32).topk(self.chosen)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        return x + self.by(h, self.gate_up, self.down, ids, weights).view_as(x)


class Model(nn.Module):
    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.layers))

    def forward(self, x: Tensor, kept: list[Tensor] | None = None) -> Tensor:
        for i, block in enumerate(self.blocks):
            x = block(x, kept[i] if kept else None)
        return x

    def with_experts(self, by: Callable[..., Tensor]) -> Model:
        """The same model with the same weights, whose experts are computed by another function."""
        other = copy.copy(self)
        other._modules = dict(self._modules)
        other.blocks = nn.ModuleList(copy.copy(block) for block in self.blocks)
        for block in other.blocks:
            block.by = by
        return other


class Work:
    """The steps of a model in one type."""

    def __init__(self, s: Sizes, device: str, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        with torch.device(device):
            model = Model(s).to(dtype)
            self.x = torch.randn(s.sequences, s.tokens, s.hidden).to(dtype)
            heads = s.hidden // HEAD
            self.kept = [
                torch.randn(2, s.sequences, heads, s.tokens, HEAD).to(dtype) for _ in range(s.layers)
            ]
        self.models = {TORCH: model, PATCH: model, MOE: model.with_experts(fastgemm.moe)}
        self.tokens = {
            "prefill": s.sequences * s.tokens,
            "decode": s.sequences,
            "training": s.sequences * s.tokens,
        }

    def in_float64(self) -> Work:
        other = copy.copy(self)
        other.x, other.kept = self.x.double(), [t.double() for t in self.kept]
        other.models = {TORCH: copy.deepcopy(self.models[TORCH]).double()}
        return other

    def step(self, name: str, way: str) -> Tensor:
        """The output, or in training the gradient of the experts of the first block."""
        model = self.models[way]
        with fastgemm.patch(count=False) if way != TORCH else contextlib.nullcontext():
            if name == "training":
                parameters = [p for p in model.parameters() if p.requires_grad]
                grads = torch.autograd.grad(model(self.x).float().square().mean(), parameters)
                return next(g for g, p in zip(grads, parameters, strict=True) if p is model.blocks[0].gate_up)
            with torch.no_grad():
                return model(self.x) if name == "prefill" else model(self.x[:, :1], self.kept)


def measured(work: Work, exact: Work, name: str, budget: float) -> list[dict[str, Any]]:
    """A row for each way of a step."""
    wanted = exact.step(name, TORCH)
    errors = {w: float((work.step(name, w).double() - wanted).norm() / wanted.norm()) for w in work.models}
    calls = {way: lambda way=way: work.step(name, way) for way in work.models}
    timer = WallTimer() if work.x.is_cuda else CpuTimer()
    samples = interleave(calls, budget=budget, timer=timer)
    rows = []
    for way, error in errors.items():
        seconds = samples.seconds(way).median
        rows.append(
            {
                "step": name,
                "way": way,
                "milliseconds": seconds * 1e3,
                "tokens_per_second": work.tokens[name] / seconds,
                "speedup": samples.speedup(way, TORCH).median if way != TORCH else 1.0,
                "error": error,
            }
        )
    return rows


def table_of(rows: list[dict[str, Any]], title: str) -> Table:
    table = Table(title=title)
    for head in ("step", "by", "ms", "tokens/s", "times as fast", "off by"):
        table.add_column(head, justify="left" if head in ("step", "by") else "right")
    for r in rows:
        numbers = f"{r['milliseconds']:.2f}", f"{r['tokens_per_second']:.0f}", f"{r['speedup']:.2f}"
        table.add_row(r["step"], r["way"], *numbers, f"{r['error']:.1e}")
    return table


@click.command(help=__doc__)
@click.option("--dtype", type=click.Choice(list(DTYPES)), default="bfloat16", show_default=True)
@click.option("--layers", type=click.IntRange(1), help="Default: 4 on a GPU, 2 on a CPU.")
@click.option("--tokens", type=click.IntRange(1), help="Of a sequence. Default: 1024 on a GPU, 64 on a CPU.")
@options_of_ways
def main(
    device: str | None,
    dtype: str,
    layers: int | None,
    tokens: int | None,
    budget: float,
    json: Path | None,
) -> None:
    device = options.chosen_device(device)
    sizes = asdict(SIZES[device])
    sizes |= {name: n for name, n in (("layers", layers), ("tokens", tokens)) if n is not None}
    s = Sizes(**sizes)
    work = Work(s, device, DTYPES[dtype])
    exact = work.in_float64()
    rows = [row for name in STEPS for row in measured(work, exact, name, budget)]
    title = (
        f"{s.layers} layers of {s.hidden}, {s.experts} experts of {s.inner}, {s.chosen} for a token, "
        f"{s.sequences} x {s.tokens} tokens, {dtype}"
    )
    give(table_of(rows, title), rows, device, json, command="python examples/moe.py", title=title)
    torchs = {row["step"]: row["error"] for row in rows if row["way"] == TORCH}
    wrong = [r for r in rows if not r["error"] <= 2 * torchs[r["step"]]]  # NaN, too
    if wrong:
        said = [f"{r['step']}, {r['way']}: {r['error']:.1e}" for r in wrong]
        raise click.ClickException("results err more than twice as much as torch's:\n" + "\n".join(said))


if __name__ == "__main__":
    main()
