"""The layers of a Llama in fp8, weights and inputs: times of a forward pass, and how far it is from float32.

    pip install 'transformers>=4.50'
    python examples/fp8.py                              # a GPU where there is one
    python examples/fp8.py --recipe row --tokens 16
    python examples/fp8.py --device cpu --json fp8.json

The model is made from a config with random bfloat16 weights; nothing is downloaded. The bfloat16 model runs in
plain torch, and fastgemm.nn.quantize(model, "fp8", activations=recipe) makes the others. lm_head is not run. All
are timed in turn. The error is that of the last hidden states. "rounding alone" is the error of the same model in
torch and float32, where only weights and inputs of layers are rounded to 8 bits.

Exit codes: 0 fine, 1 an error is more than 1.5 times that of rounding alone, 2 usage, or the transformers library
is missing.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import click
import fastgemm
import repository  # noqa: F401
import torch
from comparing import give, options_of_ways
from fastgemm.bench.cuda_timing import CudaTimer
from fastgemm.bench.timing import CpuTimer, interleave
from fastgemm.cli import options
from networks import Sizes, build
from quantized_llama import SIZES, dequantized
from rich.table import Table
from torch import Tensor, nn

RECIPES = ("row", "1x128", "tensor")
BASELINE = "bfloat16"


def rounded(x: Tensor, recipe: str) -> Tensor:
    """x rounded to 8 bits: the numbers that its codes and scales stand for."""
    codes, scale = fastgemm.quantize_fp8(x, recipe)  # type: ignore[arg-type]  # a recipe of the command line
    if recipe == "1x128":
        scale = scale.repeat_interleave(128, -1)[..., : x.shape[-1]]
    return codes.to(x.dtype) * scale.to(x.dtype)


def rounding_alone(model: nn.Module, recipe: str) -> nn.Module:
    """A float32 copy that torch computes, with rounded weights, whose layers round their inputs."""
    quantized = [name for name, x in model.named_parameters() if isinstance(x, fastgemm.QuantizedWeight)]
    model = dequantized(model).float()
    for name in quantized:
        layer = model.get_submodule(name.removesuffix(".weight"))
        layer.register_forward_pre_hook(lambda layer, given: (rounded(given[0], recipe),))
    return model


def measured(
    sizes: Sizes, recipes: tuple[str, ...], tokens: Tensor, budget: float
) -> tuple[list[dict[str, Any]], list[str]]:
    """A row for each recipe, and a complaint about each whose error is too large."""
    device = tokens.device.type
    with torch.device(device):
        plain = build("llama", sizes).model.bfloat16()

    def states(model: nn.Module) -> Tensor:
        return model(input_ids=tokens, use_cache=False).last_hidden_state.float()

    exact = states(copy.deepcopy(plain).float())
    rows, wrong, calls = [], [], {}
    for name in (BASELINE, *recipes):
        model, row = plain, dict[str, Any](layers=name)
        if name != BASELINE:
            model = copy.deepcopy(plain)
            report = fastgemm.nn.quantize(model, "fp8", activations=name)  # type: ignore[arg-type]
            alone = (states(rounding_alone(model, name)) - exact).norm() / exact.norm()
            row |= {"product_error": max(layer.product_error or 0 for layer in report)}
            row |= {"rounding_alone": float(alone), "of_bytes": report.bytes_after / report.bytes_before}
        row["error"] = float((states(model) - exact).norm() / exact.norm())
        if name != BASELINE and not row["error"] <= 1.5 * row["rounding_alone"]:
            wrong.append(f"{name}: {row['error']:.2e}, {row['rounding_alone']:.2e} by rounding alone")
        rows.append(row)
        calls[name] = lambda model=model: states(model)
    samples = interleave(calls, budget=budget, timer=CudaTimer() if device == "cuda" else CpuTimer())
    for row in rows:
        row["microseconds"] = samples.seconds(row["layers"]).median * 1e6
        row[f"of_{BASELINE}"] = samples.speedup(row["layers"], BASELINE).median
    return rows, wrong


def table_of(rows: list[dict[str, Any]], title: str, tokens: int) -> Table:
    table = Table(title=title)
    heads = ("layers", "ms", "tokens/s", f"of {BASELINE}", "states off by", "rounding alone", "bytes")
    for head in heads:
        table.add_column(head, justify="left" if head == "layers" else "right")
    for row in rows:
        name, seconds = row["layers"], row["microseconds"] / 1e6
        speed = f"{seconds * 1e3:.2f}", f"{tokens / seconds:.0f}", f"{row[f'of_{BASELINE}']:.2f}"
        alone = f"{row['rounding_alone']:.1e}" if name != BASELINE else ""
        name = name if name == BASELINE else f"fp8, {name}"
        table.add_row(name, *speed, f"{row['error']:.1e}", alone, f"{row.get('of_bytes', 1):.3f}")
    return table


@click.command(help=__doc__)
@click.option("--recipe", "recipes", type=click.Choice(RECIPES), multiple=True, help="Default: all.")
@click.option("--layers", type=click.IntRange(1), help="Default: 8 on a GPU, 2 on a CPU.")
@click.option("--width", type=click.IntRange(1), help="Of the model; a multiple of 128. Others grow with it.")
@click.option(
    "--tokens", type=click.IntRange(1), help="Of one sequence. Default: 2048 on a GPU, 64 on a CPU."
)
@options_of_ways
@torch.no_grad()
def main(
    device: str | None,
    recipes: tuple[str, ...],
    layers: int | None,
    width: int | None,
    tokens: int | None,
    budget: float,
    json: Path | None,
) -> None:
    torch.manual_seed(0)
    device = options.chosen_device(device)
    sizes, tokens = SIZES[device], tokens or (2048 if device == "cuda" else 64)
    if width is not None:
        if width % 128:
            raise click.BadParameter(f"{width} is no multiple of 128", param_hint="--width")
        sizes = Sizes(sizes.layers, width, width // 128, width * 11 // 4, sizes.vocabulary)
    sizes = Sizes(layers or sizes.layers, sizes.width, sizes.heads, sizes.inner, sizes.vocabulary)
    ids = torch.randint(sizes.vocabulary, (1, tokens), device=device)
    rows, wrong = measured(sizes, recipes or RECIPES, ids, budget)
    title = f"Llama of {sizes.layers} layers of {sizes.width}, a forward pass of {tokens} tokens"
    table = table_of(rows, title, tokens)
    give(table, rows, device, json, command="python examples/fp8.py", title=title)
    if wrong:
        raise click.ClickException("hidden states err more than by rounding alone:\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
