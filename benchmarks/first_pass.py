"""Times what tune=True adds to the first pass through a Llama, and to later ones, and prints it as JSON.

python benchmarks/first_pass.py cpu|cuda [layers]

The layers are those of Llama 2 7B with random weights, on a CPU a sixteenth as wide: a prompt of 512 tokens, then
one token. Before, a pass under a patch without tune has done everything that torch and fastgemm do only once.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

import fastgemm
import torch
from fastgemm import tuning
from fastgemm._choice import autotuned
from torch import nn

TOKENS = (512, 1)


class Layer(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.of_attention = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part(x).unflatten(-1, (32, -1)).transpose(1, 2) for part in self.of_attention[:3])
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.of_attention[3](mixed.transpose(1, 2).flatten(2))
        y = nn.functional.rms_norm(x, x.shape[-1:])
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


@torch.no_grad()
def main(device: str, layers: int = 8) -> dict[str, object]:
    share = 1 if device == "cuda" else 16
    width, hidden, words = 4096 // share, 11008 // share, 32000 // share
    with torch.device(device):
        model = nn.Sequential(
            *(Layer(width, hidden) for _ in range(layers)), nn.Linear(width, words, bias=False)
        )
        model.to(torch.bfloat16)
        inputs = [torch.randn(1, tokens, width, dtype=torch.bfloat16) for tokens in TOKENS]

    def seconds() -> float:
        start = time.perf_counter()
        for x in inputs:
            model(x)
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    found: dict[str, object] = {"torch": [seconds() for _ in range(5)]}
    with fastgemm.patch():
        found["patch"] = [seconds() for _ in range(5)]
    with fastgemm.patch(tune=True):
        tuned = [seconds() for _ in range(5)]
    usual = sorted(found["patch"])[2]  # type: ignore[call-overload]
    found |= {"patch, tune": tuned, "added to the first": tuned[0] - usual, "to the second": tuned[1] - usual}
    found["signatures"] = len(autotuned.kept(device))
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FASTGEMM_CACHE_DIR"] = folder
        tuning.clear_cache()
        print(json.dumps(main(sys.argv[1], *map(int, sys.argv[2:])), indent=1))
