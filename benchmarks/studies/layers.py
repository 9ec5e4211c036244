"""Ordinary products: sides that are powers of two, and the layers of well-known models."""

from __future__ import annotations

import random
from itertools import product, zip_longest

Shape = tuple[int, int, int]  # M, N, K

MODELS = {  # (in_features, out_features) of torch.nn.Linear; from 30000 on, out_features is the vocabulary size
    "Llama-2 7B": ((4096, 4096), (4096, 11008), (11008, 4096), (4096, 32000)),
    "Llama-3 8B": ((4096, 4096), (4096, 1024), (4096, 14336), (14336, 4096), (4096, 128256)),
    "Llama-3 70B": ((8192, 8192), (8192, 1024), (8192, 28672), (28672, 8192), (8192, 128256)),
    "Mistral 7B": ((4096, 4096), (4096, 1024), (4096, 14336), (14336, 4096), (4096, 32000)),
    "Qwen2.5 7B": ((3584, 3584), (3584, 512), (3584, 18944), (18944, 3584), (3584, 152064)),
    "GPT-2": ((768, 768), (768, 2304), (768, 3072), (3072, 768), (768, 50257)),
    "BERT base": ((768, 768), (768, 3072), (3072, 768), (768, 30522)),
    "BERT large": ((1024, 1024), (1024, 4096), (4096, 1024), (1024, 30522)),
    "ViT-B/16": ((768, 768), (768, 3072), (3072, 768), (768, 1000)),
    "Whisper small": ((768, 768), (768, 3072), (3072, 768), (768, 51865)),
}
TOKENS = [2**i for i in range(13)]
POWERS = "powers of two"
SIDES = [2**i for i in range(6, 14)]
CLASSES = {1e8: "< 1e8", 1e9: "1e8 to 1e9", 1e10: "1e9 to 1e10", 1e11: "1e10 to 1e11"}  # by their most flop


def class_of(shape: Shape) -> str | None:
    """The class of a product by its floating-point operations; None if it has too many for the last class."""
    m, n, k = shape
    return next((name for most, name in CLASSES.items() if 2.0 * m * n * k < most), None)


def problems() -> dict[Shape, str]:
    """All shapes, each with the first model that has it."""
    found: dict[Shape, str] = {}
    for model, pairs in MODELS.items():
        for m, (k, n) in product(TOKENS, pairs):
            found.setdefault((m, n, k), model)
    found = dict.fromkeys(product(SIDES, repeat=3), POWERS) | found
    return {shape: name for shape, name in found.items() if class_of(shape)}


def drawn(seed: int, count: int | None = None) -> list[tuple[Shape, str]]:
    """``count`` of the problems, or all. Classes, models and powers of two alternate, so that the first problems
    are also a fair selection."""
    strata: dict[tuple[bool, str | None], list[tuple[Shape, str]]] = {}
    for shape, name in problems().items():
        strata.setdefault((name == POWERS, class_of(shape)), []).append((shape, name))
    draw = random.Random(seed)
    shuffled = [draw.sample(each, len(each)) for each in strata.values()]
    return [each for turn in zip_longest(*shuffled) for each in turn if each][:count]
