"""Products of square matrices with a symmetric result: ``a @ a.mT``, and ``a @ a.mH`` for complex numbers.

"general" multiplies by the transpose of a copy. Kernels cannot know that the copy is the same matrix.
"""

from __future__ import annotations

from functools import partial

import fastgemm
import torch
from contests import Contest, Preset, of_contests, product, torch_product
from fastgemm.bench.problems import random_matrix

SIZES = {"cuda": (256, 512, 1024, 2048, 4096, 8192, 16384), "cpu": (128, 256, 512, 1024, 2048)}
DTYPES = {  # tf32: float32 with precision="tf32"
    "cuda": "bfloat16 float16 float32 tf32 float64 int8 int32 complex64 complex128",
    "cpu": "bfloat16 float32 float64 int32 complex64 complex128",
}
MOST_BYTES = 2 << 30  # of a matrix


def dtype_of(name: str) -> torch.dtype:
    return torch.float32 if name == "tf32" else getattr(torch, name)


PROBLEMS = {
    device: [
        (name, n)
        for name in DTYPES[device].split()
        for n in sizes
        if n * n * dtype_of(name).itemsize <= MOST_BYTES
    ]
    for device, sizes in SIZES.items()
}


def contest(device: str, name: str, n: int) -> Contest:
    precision = "tf32" if name == "tf32" else ""
    a = random_matrix(n, n, dtype=dtype_of(name), device=device)
    copy = a.clone().mH
    own = partial(fastgemm.matmul, precision=precision or None)
    ways = {
        "fastgemm": own,
        "general": lambda a, _: own(a, copy),
        "symmetric": partial(own, kernel="symmetric"),
        "torch": torch_product,
    }
    return product(a, a.mH, ways, beside=("general",), precision=precision)


PRESETS = {"symmetric": Preset({"cuda": 22, "cpu": 20}, of_contests("symmetric", PROBLEMS, contest))}
