"""Products whose rows do not depend on each other (``invariant=True``): ``x @ weight.T``, weight (N, K).

Each row must have the same bits when it is computed alone.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import fastgemm
import torch
from contests import Contest, Preset, cubes, of_contests, product
from exact import Exact
from fastgemm.bench.problems import random_matrix
from torch import Tensor

LAYERS = ((4096, 4096), (14336, 4096), (4096, 14336), (8192, 8192))  # (N, K)
PROBLEMS = {  # dtype, (M, N, K), precision
    "cuda": [
        *((torch.bfloat16, shape) for shape in (*cubes(2048, 4096, 8192), (4096, 14336, 4096))),
        *((torch.bfloat16, (m, *layer)) for layer in LAYERS for m in (1, 8, 32, 64)),
        *((torch.bfloat16, (m, 4096, 4096)) for m in (128, 256, 512, 1024)),
        *((torch.bfloat16, (m, 2048, 2048)) for m in (1, 32)),
        (torch.float16, (8, 4096, 4096)),
        *((torch.float32, (m, 4096, 4096)) for m in (8, 512, 4096)),
        *((torch.float32, (m, 4096, 4096), "tf32") for m in (8, 4096)),
        *((torch.float64, (m, 2048, 2048)) for m in (8, 2048)),
    ],
    "cpu": [
        *((dtype, (m, 1024, 1024)) for dtype in (torch.float32, torch.bfloat16) for m in (1, 8, 64, 1024)),
        (torch.float64, (512, 512, 512)),
    ],
}


def contest(device: str, dtype: torch.dtype, shape: tuple[int, int, int], precision: str = "") -> Contest:
    m, n, k = shape
    a, weight = (random_matrix(*size, dtype=dtype, device=device) for size in ((m, k), (n, k)))
    exact, own = Exact(a, weight.mT), partial(fastgemm.matmul, precision=precision or None)
    invariant = partial(own, invariant=True)

    def check(name: str, result: Tensor) -> dict[str, Any]:
        found = exact.check(result, precision)
        if name != "invariant":
            return found
        some = ([0], [m - 1], list(range(m // 2, m)))
        kept = all(torch.equal(invariant(a[rows], weight.mT), result[rows]) for rows in some)
        wrong = {} if kept else {"right": False, "message": "rows depend on the other rows"}
        return {**found, "more": {"same_bits": kept}, **wrong}

    ways = {"invariant": invariant, "fastgemm": own, "torch": torch.matmul}
    return product(a, weight.mT, ways, precision=precision, check=check)


PRESETS = {"invariant": Preset({"cuda": 8, "cpu": 5}, of_contests("invariant", PROBLEMS, contest))}
