"""A small transformer, trained one step in plain torch and under ``fastgemm.patch``, side by side.

    python examples/transformer.py                                  # CPU, float32; a GPU where there is one
    python examples/transformer.py --device cuda --dtype bfloat16 --json transformer.json
    python examples/transformer.py --size cuda-wide --dtype bfloat16

The model uses only torch and has random weights. Its attention is computed by products and softmax or by
``scaled_dot_product_attention``. Loss, logits, gradients and the weights after a step of AdamW are compared with
those of plain torch, and may differ by what rounding explains (rounding.py). Then both are timed in turn.

Exit codes: 0 fine, 1 a difference is larger than rounding explains, 2 usage.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import fastgemm
import repository  # noqa: F401
import torch
from comparing import DTYPES, common_options, hand_over, row
from fastgemm.bench.environment import describe, using_threads
from fastgemm.bench.records import Measurement, Report
from fastgemm.bench.session import Session
from fastgemm.bench.timing import Call, Interleaved, interleave
from fastgemm.cli import options
from fastgemm.cli.console import console, failures_as_exit_code
from rich.table import Table
from rounding import Difference, Values, adamw_bound, by_kind, differences, outcome, spread
from studies.timers import HostTimer
from torch import Tensor, nn
from torch.nn import functional

TYPES = {"float64": torch.float64, **DTYPES}
LEARNING_RATE, EPSILON = 1e-3, 1e-8
ATTENTIONS = ("matmul", "sdpa")
PHASES = ("forward", "forward and backward", "training step")


@dataclass(frozen=True)
class Config:
    """Sizes of a model and of what it is given."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    batch: int
    length: int
    attention: str = "matmul"
    tied: bool = False

    @property
    def label(self) -> str:
        return f"{self.layers} layers of {self.width}, {self.batch} x {self.length} tokens"


CONFIGS = {
    "tiny": Config(layers=2, width=32, heads=2, vocabulary=61, batch=2, length=16),
    "cpu": Config(layers=3, width=256, heads=4, vocabulary=2048, batch=4, length=128),
    "cuda": Config(layers=6, width=1024, heads=16, vocabulary=8192, batch=8, length=1024),
    "cuda-wide": Config(layers=6, width=2048, heads=16, vocabulary=8192, batch=8, length=1024),
}


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.kind = config.heads, config.attention
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.kind == "sdpa":
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.mT / math.sqrt(q.shape[-1])
            later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            y = scores.masked_fill(later, -math.inf).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.before_attention, self.attention = nn.LayerNorm(width), Attention(config)
        self.before_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x))
        return x + self.mlp(self.before_mlp(x))


class Transformer(nn.Module):
    """A decoder: token and position embeddings, blocks, and a head that may share the token embedding's weight."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.length, config.width)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        if config.tied:
            self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        here = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions(here))))


def loss_of(model: nn.Module, data: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the next token, and the logits."""
    logits = model(data[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), data[:, 1:].flatten()), logits


def gradients(model: nn.Module, data: Tensor) -> Values:
    """Loss, logits and gradients."""
    model.zero_grad()
    loss, logits = loss_of(model, data)
    loss.backward()
    values = {f"gradient of {name}": p.grad.clone() for name, p in model.named_parameters()}
    return {"loss": loss.detach(), "logits": logits.detach(), **values}


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW. In float16 EPSILON and the squares of small gradients are 0, and a step would divide 0 by 0. The
    fused kernel computes in float32."""
    fused = next(model.parameters()).dtype == torch.float16 or None  # None: as torch chooses
    return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, eps=EPSILON, fused=fused)


def one_step(model: nn.Module, data: Tensor) -> tuple[Values, Values]:
    """Loss, logits, gradients, and the weights after a step; ``model`` is left as it was."""
    model = copy.deepcopy(model)
    values = gradients(model, data)
    optimizer_of(model).step()
    return values, {f"weight of {name}": p.detach() for name, p in model.named_parameters()}


def weight_differences(
    torchs: Values, own: Values, exact: Values, half_bounds: dict[str, float], dtype: torch.dtype
) -> list[Difference]:
    """The differences of the weights after a step. Their bounds follow from those of the gradients."""
    found = []
    for name, theirs in torchs.items():
        gradient = f"gradient{name.removeprefix('weight')}"
        bound = adamw_bound(exact[gradient], half_bounds[gradient], theirs, LEARNING_RATE, EPSILON, dtype)
        found.append(Difference.of("weight", theirs, own[name], bound))
    return found


def phases(
    model: nn.Module, data: Tensor, products: contextlib.AbstractContextManager[Any]
) -> dict[str, Call]:
    """The functions to time; none of them changes the model's shape or the data.

    ``products`` is a context around the products. The optimizer has no products, so it stays outside.
    """
    optimizer = optimizer_of(model)

    def forward() -> None:
        with torch.no_grad(), products:
            loss_of(model, data)

    def backward() -> None:
        model.zero_grad()
        with products:
            loss_of(model, data)[0].backward()

    def step() -> None:
        backward()
        optimizer.step()

    return dict(zip(PHASES, (forward, backward, step), strict=True))


@contextlib.contextmanager
def float32_precision(name: str) -> Iterator[None]:
    """torch's own float32 products on a GPU; a patch follows them."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = name
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


@dataclass
class Run:
    """One model in one type, its data, and what the patch is to use."""

    config: Config
    dtype: torch.dtype
    precision: str
    choice: dict[str, Any]
    session: Session

    def __post_init__(self) -> None:
        c = self.config
        with torch.device(self.session.device):
            self.model = Transformer(c).to(self.dtype)
            self.data = torch.randint(c.vocabulary, (c.batch, c.length + 1))
        self.weights = copy.deepcopy(self.model.state_dict())

    def attend_by(self, kind: str) -> None:
        """Starts afresh from the first weights, which the steps that are timed change."""
        self.model.load_state_dict(self.weights)
        self.config = replace(self.config, attention=kind)
        for layer in self.model.modules():
            if isinstance(layer, Attention):
                layer.kind = kind

    @cached_property
    def exact(self) -> tuple[Values, dict[str, float]]:
        """The model's results in float64, with either attention, and how far rounding errors change them."""
        # Here attention is always computed by products, because errors can be added to products.
        with torch.device(self.session.device):
            model = Transformer(replace(self.config, attention="matmul"))
        model.load_state_dict(self.weights)
        model = model.double()
        return spread(lambda: gradients(model, self.data), self.dtype, self.precision, self.session.device)

    def compare(self) -> tuple[list[Difference], fastgemm.Routed]:
        """Differences between torch and the patched run, and what was routed in a training step."""
        exact, half_bounds = self.exact
        with float32_precision(self.precision):
            torchs, torchs_weights = one_step(self.model, self.data)
            with fastgemm.patch(**self.choice) as routed:
                own, own_weights = one_step(self.model, self.data)
        found = differences(torchs, own, exact, half_bounds)
        found += weight_differences(torchs_weights, own_weights, exact, half_bounds, self.dtype)
        return by_kind(found), routed

    def row(self, phase: str, kernel: str, **more: Any) -> Measurement:
        c = self.config
        return row(
            self.session,
            self.dtype,
            op=phase,
            shape=(c.layers, c.width, c.heads, c.vocabulary, c.batch, c.length),
            label=c.label,
            kernel=kernel,
            level=self.choice["level"],
            group=f"attention by {c.attention}, {'tied' if c.tied else 'untied'} head",
            precision=self.precision if self.dtype == torch.float32 else "",
            **more,
        )

    def measure(self, report: Report, budget: float) -> None:
        """Compares both, times them in turn, and adds the rows."""
        found, routed = self.compare()
        torchs = phases(self.model, self.data, contextlib.nullcontext())
        patched = phases(self.model, self.data, fastgemm.patch(**self.choice))
        for phase in PHASES:
            samples = self.time({"torch": torchs[phase], "fastgemm": patched[phase]}, budget)
            own = samples.seconds("fastgemm"), samples.speedup("fastgemm", over="torch")
            report.results += [
                self.row(phase, "torch", role="baseline", seconds=samples.seconds("torch")),
                self.row(phase, "fastgemm", seconds=own[0], speedup=own[1], **outcome(found)),
            ]
        last = report.results[-1]
        report.summary["runs"].append(
            {"group": last.group, "dtype": last.dtype, "precision": last.precision}
            | {"differences": [asdict(d) for d in found], "routed_in_a_step": routed.as_dict()}
        )

    def time(self, calls: dict[str, Call], budget: float) -> Interleaved:
        with float32_precision(self.precision):
            return interleave(calls, budget=budget, timer=self.session.timer)


class BatchTimer(HostTimer):
    BATCH = 1  # the calls are batches themselves


def overhead(device: str) -> dict[str, float]:
    """Microseconds of host time that calls on 16 x 16 matrices take, median of 100 batches of 200."""
    a, b = torch.randn(2, 16, 16, device=device)
    calls = {"torch.mm": lambda: torch.mm(a, b), "torch.add": lambda: torch.add(a, b)}

    def batch(call: Call) -> Call:
        return lambda: [call() for _ in range(HostTimer.BATCH)]

    batches = {name: batch(call) for name, call in calls.items()}
    batches |= {f"{name}, patched": fastgemm.patch()(batch(call)) for name, call in calls.items()}
    batches["fastgemm.matmul"] = batch(lambda: fastgemm.matmul(a, b))
    samples = interleave(batches, rounds=100, timer=BatchTimer(device))
    return {name: samples.seconds(name).median / HostTimer.BATCH * 1e6 for name in batches}


def show(report: Report) -> None:
    table = Table("model", "dtype", "phase", "torch ms", "fastgemm ms", "times as fast", box=None)
    for theirs, own in zip(report.results[::2], report.results[1::2], strict=True):
        times = f"{theirs.seconds.median * 1e3:.2f}", f"{own.seconds.median * 1e3:.2f}"
        table.add_row(own.group, own.type_name, own.op, *times, f"{own.speedup.median:.2f}")
    out = console()
    out.print(table)
    for run in report.summary["runs"]:
        name = run["precision"] if run["precision"] == "tf32" else run["dtype"]
        out.print(
            f"{run['group']}, {name}: largest differences to torch, and share of what rounding explains"
        )
        for d in run["differences"]:
            out.print(f"  {d['kind']:<9} {d['largest']:.2g} of {d['scale']:.2g} ({d['of_bound']:.2f})")
        out.print(f"  routed: {run['routed_in_a_step']}", style="dim")
    out.print("host time in us: " + ", ".join(f"{n} {t:.2f}" for n, t in report.summary["host_us"].items()))


def types_of(device: str, dtypes: tuple[torch.dtype, ...]) -> list[tuple[torch.dtype, str]]:
    """Types and precisions of float32: on a GPU float32 stands for ieee and tf32."""
    return [
        (dtype, precision)
        for dtype in dtypes
        for precision in (("ieee", "tf32") if device == "cuda" and dtype == torch.float32 else ("ieee",))
    ]


def measured(
    config: Config,
    dtypes: tuple[torch.dtype, ...],
    attentions: tuple[str, ...],
    session: Session,
    level: int | None,
    budget: float,
) -> Report:
    """Each type and way of attending: compared, then timed for ``budget`` seconds a phase and way."""
    report = Report("transformer", describe(session.device), session.describe())
    report.summary.update(runs=[], host_us=overhead(session.device))
    for dtype, precision in types_of(session.device, dtypes):
        run = Run(config, dtype, precision, {"level": level}, session)
        for attention in attentions:
            run.attend_by(attention)
            run.measure(report, budget)
    return report


@click.command()
@click.option("--size", type=click.Choice(list(CONFIGS)), help="Default: that of the device.")
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    type=click.Choice(list(TYPES)),
    default=["float32", "bfloat16"],
    show_default=True,
)
@click.option("--attention", "attentions", multiple=True, type=click.Choice(ATTENTIONS), default=ATTENTIONS)
@click.option("--tied/--untied", default=False, show_default=True, help="The head and the token embedding.")
@common_options
def main(
    size: str | None,
    dtypes: tuple[str, ...],
    attentions: tuple[str, ...],
    tied: bool,
    level: int | None,
    device: str | None,
    threads: int | None,
    budget: float | None,
    json: Path | None,
    csv: Path | None,
) -> None:
    """Train a small transformer one step by torch and under fastgemm.patch, and compare both."""
    device = options.chosen_device(device)
    config = replace(CONFIGS[size or device], tied=tied)
    types = tuple(dict.fromkeys(TYPES[name] for name in dtypes))
    with failures_as_exit_code(), using_threads(threads), Session(device) as session:
        report = measured(config, types, attentions, session, level, budget or 0.5)
    hand_over(report, show, "differences larger than rounding explains", json=json, csv=csv)


if __name__ == "__main__":
    main()
