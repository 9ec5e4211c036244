"""Layers with an epilogue, ``activation(linear(x, weight, bias))``, in some groups with a residual.

The contenders are torch's functions one by one (eager), the same under torch.compile, ``fastgemm.linear``, and
"apart": fastgemm's layer followed by torch's activation. "apart" shows what the fused epilogue gains.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import fastgemm
import torch
from contests import Contest, Preset, of_contests
from torch import Tensor
from torch.nn import functional

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
}
SHAPES = {  # rows of x, rows of weight, features; only the first shape is measured with every activation
    "cuda": [
        (8192, 4096, 4096),
        *((m, 14336, 4096) for m in (8, 1, 64, 4096)),
        (8, 4096, 14336),
        (512, 4096, 4096),
        (2048, 8192, 2048),
        (8192, 8192, 8192),
    ],
    "cpu": [(8, 4096, 1024), (128, 1024, 1024), (512, 2048, 512)],
}
DTYPES = {"cuda": ("bfloat16", "float16", "float32"), "cpu": ("bfloat16", "float32")}
TOLERANCE = {"float32": 2e-4, "float16": 4e-3, "bfloat16": 3e-2}
PROBLEMS = {
    device: [
        (dtype, *problem)
        for dtype in DTYPES[device]
        for problem in [
            *((shape, "gelu") for shape in shapes),
            *((shapes[0], name) for name in ("relu", "gelu_tanh", "silu", "none")),
            (shapes[0], "gelu", True),
        ]
    ]
    for device, shapes in SHAPES.items()
}


def contest(
    device: str, dtype: str, shape: tuple[int, int, int], activation: str, residual: bool = False
) -> Contest:
    m, n, k = shape

    def drawn(*sizes: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(*sizes, device=device) * scale).to(getattr(torch, dtype))

    x, w, b = drawn(m, k), drawn(n, k, scale=1 / math.sqrt(k)), drawn(n)
    r = drawn(m, n) if residual else None
    some = torch.linspace(0, m - 1, min(16, m)).long().to(x.device)

    def steps(layer: Callable[..., Tensor], x: Tensor, w: Tensor, b: Tensor, r: Tensor | None) -> Tensor:
        out = ACTIVATIONS[activation](layer(x, w, b))
        return out if r is None else out + r

    expected = steps(
        functional.linear, x[some].double(), w.double(), b.double(), None if r is None else r[some].double()
    )

    def check(name: str, result: Tensor) -> dict[str, Any]:
        """Compares some rows with float64."""
        error = (result[some].double() - expected).abs().max().item()
        bound = TOLERANCE[dtype] * max(1.0, expected.abs().max().item())
        return {} if error <= bound else {"right": False, "message": f"error {error:.2e} > {bound:.2e}"}

    torch._dynamo.reset()
    eager = partial(steps, functional.linear, x, w, b, r)
    named = None if activation == "none" else activation
    calls = {
        "fastgemm": partial(fastgemm.linear, x, w, b, activation=named, residual=r),
        "apart": partial(steps, fastgemm.linear, x, w, b, r),
        "eager": eager,
        "compiled": torch.compile(eager),
    }
    about = {"group": activation + (" + residual" if residual else "")}
    return Contest(calls, shape, dtype, "eager", ("apart", "compiled"), check, about=about)


PRESETS = {"linear": Preset({"cuda": 18, "cpu": 60}, of_contests("linear", PROBLEMS, contest))}
