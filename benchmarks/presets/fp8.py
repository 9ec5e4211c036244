"""Products of fp8 with scales beside torch's, in all recipes, for squares and for few rows, and their errors.

"fastgemm" is ``level=None``. "fast" is torch with ``use_fast_accum``. On a CPU "torch" is its product of
the same numbers, rounded to bfloat16. NN, TN and TT are fastgemm's layouts of
the product that "fastgemm" and torch compute as NT. Errors are norms over some rows, relative to the float64
product of the quantized operands; results are bfloat16, or float32 where the group is "errors". "quantize" rounds
a bfloat16 matrix, and is compared with "copy", a copy that moves as many bytes. "twice" also rounds the transposed
matrix; "separate" are two calls. "swiglu" is a layer of bfloat16
weights whose result has 8 bits: "fastgemm" is one call, and "separate" is the product, then torch's silu and
multiplication, then ``quantize_fp8``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import fastgemm
import torch
from contests import Contest, Preset, of_contests
from fastgemm._fp8.recipes import RECIPES
from torch import Tensor
from torch.nn import functional

TENSOR, ROW, BLOCKS, FINE, MX = (
    ("tensor", "tensor"),
    ("row", "row"),
    ("1x128", "128x128"),
    ("1x128", "1x128"),
    ("1x32", "1x32"),
)
PRODUCT, LAYOUTS, ERRORS, QUANTIZE = "product", "layouts", "errors", "quantize"
SWIGLU, TWICE = "swiglu", "twice"
LAYERS = (8192, 8192), (4096, 14336), (28672, 4096)  # (N, K)
CHECKED = 64  # rows whose error is computed
ALLOWED = {"bfloat16": 2e-3, "float32": 1.5e-4}  # the first is the rounding of the result
PROBLEMS = {  # what, recipes, (M, N, K)
    "cuda": [
        *(
            (PRODUCT, r, (s, s, s))
            for s in (1024, 2048, 4096, 8192, 16384)
            for r in (TENSOR, ROW, BLOCKS, FINE)
        ),
        *((PRODUCT, MX, (s, s, s)) for s in (4096, 8192)),
        (PRODUCT, TENSOR, (4095, 4097, 4093)),
        *((LAYOUTS, TENSOR, (s, s, s)) for s in (4096, 8192)),
        *(
            (PRODUCT, r, (m, *w))
            for w in LAYERS
            for m in (1, 16, 64, 128, 256, 512)
            for r in (TENSOR, ROW, BLOCKS)
        ),
        *((ERRORS, r, (256, 384, k)) for r in (TENSOR, ROW, BLOCKS, FINE, MX) for k in (1024, 8192, 65536)),
        *((how, (r, r), (8192, 1, 8192)) for how in (QUANTIZE, TWICE) for r in RECIPES),
        *((SWIGLU, (r, r), (m, 14336, 4096)) for r in ("row", "1x128") for m in (64, 512, 4096)),
    ],
    "cpu": [
        *((PRODUCT, r, (s, s, s)) for s in (1024, 2048) for r in (ROW, BLOCKS, FINE, MX)),
        *((PRODUCT, r, (m, 4096, 4096)) for m in (1, 16) for r in (ROW, BLOCKS, FINE)),
    ],
}


def operand(lines: int, k: int, recipe: str, device: str) -> tuple[Tensor, Tensor]:
    """Codes (lines, k) and scales of their blocks; those of 1 x 128 have contiguous lines, as torch wants them."""
    codes = torch.randn(lines, k, device=device).to(torch.float8_e4m3fn)
    rows, groups = (1, 1) if recipe == "tensor" else RECIPES[recipe].grid(lines, k)
    if recipe in ("tensor", "row", "128x128"):
        return codes, torch.rand(rows, groups, device=device) + 0.5
    return codes, (torch.rand(groups, rows, device=device) + 0.5).mT


def exact_rows(codes: Tensor, scales: Tensor, recipe: str, count: int) -> Tensor:
    """The numbers of the first rows of an operand, in float64."""
    blocks, (lines, k) = RECIPES[recipe], codes.shape
    spread = scales.double().repeat_interleave(blocks.lines or lines, 0)[:count]
    return codes[:count].double() * spread.repeat_interleave(blocks.along_k or k, 1)[:, :k]


def of_torch(
    a: Tensor, w: Tensor, scale_a: Tensor, scale_w: Tensor, recipes: tuple[str, str], dtype: torch.dtype
) -> Callable[..., Tensor]:
    """torch's product, which raises RuntimeError where torch has none."""
    if recipes in (TENSOR, ROW):
        given: dict[str, Any] = {"scale_a": scale_a, "scale_b": scale_w.mT, "out_dtype": dtype}
        if recipes == TENSOR:
            given |= {"scale_a": scale_a.reshape(()), "scale_b": scale_w.reshape(())}
        return partial(torch._scaled_mm, a, w.mT, **given)
    kinds = [getattr(functional.ScalingType, f"BlockWise{recipe}", None) for recipe in recipes]
    if None in kinds or recipes == MX:
        return partial(_refuse, "torch has no such product")
    scale_b = scale_w.mT if recipes == BLOCKS else scale_w

    def product() -> Tensor:
        try:
            return functional.scaled_mm(a, w.mT, scale_a, kinds[0], scale_b, kinds[1], output_dtype=dtype)
        except ValueError as error:  # what other devices and types get
            raise RuntimeError(str(error)) from error

    return product


def _refuse(why: str) -> Tensor:
    raise RuntimeError(why)


def in_columns(codes: Tensor) -> Tensor:
    return codes.view(torch.uint8).mT.contiguous().view(codes.dtype).mT


def quantizing(how: str, recipe: str, m: int, k: int, device: str) -> Contest:
    x = torch.randn(m, k, device=device, dtype=torch.bfloat16)
    # Copying these moves as many bytes as quantizing x does.
    moved = x.flatten()[: x.numel() * 3 // 4] if how == QUANTIZE else x
    calls = {
        "copy": lambda: moved.clone(),
        "fastgemm": lambda: fastgemm.quantize_fp8(x, recipe, transposed=how == TWICE)[0],
    }
    if how == TWICE:
        calls["separate"] = lambda: (
            fastgemm.quantize_fp8(x, recipe),
            fastgemm.quantize_fp8(x.mT, recipe)[0],
        )[1]
    about = {"group": f"{how}, {recipe}", "label": f"{m} x {k}"}
    return Contest(calls, (m, k), "bfloat16", baseline="copy", operations=0, about=about)


def activating(recipe: str, m: int, n: int, k: int, device: str) -> Contest:
    x = torch.randn(m, k, device=device, dtype=torch.bfloat16)
    w = torch.randn(2 * n, k, device=device, dtype=torch.bfloat16) / k**0.5
    code: Any = {"activation": "swiglu", "out_dtype": torch.float8_e4m3fn, "out_scale": recipe}

    def separate() -> Tensor:
        gate, up = fastgemm.linear(x, w).chunk(2, -1)
        return fastgemm.quantize_fp8(functional.silu(gate) * up, recipe)[0]

    calls = {
        "separate": separate,
        "fastgemm": lambda: fastgemm.linear(x, w, **code)[0],
        "product": lambda: fastgemm.linear(x, w),
    }
    expected = separate().float()

    def check(way: str, result: Tensor) -> dict[str, Any]:
        if way == "product":
            return {}
        other = float((result.float() - expected).norm() / expected.norm())
        # "separate" rounds twice more, to bfloat16: few numbers get the code beside, which is at most 1/8 away.
        return {} if other < 0.05 else {"right": False, "message": f"codes differ by {other:.2e}"}

    about = {"group": f"{SWIGLU}, {recipe}", "layout": "NT"}
    return Contest(calls, (m, 2 * n, k), "bfloat16", baseline="separate", check=check, about=about)


def contest(device: str, what: str, recipes: tuple[str, str], shape: tuple[int, int, int]) -> Contest:
    m, n, k = shape
    if what in (QUANTIZE, TWICE):
        return quantizing(what, recipes[0], m, k, device)
    if what == SWIGLU:
        return activating(recipes[0], m, n, k, device)
    (a, scale_a), (w, scale_w) = operand(m, k, recipes[0], device), operand(n, k, recipes[1], device)
    dtype = "float32" if what == ERRORS else "bfloat16"
    type_ = getattr(torch, dtype)
    names = {"recipe_a": recipes[0], "recipe_b": recipes[1]}
    own = partial(fastgemm.scaled_mm, scale_a=scale_a, scale_b=scale_w.mT, out_dtype=type_, **names)
    torchs = of_torch(a, w, scale_a, scale_w, recipes, type_)
    if device == "cpu":
        wide = (
            exact_rows(a, scale_a, recipes[0], m).bfloat16(),
            exact_rows(w, scale_w, recipes[1], n).bfloat16(),
        )
        torchs = partial(torch.mm, wide[0], wide[1].mT)
    calls: dict[str, Callable[[], Tensor]] = {"torch": torchs, "fastgemm": partial(own, a, w.mT)}
    if recipes == TENSOR and device == "cuda":
        calls["fast"] = partial(torchs, use_fast_accum=True)
        if any(size % 16 for size in (n, k)):
            del calls["fast"]
    if what == LAYOUTS:
        turned_a, turned_w = in_columns(a), in_columns(w)
        calls |= {
            "NN": partial(own, a, turned_w.mT),
            "TN": partial(own, turned_a, turned_w.mT),
            "TT": partial(own, turned_a, w.mT),
        }
    expected = exact_rows(a, scale_a, recipes[0], CHECKED) @ exact_rows(w, scale_w, recipes[1], n).mT

    def check(way: str, result: Tensor) -> dict[str, Any]:
        error = float((result[:CHECKED].double() - expected).norm() / expected.norm())
        limit = 1.0 if way == "fast" else 1e-2 if way == "torch" and device == "cpu" else ALLOWED[dtype]
        wrong = {} if error <= limit else {"right": False, "message": f"error {error:.2e} of {limit:.1e}"}
        return wrong | {"more": {"error": error}}

    about = {"group": f"{what}, {' by '.join(dict.fromkeys(recipes))}", "layout": "NT"}
    return Contest(calls, shape, dtype, check=check, timed=what != ERRORS, about=about)


PRESETS = {"fp8": Preset({"cuda": 90, "cpu": 60}, of_contests("fp8", PROBLEMS, contest), by_name=True)}
