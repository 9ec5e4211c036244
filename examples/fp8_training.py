"""A training step of a Llama's layers in fp8: its time, and how far its gradients are from float32.

    pip install 'transformers>=4.50'
    python examples/fp8_training.py                             # a GPU where there is one
    python examples/fp8_training.py --recipe 1x128 --tokens 512

Each linear layer multiplies codes of 8 bits in all three products: forward, the gradient of its input, and the
gradient of its weight. They sum over different dimensions, so each matrix is rounded by rows and by columns.
``fastgemm.quantize_fp8(..., transposed=True)`` does both at once. Weights remain bfloat16, and sums are float32.
The model is made from a config with random weights; nothing is downloaded. The step is forward and backward,
without an optimizer. All ways are timed in turn, beside torch in bfloat16.

Exit codes: 0 fine, 1 gradients err by more than 32 times as much as in bfloat16 (16 times is what one expects of
e4m3, whose numbers have 4 bits fewer), 2 usage, or the transformers library is missing.
"""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any, cast

import click
import fastgemm
import repository  # noqa: F401
import torch
from comparing import give, options_of_ways
from fastgemm.bench.cuda_timing import CudaTimer
from fastgemm.bench.timing import CpuTimer, interleave
from fastgemm.cli import options
from networks import Sizes, build
from quantized_llama import SIZES
from rich.table import Table
from torch import Tensor, nn

OF_WEIGHTS: dict[str, Any] = {"row": "row", "1x128": "128x128"}  # for each recipe of the other operand
BASELINE = "bfloat16"
LARGEST_ERROR = 32  # times that of bfloat16


class Product(torch.autograd.Function):
    """``x @ w.T`` of x (M, K) and w (N, K), whose three products multiply 8-bit codes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, recipe: Any) -> Tensor:
        a, scale_a, a_t, scale_a_t = fastgemm.quantize_fp8(x, recipe, transposed=True)
        b, scale_b, b_t, scale_b_t = fastgemm.quantize_fp8(w, OF_WEIGHTS[recipe], transposed=True)
        ctx.save_for_backward(a_t, scale_a_t, b_t, scale_b_t)
        ctx.recipe = recipe
        return fastgemm.scaled_mm(a, b.mT, scale_a, scale_b.mT, out_dtype=x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        a_t, scale_a_t, b_t, scale_b_t = ctx.saved_tensors
        g, scale_g, g_t, scale_g_t = fastgemm.quantize_fp8(grad, ctx.recipe, transposed=True)
        of_x = fastgemm.scaled_mm(g, b_t.mT, scale_g, scale_b_t.mT, out_dtype=grad.dtype)
        of_w = fastgemm.scaled_mm(g_t, a_t.mT, scale_g_t, scale_a_t.mT, out_dtype=grad.dtype)
        return of_x, of_w, None


class Fp8Linear(nn.Module):
    """A linear layer without bias, which shares the weight of `layer`."""

    def __init__(self, layer: nn.Linear, recipe: str) -> None:
        super().__init__()
        self.weight, self.recipe = layer.weight, recipe

    def forward(self, x: Tensor) -> Tensor:
        y = Product.apply(x.reshape(-1, x.shape[-1]), self.weight, self.recipe)
        return y.reshape(*x.shape[:-1], -1)


def in_fp8(model: nn.Module, recipe: str) -> nn.Module:
    model = copy.deepcopy(model)
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.Linear):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, Fp8Linear(layer, recipe))
    return model


def step(model: nn.Module, tokens: Tensor) -> dict[str, Tensor]:
    """The gradients of all weights, for a loss that depends on every hidden state."""
    model.zero_grad(set_to_none=True)
    states = model(input_ids=tokens, use_cache=False).last_hidden_state
    states.float().square().mul(
        torch.linspace(0, 1, states.shape[-1], device=states.device)
    ).mean().backward()
    return {name: w.grad for name, w in model.named_parameters() if w.grad is not None}


def measured(sizes: Sizes, recipes: tuple[str, ...], tokens: Tensor, budget: float) -> list[dict[str, Any]]:
    device = tokens.device.type
    with torch.device(device):
        plain = cast(nn.Module, build("llama", sizes).model).bfloat16()
    exact = step(copy.deepcopy(plain).float(), tokens)
    models: dict[str, nn.Module] = {BASELINE: plain} | {recipe: in_fp8(plain, recipe) for recipe in recipes}
    rows = []
    for name, model in models.items():
        found = step(model, tokens)
        off, norm = (
            sum(float(x.square().sum()) for x in each) ** 0.5
            for each in ((found[w].float() - exact[w] for w in exact), exact.values())
        )
        rows.append({"layers": name, "error": off / norm})
    timer = CudaTimer() if device == "cuda" else CpuTimer()
    calls: dict[str, Any] = {name: partial(step, model, tokens) for name, model in models.items()}
    samples = interleave(calls, budget=budget, timer=timer)
    for row in rows:
        row["microseconds"] = samples.seconds(row["layers"]).median * 1e6
        row[f"of_{BASELINE}"] = samples.speedup(row["layers"], BASELINE).median
    return rows


def table_of(rows: list[dict[str, Any]], title: str) -> Table:
    table = Table(title=title)
    for head in ("layers", "ms", f"of {BASELINE}", "gradients off by"):
        table.add_column(head, justify="left" if head == "layers" else "right")
    for row in rows:
        name = row["layers"] if row["layers"] == BASELINE else f"fp8, {row['layers']}"
        speed = f"{row['microseconds'] / 1e3:.2f}", f"{row[f'of_{BASELINE}']:.2f}"
        table.add_row(name, *speed, f"{row['error']:.1e}")
    return table


@click.command(help=__doc__)
@click.option("--recipe", "recipes", type=click.Choice(list(OF_WEIGHTS)), multiple=True, help="Default: all.")
@click.option("--layers", type=click.IntRange(1), default=2, show_default=True)
@click.option(
    "--tokens", type=click.IntRange(1), help="Of one sequence. Default: 4096 on a GPU, 64 on a CPU."
)
@options_of_ways
def main(
    device: str | None,
    recipes: tuple[str, ...],
    layers: int,
    tokens: int | None,
    budget: float,
    json: Path | None,
) -> None:
    torch.manual_seed(0)
    device = options.chosen_device(device)
    given = SIZES[device]
    sizes = Sizes(layers, given.width, given.heads, given.inner, given.vocabulary)
    count = tokens or (4096 if device == "cuda" else 64)
    ids = torch.randint(sizes.vocabulary, (1, count), device=device)
    rows = measured(sizes, recipes or tuple(OF_WEIGHTS), ids, budget)
    title = f"Llama of {sizes.layers} layers of {sizes.width}, forward and backward of {count} tokens"
    table = table_of(rows, title)
    give(table, rows, device, json, command="python examples/fp8_training.py", title=title)
    most = LARGEST_ERROR * rows[0]["error"]
    wrong = [f"{row['layers']}: {row['error']:.1e}" for row in rows if not row["error"] <= most]
    if wrong:
        raise click.ClickException(f"gradients err by more than {most:.1e}: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
