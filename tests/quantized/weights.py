"""Random weights of every kind for the tests of this folder, and their values in float64 by plain loops."""

import torch
from fastgemm._quantized.formats import CODES, FORMATS, NORMAL_FLOAT, SCALES, blocks
from fastgemm.quantized import QuantizedWeight
from torch import Tensor

E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
# Format, type of scales, zero points, and the block of one scale. All codes, scales and zero points occur, and
# unusual sizes of groups.
KINDS = [
    ("int4", "bf16", "none", (1, 128)),
    ("int4", "f16", "subtracted", (1, 32)),
    ("int4", "bf16", "added", (1, 64)),
    ("int4", "f32", "subtracted", (1, 10**6)),
    ("int8", "f32", "none", (1, 10**6)),
    ("int8", "f32", "added", (10**6, 10**6)),
    ("int8", "f16", "subtracted", (1, 48)),
    ("fp8", "f32", "none", (128, 128)),
    ("fp8", "bf16", "none", (1, 10**6)),
    ("nf4", "f32", "none", (1, 64)),
    ("nf4", "bf16", "none", (96, 256)),
    ("mxfp4", "e8m0", "none", (1, 32)),
    ("nvfp4", "e4m3", "none", (1, 16)),
]
SHAPES = [(1, 1), (70, 200), (130, 387)]


def kind_id(value: object) -> str:
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value)


def random_weight(n: int, k: int, kind: tuple, order: bool = False, **options: object) -> QuantizedWeight:
    """A weight of random codes, scales and zero points."""
    format, scale, zero, (group_n, group_k) = kind
    block = min(group_n, n), min(group_k, k)
    shape = blocks(n, block[0]), blocks(k, block[1])
    code = CODES[FORMATS[format].code]
    codes = torch.randint(256, (n, (k + 1) // 2 if code.bits == 4 else k), dtype=torch.uint8)
    if format == "fp8":
        codes[codes & 127 == 127] = 0
    if scale == "e8m0":
        scales = torch.randint(118, 129, shape, dtype=torch.uint8).view(SCALES[scale])
    else:
        scales = (torch.rand(shape) + 0.1).to(SCALES[scale])
    zeros = None
    if zero != "none":
        zeros = torch.randint(-8, 8, shape).to(torch.int8 if zero == "subtracted" else SCALES[scale])
    if order:
        options["order"] = torch.randperm(k, dtype=torch.int32)
    if format == "nvfp4":
        options["global_scale"] = torch.rand(1) + 0.5
    return QuantizedWeight(
        codes.view(code.dtype), scales, zeros, format=format, block_size=block, columns=k, **options
    )


def values(q: QuantizedWeight) -> Tensor:
    """The weight in float64, without rounding."""
    n, k = q._packing.n, q._packing.k
    kind = FORMATS[q.format].code
    codes = q.codes
    if codes.dtype == torch.uint8:
        codes = torch.stack((codes & 15, codes >> 4), 2).flatten(1)[:, :k].long()
        tables = {"int4": range(-8, 8), "nf4": NORMAL_FLOAT, "e2m1": (*E2M1, *(-x for x in E2M1))}
        numbers = torch.tensor(list(tables[kind]), dtype=torch.float64)[codes]
    else:
        numbers = codes.double()

    def spread(x: Tensor) -> Tensor:
        rows, columns = torch.arange(n) // q.block_size[0], torch.arange(k) // q.block_size[1]
        return x.double()[rows][:, columns]

    scales, zeros = spread(q.scales), None if q.zero_points is None else spread(q.zero_points)
    if zeros is None:
        result = numbers * scales
    else:
        subtracted = q.zero_points.dtype == torch.int8
        result = (numbers - zeros) * scales if subtracted else numbers * scales + zeros
    if q.global_scale is not None:
        result = result * q.global_scale.double()
    return result if q.order is None else result[:, torch.argsort(q.order)]
