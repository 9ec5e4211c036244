"""Layers with weights of 4 and 8 bits beside torch's bfloat16 linear of the dequantized weight.

"fastgemm" is ``level=None``. The rows of level 6 have their own names, and one problem has the rows of all levels.
"mma_sync" multiplies the dequantized weight, as GPUs other than Hopper would. "int4pack" and "int8pack" are
torch's own kernels, with the same codes and scales. "read" only reads the packed weight once. Errors are norms,
relative to the float64 product with the quantized weight. Those of fastgemm must be at most 1.05 of those of
torch's product with the dequantized weight.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import fastgemm
import torch
from contests import Contest, Preset, of_contests
from fastgemm.bench.session import REFUSAL
from fastgemm.table import kernels
from torch import Tensor
from torch.nn import functional

FORMATS: dict[str, dict[str, Any]] = {  # arguments of fastgemm.quantize_weight
    "int4, groups of 128": {"format": "int4"},
    "int8": {"format": "int8"},
    "fp8": {"format": "fp8"},
    "nf4": {"format": "nf4"},
    "mxfp4": {"format": "mxfp4"},
    "nvfp4": {"format": "nvfp4"},
    "int4, zero points": {"format": "int4", "zero_points": True},
    "int4, groups of 64": {"format": "int4", "group_size": 64},
    "int4, groups of 32": {"format": "int4", "group_size": 32},
}
INT4, INT8, FP8, *OTHERS = FORMATS
LADDER = "int4, all rungs"
UP, DOWN, WIDE, SMALL = (28672, 8192), (8192, 28672), (8192, 8192), (4096, 4096)  # (N, K)
ROWS = (1, 8, 16, 32, 64, 128, 256, 512, 4096)
PROBLEMS = {  # format, (N, K), rows of x; None: the time of quantize_weight
    "cuda": [
        *((INT4, weight, m) for weight in (UP, DOWN, SMALL) for m in ROWS),
        *((name, WIDE, m) for name in (INT8, FP8) for m in (1, 8, 16, 32, 64, 128, 512, 4096)),
        *((name, UP, m) for name in OTHERS for m in (1, 16, 4096)),
        *((name, DOWN, None) for name in (INT4, INT8, FP8, "nf4")),
        (LADDER, SMALL, 64),
    ],
    "cpu": [
        *((name, SMALL, m) for name in (INT4, INT8) for m in (1, 16, 128)),
        *((name, SMALL, m) for name in (FP8, *OTHERS) for m in (1, 128)),
        (LADDER, (1024, 1024), 64),
    ],
}
MOST_READ = 16  # up to this many rows, reading the weight is most of the work
PORTABLE = 4096  # rows of x with which mma_sync is timed
CHECKED = 64  # rows of a result that are compared with float64
ALLOWED = 1.05


class Weight(NamedTuple):
    packed: fastgemm.QuantizedWeight
    dense: Tensor  # bfloat16
    numbers: Tensor  # float32


@lru_cache(maxsize=1)
def weight_of(name: str, n: int, k: int, device: str) -> Weight:
    """The weight of all problems that follow each other with the same arguments."""
    w = torch.randn(n, k, device=device, dtype=torch.bfloat16)
    packed = fastgemm.quantize_weight(w, **FORMATS.get(name, FORMATS[INT4]))
    return Weight(packed, packed.dequantize(torch.bfloat16), packed.dequantize(torch.float32))


def int4pack(weight: Weight) -> Callable[[Tensor], Tensor]:
    """torch's kernel for int4 with groups; even columns are in the high half of its bytes on a GPU."""
    packed, device = weight.packed, weight.dense.device
    if packed.format != "int4" or packed.zero_points is not None:
        raise ValueError("torch has no kernel for these codes")
    codes, scales = packed.codes, packed.scales.mT.to(torch.bfloat16)
    pairs = torch.stack([scales, torch.zeros_like(scales)], -1).contiguous()
    if device.type == "cuda":
        swapped = (codes >> 4) | (codes << 4)
        units = torch._convert_weight_to_int4pack(swapped, 8)
        return lambda x: torch._weight_int4pack_mm(x, units, packed.group_size, pairs)
    columns = torch.stack([codes & 15, codes >> 4], -1).flatten(1).to(torch.int32)
    units = torch._convert_weight_to_int4pack_for_cpu(columns, 1)
    return lambda x: torch._weight_int4pack_mm_for_cpu(x, units, packed.group_size, pairs)


def int8pack(weight: Weight) -> Callable[[Tensor], Tensor]:
    """torch's kernel for int8 with a scale for each row."""
    packed = weight.packed
    if packed.format != "int8":
        raise ValueError("torch has no kernel for these codes")
    codes, scales = packed.codes, packed.scales.flatten().to(torch.bfloat16)
    return lambda x: torch._weight_int8pack_mm(x, codes, scales)


def own_rows(packed: fastgemm.QuantizedWeight, levels: Iterable[int] = (6,)) -> list[str]:
    """The rows of these levels for the codes of a weight."""
    code = packed._packing.code
    rows = [row for row in kernels("gemm", packed.device.type) if row.level in levels and row.role == "rung"]
    return [row.name for row in rows if row.available and row.takes(torch.bfloat16, code)]


def takes(way: Callable[[], Tensor]) -> bool:
    """Whether a row does not reject the problem. Raises its other errors."""
    try:
        way()
    except RuntimeError as error:
        if REFUSAL not in str(error):
            raise
        return False
    return True


def from_torch(weight: Weight, x: Tensor) -> dict[str, Callable[[], Tensor]]:
    """torch's kernels for these codes, as far as this torch has them for the device."""
    found = {}
    for make in (int4pack, int8pack):
        try:
            way = partial(make(weight), x)
            way()
        except (ValueError, AttributeError, RuntimeError):
            continue
        found[make.__name__] = way
    return found


def rungs(weight: Weight, x: Tensor) -> dict[str, Callable[[], Tensor]]:
    own = partial(fastgemm.linear, x, weight.packed)
    calls = {name: partial(own, kernel=name) for name in own_rows(weight.packed, range(1, 7))}
    found = {name: way for name, way in calls.items() if takes(way)}
    return found | {"torch": partial(functional.linear, x, weight.dense)}


def contenders(weight: Weight, x: Tensor) -> dict[str, Callable[[], Tensor]]:
    m, device, q = len(x), x.device.type, weight.packed
    own = partial(fastgemm.linear, x, q)
    by_name = {name: partial(own, kernel=name) for name in own_rows(q)}
    if device == "cuda" and m == PORTABLE:
        by_name["mma_sync"] = partial(fastgemm.linear, x, weight.dense, kernel="mma_sync")
    calls = {
        "fastgemm": own,
        "invariant": partial(own, invariant=True),
        **{name: way for name, way in by_name.items() if takes(way)},
        **from_torch(weight, x),
        "torch": partial(functional.linear, x, weight.dense),
    }
    if device == "cuda" and m <= MOST_READ and importlib.util.find_spec("triton"):
        from studies.plain_read import plain_read

        calls["read"] = plain_read(q._codes)
    return calls


def contest(device: str, name: str, shape: tuple[int, int], m: int | None) -> Contest:
    return layer(device, name, shape, m) if m else quantization(device, name, shape)


def layer(device: str, name: str, shape: tuple[int, int], m: int) -> Contest:
    weight = weight_of(name, *shape, device)
    x = torch.randn(m, shape[1], device=device, dtype=torch.bfloat16)
    some = torch.linspace(0, m - 1, min(CHECKED, m)).long().to(device)
    parts = weight.numbers.split(4096)  # in float64 the whole weight may not fit
    exact = torch.cat([x[some].double() @ part.double().mT for part in parts], 1)

    @cache
    def allowed() -> float:
        return ALLOWED * error(functional.linear(x[some], weight.dense))

    def error(result: Tensor) -> float:
        return float((result.double() - exact).norm() / exact.norm())

    def check(way: str, result: Tensor) -> dict[str, Any]:
        if way == "read":
            return {"role": "limit"}
        found = error(result[some])
        row: dict[str, Any] = {"more": {"error": found}}
        if way in ("int4pack", "int8pack"):  # these round otherwise, and are not checked
            return row | {"role": "library"}
        if not found <= allowed():
            row |= {"right": False, "message": f"error {found:.2e}, allowed {allowed():.2e}"}
        if way == "invariant":
            alone = fastgemm.linear(x[-1:], weight.packed, invariant=True)
            if not torch.equal(alone, result[-1:]):
                row |= {"right": False, "message": "rows depend on the other rows"}
        return row

    calls = (rungs if name == LADDER else contenders)(weight, x)
    return Contest(calls, (m, *shape), "bfloat16", check=check, about={"group": name, "layout": "NT"})


def quantization(device: str, name: str, shape: tuple[int, int]) -> Contest:
    """The time of :func:`fastgemm.quantize_weight`."""
    w = torch.randn(*shape, device=device, dtype=torch.bfloat16)

    def check(way: str, result: Tensor) -> dict[str, Any]:
        some = result.dequantize(torch.float32)[:CHECKED]
        exact = w[:CHECKED].float()
        return {"more": {"error": float((some - exact).norm() / exact.norm())}}

    calls = {"quantize": partial(fastgemm.quantize_weight, w, **FORMATS[name])}
    return Contest(calls, shape, "bfloat16", check=check, operations=0.0, about={"group": name})


PRESETS = {"packed": Preset({"cuda": 150, "cpu": 60}, of_contests("packed", PROBLEMS, contest), by_name=True)}
