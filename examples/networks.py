"""What examples/models.py runs: networks of the transformers library with random weights, and chains of products.

Nothing is downloaded: a network is made from its config. Only what is the same in transformers 4.50 and 5 is used.
"""

from __future__ import annotations

import contextlib
import copy
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any

import click
import fastgemm
import repository  # noqa: F401
import torch
from rounding import Values
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

TORCH, PATCH, CONVERT = "torch", "patch", "convert"  # the ways of running a model
Products = contextlib.AbstractContextManager[Any]
PATCH_SIDE = 16  # of the squares that ViT cuts an image into, in pixels


@dataclass(frozen=True)
class Sizes:
    """Of a network: ``vocabulary`` is the number of classes and ``image`` the side of an image for ViT."""

    layers: int
    width: int
    heads: int
    inner: int
    vocabulary: int
    image: int = 0


@dataclass(frozen=True)
class Scale:
    """Everything that one ``--size`` runs: networks, batch and length of each step, sizes of the chains."""

    networks: dict[str, Sizes]
    steps: dict[str, tuple[int, int]]
    chains: dict[str, tuple[int, ...]]


# The part of a step's name before the first dash is its network.
STEPS = {
    "llama-prefill": "Llama prefill, {} x {} tokens",
    "llama-decode": "Llama decode, {} x 1 token after {}",
    "llama-training": "Llama training, {} x {} tokens",
    "bert": "BERT, {} x {} tokens",
    "gpt2": "GPT-2, {} x {} tokens",
    "vit": "ViT, {} images of {} x {}",
}
CHAINS = {
    "cdist": "`torch.cdist`, {} x {} and {} x {}",
    "cov": "`torch.cov`, {} x {}",
    "newton-schulz": "Newton-Schulz, 5 steps, {} x {}",
}
SCALES = {
    "tiny": Scale(
        networks={
            "llama": Sizes(2, 32, 2, 48, 61),
            "bert": Sizes(2, 32, 2, 48, 61),
            "gpt2": Sizes(2, 32, 2, 48, 61),
            "vit": Sizes(2, 32, 2, 48, 7, image=32),
        },
        steps={
            "llama-prefill": (2, 8),
            "llama-decode": (2, 8),
            "llama-training": (2, 8),
            "bert": (2, 8),
            "gpt2": (2, 8),
            "vit": (2, 32),
        },
        chains={"cdist": (40, 16, 30, 16), "cov": (16, 40), "newton-schulz": (16, 40)},
    ),
    "cpu": Scale(
        networks={
            "llama": Sizes(2, 256, 4, 704, 2048),
            "bert": Sizes(2, 256, 4, 1024, 2048),
            "gpt2": Sizes(2, 256, 4, 1024, 2048),
            "vit": Sizes(2, 256, 4, 1024, 100, image=96),
        },
        steps={
            "llama-prefill": (2, 128),
            "llama-decode": (4, 64),
            "llama-training": (2, 64),
            "bert": (4, 64),
            "gpt2": (2, 128),
            "vit": (4, 96),
        },
        chains={"cdist": (2000, 128, 1000, 128), "cov": (128, 2000), "newton-schulz": (192, 512)},
    ),
    "cuda": Scale(
        networks={
            "llama": Sizes(8, 2048, 16, 5632, 32000),
            "bert": Sizes(12, 768, 12, 3072, 30522),
            "gpt2": Sizes(12, 768, 12, 3072, 50257),
            "vit": Sizes(12, 768, 12, 3072, 1000, image=224),
        },
        steps={
            "llama-prefill": (4, 1024),
            "llama-decode": (8, 512),
            "llama-training": (4, 512),
            "bert": (32, 128),
            "gpt2": (8, 512),
            "vit": (32, 224),
        },
        chains={"cdist": (20000, 1024, 8192, 1024), "cov": (1024, 20000), "newton-schulz": (4096, 11008)},
    ),
}


def transformers() -> ModuleType:
    """The library, told to stay offline. Raises click.UsageError (exit code 2) where it cannot be imported."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when it is imported
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about other missing packages, which are not needed here
            import transformers
    except ImportError as error:
        raise click.UsageError(
            f"the models need the transformers library ({error}): pip install 'transformers>=4.50', or "
            "pip install '.[models]' in a clone; --model cdist, cov and newton-schulz need no more than torch"
        ) from error
    transformers.logging.set_verbosity_error()
    return transformers


def build(kind: str, sizes: Sizes) -> nn.Module:
    """A network with random weights, as its library initializes it, in evaluation mode."""
    library = transformers()
    common = {"attn_implementation": "sdpa"}
    usual = {
        "hidden_size": sizes.width,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.inner,
    }
    if kind == "llama":
        config = library.LlamaConfig(
            **usual, **common, num_key_value_heads=sizes.heads, vocab_size=sizes.vocabulary
        )
        return library.LlamaForCausalLM(config).eval()
    if kind == "bert":
        return library.BertModel(library.BertConfig(**usual, **common, vocab_size=sizes.vocabulary)).eval()
    if kind == "vit":
        config = library.ViTConfig(
            **usual, **common, image_size=sizes.image, patch_size=PATCH_SIDE, num_labels=sizes.vocabulary
        )
        return library.ViTForImageClassification(config).eval()
    config = library.GPT2Config(
        n_embd=sizes.width,
        n_layer=sizes.layers,
        n_head=sizes.heads,
        n_inner=sizes.inner,
        vocab_size=sizes.vocabulary,
        bos_token_id=0,  # by default outside a small vocabulary
        eos_token_id=0,
        **common,
    )
    return library.GPT2LMHeadModel(config).eval()


@dataclass
class Family:
    """A network in one type, with the same weights in each form: torch's own, converted, compiled, and in
    float64."""

    kind: str
    sizes: Sizes
    dtype: torch.dtype
    device: str
    level: int | None
    invariant: bool = False

    @cached_property
    def plain(self) -> nn.Module:
        with torch.device(self.device):
            return build(self.kind, self.sizes).to(self.dtype)

    @cached_property
    def converted(self) -> nn.Module:
        return fastgemm.nn.convert(copy.deepcopy(self.plain), level=self.level, invariant=self.invariant)

    @cached_property
    def exact(self) -> nn.Module:
        return copy.deepcopy(self.plain).double()

    def contenders(self) -> dict[str, Any]:
        """The function to call in each way; PATCH calls torch's own network under a patch."""
        return {TORCH: self.plain, PATCH: self.plain, CONVERT: self.converted}

    def compiled(self) -> dict[str, Any]:
        """The same, under torch.compile."""
        torch._dynamo.reset()  # code of the other type would count towards torch.compile's limit
        plain, converted = (torch.compile(x, dynamic=False) for x in (self.plain, self.converted))
        return {TORCH: plain, PATCH: plain, CONVERT: converted}

    def layers(self) -> dict[str, int]:
        """The number of converted layers, and of all layers that multiply by a matrix of weights."""
        of = [m for m in self.converted.modules() if type(m).__name__ in ("Linear", "Conv1D")]
        return {"layers": len(of), "converted": sum(type(m).__module__ == "fastgemm.nn" for m in of)}


@dataclass(frozen=True)
class Forward:
    """A forward pass without gradients. ``output`` is the attribute of the network's result that is compared;
    where it is empty, the result itself is the tensor."""

    arguments: dict[str, Any]
    output: str = ""

    def to(self, dtype: torch.dtype) -> Forward:
        """The same with numbers of another type."""

        def cast(x: Any) -> Any:
            return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x

        return replace(self, arguments={name: cast(x) for name, x in self.arguments.items()})

    def step(self, network: Any, products: Products | None = None) -> Callable[[], Values]:
        """The functions to time. ``products`` is a context around the products."""
        products = products or contextlib.nullcontext()

        def run() -> Values:
            with torch.no_grad(), products:
                result = network(**self.arguments)
            return {self.output or "result": getattr(result, self.output) if self.output else result}

        return run

    def values(self, network: Any) -> Values:
        """What is compared."""
        return self.step(network)()


class Decode(Forward):
    """The last token of each sequence, from the kept keys and values of the tokens before it."""

    def step(self, network: Any, products: Products | None = None) -> Callable[[], Values]:
        products = products or contextlib.nullcontext()
        tokens = self.arguments["input_ids"]
        with torch.no_grad():
            cache = network(input_ids=tokens[:, :-1], use_cache=True).past_key_values

        def run() -> Values:
            with torch.no_grad():
                with products:
                    result = network(input_ids=tokens[:, -1:], past_key_values=cache, use_cache=True)
                cache.crop(-1)  # so that each step is the same one
            return {"logits": result.logits}

        return run


class Training(Forward):
    """Forward and backward pass of the cross-entropy of the next token."""

    def step(self, network: Any, products: Products | None = None) -> Callable[[], Values]:
        products = products or contextlib.nullcontext()
        tokens = self.arguments["input_ids"]

        def run() -> Values:
            network.zero_grad()
            with products:
                logits = network(**self.arguments).logits
                loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
                loss.backward()
            return {"loss": loss.detach(), "logits": logits.detach()}

        return run

    def values(self, network: Any) -> Values:
        found = self.step(network)()
        for name, parameter in network.named_parameters():
            found[f"gradient of {name}"], parameter.grad = parameter.grad, None
        return found


def work_of(name: str, sizes: Sizes, batch: int, length: int, device: str) -> Forward:
    """The step of that name on random data."""
    if name == "vit":
        # Numbers that all types hold, so that they multiply the same.
        pixels = torch.randn(batch, 3, length, length, device=device).bfloat16().float()
        return Forward({"pixel_values": pixels}, "logits")
    length += name == "llama-decode"
    tokens = torch.randint(sizes.vocabulary, (batch, length), device=device)
    if name == "llama-decode":
        return Decode({"input_ids": tokens})
    if name == "bert":
        return Forward({"input_ids": tokens}, "last_hidden_state")
    kind = Training if name == "llama-training" else Forward
    return kind({"input_ids": tokens, "use_cache": False}, "logits")


def in_float64(work: Forward, network: Any) -> Values:
    """The values in float64, with attention computed by matrix products, whose errors can be modelled."""
    with sdpa_kernel(SDPBackend.MATH):
        return work.to(torch.float64).values(network)


def newton_schulz(matrix: Tensor) -> Tensor:
    """Five steps of Muon's iteration towards the nearest orthogonal matrix (K. Jordan, 2024), as one writes it in
    torch."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix / matrix.norm()
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def distances(x1: Tensor, x2: Tensor) -> Tensor:
    """What torch.cdist computes for many points, written with its product, for the model of its errors."""
    squares = [x.square().sum(-1, keepdim=True) for x in (x1, x2)]
    ones = [torch.ones_like(square) for square in squares]
    left, right = torch.cat([-2 * x1, squares[0], ones[0]], -1), torch.cat([x2, ones[1], squares[1]], -1)
    return (left @ right.mT).clamp_min(0).sqrt()


def chain_of(name: str, sizes: tuple[int, ...], device: str) -> tuple[Forward, Callable, Callable]:
    """The operands, the function to call on them, and a function that computes the same in float64."""
    if name == "cdist":
        points = {"x1": torch.randn(sizes[:2], device=device), "x2": torch.randn(sizes[2:], device=device)}
        return Forward(points), torch.cdist, distances
    operand = torch.randn(sizes, device=device)
    if name == "cov":
        return Forward({"input": operand}), torch.cov, torch.cov
    return Forward({"matrix": operand}), newton_schulz, newton_schulz
