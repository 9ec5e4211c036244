"""A Llama with weights of 4 and 8 bits: tokens a second, and how far its logits are from those in float32.

    pip install 'transformers>=4.50'
    python examples/quantized_llama.py                                 # a GPU where there is one
    python examples/quantized_llama.py --format int4 --format nvfp4 --sequences 1
    python examples/quantized_llama.py --device cpu --json llama.json

The model is made from a config with random bfloat16 weights; nothing is downloaded. A step decodes one token of
each sequence after a context. It is timed with the whole model and with the layers only, without lm_head; on a GPU
it is a CUDA graph. The bfloat16 model runs in plain torch. fastgemm.nn.quantize makes the others, whose lm_head
remains bfloat16. All are timed in turn.

Exit codes: 0 fine, 1 an error of logits is more than 1.5 times that with dequantized weights, 2 usage, or the
transformers library is missing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
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
from rich.table import Table
from torch import Tensor, nn

SIZES = {"cuda": Sizes(8, 4096, 32, 11008, 32000), "cpu": Sizes(2, 1024, 8, 2816, 4096)}
FORMATS = ("int8", "fp8", "int4", "nf4", "mxfp4", "nvfp4")
BASELINE = "bfloat16"
PROMPT = 32  # tokens of each sequence whose logits are compared


def decoder(model: nn.Module, tokens: Tensor) -> Callable[[], Any]:
    """A function that computes the last token of each sequence from the kept keys and values of the tokens before
    it. Every call does the same step."""
    cache = model(input_ids=tokens[:, :-1], use_cache=True).past_key_values

    def step() -> Any:
        result = model(input_ids=tokens[:, -1:], past_key_values=cache, use_cache=True)
        cache.crop(-1)
        return result[0]

    return step if tokens.device.type == "cpu" else captured(step, cache)


def captured(step: Callable[[], Any], cache: Any) -> Callable[[], Any]:
    """A replay of a CUDA graph of a step."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    read = list(cache)  # keeps the keys and values that the graph reads: each step replaces them
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()

    def replay(kept: Any = (step, read, result)) -> None:  # the step keeps the weights
        graph.replay()

    return replay


def dequantized(model: nn.Module) -> nn.Module:
    """A copy whose weights torch multiplies."""
    model = copy.deepcopy(model)
    for layer in model.modules():
        if isinstance(layer, nn.Linear) and isinstance(layer.weight, fastgemm.QuantizedWeight):
            layer.weight = nn.Parameter(layer.weight.dequantize(), requires_grad=False)
    return model


def measured(
    sizes: Sizes, formats: tuple[str, ...], tokens: Tensor, budget: float
) -> tuple[list[dict[str, Any]], list[str]]:
    """A row for each format, and a complaint about each whose error is too large."""
    device = tokens.device.type
    with torch.device(device):
        plain = build("llama", sizes).bfloat16()
    prompt = tokens[:, :PROMPT]
    exact = copy.deepcopy(plain).float()(input_ids=prompt).logits

    def error(model: nn.Module) -> float:
        return float((model(input_ids=prompt).logits.float() - exact).norm() / exact.norm())

    rows, wrong, calls = [], [], dict[str, Callable[[], Any]]()
    for name in (BASELINE, *formats):
        model = plain if name == BASELINE else copy.deepcopy(plain)
        row: dict[str, Any] = {"format": name}
        if name != BASELINE:
            report = fastgemm.nn.quantize(model, name)
            expected = error(dequantized(model))
            row |= {"weight_error": report.error, "of_bytes": report.bytes_after / report.bytes_before}
        row["logit_error"] = error(model)
        if name != BASELINE and not row["logit_error"] <= 1.5 * expected:  # NaN, too
            wrong.append(f"{name}: {row['logit_error']:.2e}, {expected:.2e} by dequantized weights")
        rows.append(row)
        calls |= {f"{name} model": decoder(model, tokens), f"{name} layers": decoder(model.model, tokens)}
    timer = CudaTimer() if device == "cuda" else CpuTimer()
    samples = interleave(calls, budget=budget, timer=timer)
    for row in rows:
        for part in ("model", "layers"):
            way = f"{row['format']} {part}"
            row[f"{part}_microseconds"] = samples.seconds(way).median * 1e6
            row[f"{part}_tokens_per_second"] = len(tokens) / samples.seconds(way).median
            row[f"{part}_of_{BASELINE}"] = samples.speedup(way, f"{BASELINE} {part}").median
    return rows, wrong


def table_of(rows: list[dict[str, Any]], title: str) -> Table:
    table = Table(title=title)
    heads = (
        "weights",
        "tokens/s",
        f"of {BASELINE}",
        "layers alone",
        f"of {BASELINE}",
        "logits off by",
        "bytes",
    )
    for head in heads:
        table.add_column(head, justify="left" if head == "weights" else "right")
    for row in rows:
        speeds = [
            text
            for part in ("model", "layers")
            for text in (f"{row[f'{part}_tokens_per_second']:.0f}", f"{row[f'{part}_of_{BASELINE}']:.2f}")
        ]
        table.add_row(row["format"], *speeds, f"{row['logit_error']:.1e}", f"{row.get('of_bytes', 1):.3f}")
    return table


@click.command(help=__doc__)
@click.option(
    "--format", "formats", type=click.Choice(FORMATS), multiple=True, help="Default: int8, fp8, int4."
)
@click.option("--layers", type=click.IntRange(1), help="Default: 8 on a GPU, 2 on a CPU.")
@click.option("--width", type=click.IntRange(1), help="Of the model; a multiple of 128. Others grow with it.")
@click.option("--sequences", type=click.IntRange(1), default=8, show_default=True)
@click.option("--context", type=click.IntRange(1), default=128, show_default=True, help="Tokens before.")
@options_of_ways
@torch.no_grad()
def main(
    device: str | None,
    formats: tuple[str, ...],
    layers: int | None,
    width: int | None,
    sequences: int,
    context: int,
    budget: float,
    json: Path | None,
) -> None:
    torch.manual_seed(0)
    device = options.chosen_device(device)
    sizes = SIZES[device]
    if width is not None:
        if width % 128:
            raise click.BadParameter(f"{width} is no multiple of 128", param_hint="--width")
        sizes = Sizes(sizes.layers, width, width // 128, width * 11 // 4, sizes.vocabulary)
    sizes = Sizes(layers or sizes.layers, sizes.width, sizes.heads, sizes.inner, sizes.vocabulary)
    tokens = torch.randint(sizes.vocabulary, (sequences, context + 1), device=device)
    rows, wrong = measured(sizes, formats or ("int8", "fp8", "int4"), tokens, budget)
    title = (
        f"Llama of {sizes.layers} layers of {sizes.width}, a token of {sequences} sequences after {context}"
    )
    table = table_of(rows, title)
    give(table, rows, device, json, command="python examples/quantized_llama.py", title=title)
    if wrong:
        raise click.ClickException("logits err more than those of dequantized weights:\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
