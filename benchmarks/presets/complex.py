"""Complex products compared with torch's: cuBLAS' CGEMM and ZGEMM, or those of the CPU's library."""

from __future__ import annotations

from functools import partial

import fastgemm
import torch
from contests import Contest, Preset, of_contests, product
from fastgemm.bench.problems import random_matrix

LAYOUTS = {  # T: transposed, C: conjugated and transposed, as a view
    "NN": (lambda a: a, lambda b: b),
    "NT": (lambda a: a, lambda b: b.mT),
    "NC": (lambda a: a, lambda b: b.mH),
    "TN": (lambda a: a.mT, lambda b: b),
}
SIZES = {"cuda": (256, 1024, 2048, 4096, 8192), "cpu": (256, 1024)}
PROBLEMS = {
    device: [(t, n, layout) for t in (torch.complex64, torch.complex128) for n in sizes for layout in LAYOUTS]
    for device, sizes in SIZES.items()
}
WAYS = {
    "fastgemm": fastgemm.matmul,
    "level 6": partial(fastgemm.matmul, level=6),
    "torch": torch.matmul,
}


def contest(device: str, dtype: torch.dtype, n: int, layout: str) -> Contest:
    a, b = (view(random_matrix(n, n, dtype=dtype, device=device)) for view in LAYOUTS[layout])
    return product(a, b, WAYS, layout=layout, operations=8.0 * n**3)


PRESETS = {"complex": Preset({"cuda": 11, "cpu": 20}, of_contests("complex", PROBLEMS, contest))}
