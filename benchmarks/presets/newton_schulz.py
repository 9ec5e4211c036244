"""Muon's Newton-Schulz iteration of examples/newton_schulz.py, whose products are symmetric.

The steps are computed by torch, by torch.compile and by fastgemm. Errors are relative to the norm of the result of
the same steps in float64.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from contests import Contest, Preset, of_contests
from torch import Tensor

from .examples import example

iteration = example("newton_schulz")
PROBLEMS = {
    "cuda": [(dtype, shape) for dtype in ("bfloat16", "float32") for shape in iteration.SHAPES["cuda"]],
    "cpu": [("float32", shape) for shape in iteration.SHAPES["cpu"]],
}


def contest(device: str, dtype: str, shape: tuple[int, int]) -> Contest:
    gradient = torch.randn(shape, dtype=getattr(torch, dtype), device=device)
    ways = {
        "torch": iteration.by_torch,
        "fastgemm": iteration.by_fastgemm,
        "torch.compile": torch.compile(iteration.by_torch),
    }
    exact = iteration.by_torch(gradient.double())
    errors: dict[str, float] = {}

    def check(name: str, result: Tensor) -> dict[str, Any]:
        errors[name] = float((result.double() - exact).norm() / exact.norm())
        wrong = name == "fastgemm" and not errors[name] <= 1.5 * errors["torch"]
        message = {"right": False, "message": f"errs more than torch: {errors}"} if wrong else {}
        return {"more": {"error": errors[name]}, **message}

    calls = {name: partial(way, gradient) for name, way in ways.items()}
    return Contest(calls, shape, dtype, check=check, operations=0.0, about={"op": "newton_schulz"})


PRESETS = {"newton_schulz": Preset({"cuda": 14, "cpu": 30}, of_contests("newton_schulz", PROBLEMS, contest))}
