"""torchao's weights, read by their attributes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .float_checkpoints import E4M3, blocks_of
from .plain import Plain, expect, pack, small

TAKEN = ("Int4Tensor", "Int4TilePackedTo4dTensor", "Int8Tensor", "IntxUnpackedToInt8Tensor", "Float8Tensor")


def of_torchao(weight: Any) -> Plain:
    kind = next((base.__name__ for base in type(weight).__mro__ if base.__name__ in TAKEN), None)
    expect(
        kind is not None,
        f"fastgemm: a {type(weight).__name__} is no tensor of torchao that is taken: {', '.join(TAKEN)}",
    )
    expect(weight.dim() == 2, f"fastgemm: the weight is {tuple(weight.shape)}, expected (N, K)")
    expect(
        getattr(weight, "act_pre_scale", None) is None,
        "fastgemm: the weight has an act_pre_scale, which scales the input; weights alone are taken",
    )
    if kind == "Int4Tensor":
        return _int4(weight)
    if kind == "Int4TilePackedTo4dTensor":
        return _tile_packed(weight)
    return _int8(weight) if kind != "Float8Tensor" else _float8(weight)


def _shape(weight: Any) -> tuple[int, int]:
    n, k = weight.shape
    return int(n), int(k)


def _added(zeros: Tensor) -> Tensor | None:
    return zeros if bool(zeros.any()) else None


def _int4(weight: Any) -> Plain:
    """Two's complement, the even column in the low half; scales and added zero points are transposed."""
    n, k = shape = _shape(weight)
    codes = weight.qdata.contiguous().view(torch.uint8) ^ 0x88
    expect(
        tuple(codes.shape) == (n, k // 2), f"fastgemm: codes are {tuple(codes.shape)}, expected {(n, k // 2)}"
    )
    group = (1, int(weight.block_size[-1]))
    zeros = _added(weight.zero_point.t())
    return Plain("int4", codes, weight.scale.t(), group, shape, weight.dtype, zeros)


# The columns of a tile of 32 whose codes are in a word of tinygemm, for the first of the four lanes of a row; the
# lowest 4 bits first. (aten/src/ATen/native/cuda/int4mm.cu, matrix_to_m16n8k16_Bint4_layout)
COLUMNS_OF_WORD = (0, 8, 16, 24, 1, 9, 17, 25)


def _tile_packed(weight: Any) -> Plain:
    """Words of (n / 8, k / (16 * t), 32 lanes, t / 2): lane 4 * r + q has 8 of 32 columns of row r, from 2q on."""
    n, k = shape = _shape(weight)
    words = weight.qdata
    tiles, spans, lanes, each = words.shape
    expect(
        words.dtype == torch.int32 and lanes == 32,
        f"fastgemm: words of tinygemm are (N / 8, K / 128, 32, 4) int32, got {tuple(words.shape)} {words.dtype}",
    )
    places = torch.stack([words >> 4 * i & 15 for i in range(8)], -1).to(torch.uint8)
    of_lane = places.reshape(tiles, spans, 8, 4, each, 8)  # row, q, words of 32 columns, places
    codes = torch.empty((tiles, 8, spans, each, 32), dtype=torch.uint8, device=words.device)
    for i, column in enumerate(COLUMNS_OF_WORD):
        codes[..., column : column + 8 : 2] = of_lane[..., i].permute(0, 2, 1, 4, 3)
    size = int(weight.block_size[-1])
    both = weight.scale_and_zero[: -(-k // size), :n].transpose(0, 1)
    return Plain(
        "int4",
        pack(codes.reshape(tiles * 8, spans * each * 32)[:n, :k]),
        both[..., 0],
        (1, size),
        shape,
        weight.dtype,
        _added(both[..., 1]),
    )


def _int8(weight: Any) -> Plain:
    """One byte a code, also for those of 4 bits."""
    n, k = shape = _shape(weight)
    target = str(getattr(weight, "target_dtype", torch.int8)).removeprefix("torch.")
    expect(target in ("int4", "int8"), f"fastgemm: weights of {target} are not taken, only of int4 and int8")
    rows, columns = (int(size) for size in weight.block_size)
    groups = -(-n // rows), -(-k // columns)
    zeros = weight.zero_point
    if zeros is not None:
        zeros = _integers(zeros.reshape(groups))
    four = target == "int4"
    codes = weight.qdata
    return Plain(
        target,
        pack((codes + 8).to(torch.uint8)) if four else codes,
        weight.scale.reshape(groups),
        (rows, columns),
        shape,
        weight.dtype,
        zeros,
    )


def _integers(zeros: Tensor) -> Tensor | None:
    """Zero points to subtract, which may be stored as floating-point numbers."""
    whole = zeros.round()
    expect(torch.equal(whole, zeros), "fastgemm: the weight has zero points that are no integers")
    return small(whole)


def _float8(weight: Any) -> Plain:
    codes, scales = weight.qdata, weight.scale
    expect(
        codes.dtype == E4M3, f"fastgemm: codes of {codes.dtype} are not taken, only of torch.float8_e4m3fn"
    )
    n, k = shape = _shape(weight)
    expect(scales.dim() in (0, 2), f"fastgemm: scales are {tuple(scales.shape)}, expected one, or a matrix")
    block = None
    if scales.numel() > 1:
        rows, columns = scales.shape
        block = -(-n // rows), -(-k // columns)
    matrix, group = blocks_of(shape, scales, block)
    return Plain("fp8", codes, matrix, group, shape, weight.dtype)
