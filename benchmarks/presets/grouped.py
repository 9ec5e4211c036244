"""Products of groups of uneven size beside torch's grouped_mm, and the gradients of their weights.

Tokens are distributed as by a trained router: a few experts get many tokens, and many get few. "fastgemm" is
``level=None``; the rows of level 6 have their own names. "swiglu" is the product of gate and up with
``activation="swiglu"``, whose result has half the columns. "rows=" is the product that gathers rows of the tokens,
which the others get in the order of the experts. "read" is the time that torch's sum takes to read as
many bytes as the product must read and write. Errors are norms of the largest group, relative to the float64
product; those of fastgemm must be near torch's. Products of float8_e4m3fn have scales of rows and columns.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import fastgemm
import torch
from contests import Contest, Preset, of_contests
from fastgemm.table import kernels
from torch import Tensor

from .packed import takes


class Layer(NamedTuple):
    experts: int
    k: int
    n: int
    top: int


MANY, LARGE, WIDE, SMALL = (
    Layer(128, 2048, 1536, 8),
    Layer(8, 4096, 28672, 2),
    Layer(32, 7168, 4096, 8),
    Layer(8, 1024, 4096, 2),
)
FORWARD, GRADIENT = "forward", "gradient of the weights"
FP8 = "float8_e4m3fn"
PROBLEMS = {  # what, layer, tokens, dtype
    "cuda": [
        *(
            (FORWARD, layer, tokens, "bfloat16")
            for layer in (MANY, LARGE, WIDE)
            for tokens in (1, 16, 256, 4096)
        ),
        *((GRADIENT, layer, 4096, "bfloat16") for layer in (MANY, LARGE, WIDE)),
        *((FORWARD, layer, 4096, "float32") for layer in (MANY, LARGE, WIDE)),
        *((FORWARD, layer, tokens, FP8) for layer in (MANY, LARGE, WIDE) for tokens in (16, 256, 4096)),
    ],
    "cpu": [
        (what, layer, 32, dtype)
        for what in (FORWARD, GRADIENT)
        for layer in (SMALL, SMALL._replace(k=4096, n=1024))
        for dtype in ("float32", "bfloat16")
    ],
}
CHECKED = 256  # rows of the largest group
ALLOWED = {"bfloat16": 1.05, "float32": 1.5, FP8: 1.05}  # float32 sums have another order on a CPU


def sizes_of(layer: Layer, tokens: int) -> list[int]:
    """How many rows each expert gets, by a fixed seed."""
    generator = torch.Generator().manual_seed(layer.experts + tokens)
    weights = 1.0 / torch.arange(2, layer.experts + 2).double().sqrt()
    weights = weights[torch.randperm(layer.experts, generator=generator)].expand(tokens, -1)
    chosen = torch.multinomial(weights, layer.top, generator=generator)
    return torch.bincount(chosen.flatten(), minlength=layer.experts).tolist()


def own_rows(device: str, dtype: torch.dtype) -> list[str]:
    """The rows of level 6 that take groups. A CPU multiplies them one after the other, by rows of a product."""
    rows = [row for row in kernels("gemm", device) if "m" in row.groups and row.level == 6]
    return [row.name for row in rows if row.available and row.takes(dtype, groups="m")]


def contest(device: str, what: str, layer: Layer, tokens: int, dtype: str) -> Contest:
    sizes, type_ = sizes_of(layer, tokens), getattr(torch, dtype)
    ends = list(itertools.accumulate(sizes))
    offs = torch.tensor(ends, dtype=torch.int32, device=device)

    def make(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, dtype=torch.bfloat16 if dtype == FP8 else type_).to(type_)

    a = make(ends[-1], layer.k)
    gathered: tuple[Tensor, Tensor] | None = None
    if what == FORWARD and dtype == "bfloat16":
        index = torch.randint(tokens, ends[-1:], device=device, dtype=torch.int32)
        gathered = make(tokens, layer.k), index
        a = gathered[0][index.long()]
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    part = slice(ends[largest] - sizes[largest], ends[largest])
    if what == FORWARD:
        b = make(layer.experts, layer.n, layer.k).mT
        some = slice(part.start, min(part.stop, part.start + CHECKED))
        exact = a[some].double() @ b[largest].double()
        operands, pick = (a, b), lambda result: result[some]
        if dtype == FP8:
            scales = (
                torch.rand(ends[-1], 1, device=device),
                torch.rand(layer.experts, 1, layer.n, device=device),
            )
            operands += scales
            exact *= scales[0][some].double() * scales[1][largest].double()
    else:
        grad = make(ends[-1], layer.n)
        exact = grad[part, :CHECKED].double().mT @ a[part].double()
        operands, pick = (grad.mT, a), lambda result: result[largest, :CHECKED]
    calls = contenders(device, what, operands, offs)
    if gathered and "swiglu" in calls:
        calls["rows="] = partial(fastgemm.grouped_mm, gathered[0], operands[1], offs, rows=gathered[1])
    baseline = calls["torch"]

    def error(result: Tensor) -> float:
        return float((pick(result).double() - exact).norm() / exact.norm())

    allowed = ALLOWED[dtype] * error(baseline())

    def check(way: str, result: Tensor) -> dict[str, Any]:
        if way == "read":
            return {"role": "limit"}
        if way == "swiglu":  # tests/kernels/test_grouped_rows.py checks it
            return {}
        found = error(result)
        wrong = {} if found <= allowed else {"right": False, "message": f"error {found:.2e} of {allowed:.2e}"}
        return wrong | {"more": {"error": found}}

    about = {"group": f"{what}, {layer.experts} experts", "label": f"{tokens} tokens", "layout": "NT"}
    if device == "cuda":
        used = sum(size > 0 for size in sizes)
        moved = sum(x.nbytes * used // layer.experts if x.dim() == 3 else x.nbytes for x in operands)
        words = torch.zeros((moved + baseline().nbytes) // 8, dtype=torch.int64, device=device)
        calls["read"] = words.sum
    flops = 2.0 * ends[-1] * layer.k * layer.n
    return Contest(calls, (ends[-1], layer.n, layer.k), dtype, check=check, operations=flops, about=about)


def contenders(
    device: str, what: str, operands: tuple[Tensor, ...], offs: Tensor
) -> dict[str, Callable[[], Tensor]]:
    if len(operands) == 4:
        codes, scales = operands[:2], (operands[2].flatten(), operands[3].flatten(1))
        return {
            "fastgemm": partial(fastgemm.scaled_grouped_mm, *operands, offs),
            "torch": partial(torch._scaled_grouped_mm, *codes, *scales, offs, out_dtype=torch.bfloat16),
        }
    own = partial(fastgemm.grouped_mm, *operands, offs)
    by_name = {name: partial(own, kernel=name) for name in own_rows(device, operands[0].dtype)}
    calls = {"fastgemm": own, **{name: way for name, way in by_name.items() if takes(way)}}
    if what == FORWARD and "grouped_wgmma" in calls:
        calls["swiglu"] = partial(own, activation="swiglu")
    return calls | {"torch": partial(torch._grouped_mm, *operands, offs)}


PRESETS = {
    "grouped": Preset({"cuda": 90, "cpu": 40}, of_contests("grouped", PROBLEMS, contest), by_name=True)
}
