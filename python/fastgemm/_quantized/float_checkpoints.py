"""Weights of floating-point codes in checkpoints: fp8, mxfp4 and nvfp4."""

from __future__ import annotations

import torch
from torch import Tensor

from .checks import check_block_size
from .plain import Plain, expect, expect_tensors

E8M0 = torch.float8_e8m0fnu
E4M3 = torch.float8_e4m3fn


def blocks_of(
    shape: tuple[int, int], scales: Tensor, block: tuple[int, int] | None
) -> tuple[Tensor, tuple[int, int]]:
    """Scales as a matrix, and the rows and columns that each serves.

    One scale, or one a row (or ``(N, 1)``), needs no ``block``.
    """
    n, k = shape
    if scales.numel() == 1 and block is None:
        return scales.reshape(1, 1), (max(n, 1), max(k, 1))
    if scales.shape in ((n,), (n, 1)) and block is None:
        return scales.reshape(n, 1), (1, max(k, 1))
    rows, columns = block or (128, 128)
    expected = -(-n // rows), -(-k // columns)
    expect(
        tuple(scales.shape) == expected,
        f"fastgemm: scales of a weight ({n}, {k}) are {tuple(scales.shape)}; expected one, one for each row, or "
        f"{expected} for blocks of {rows} x {columns}",
    )
    return scales, (rows, columns)


def of_fp8(weight: Tensor, scales: Tensor, block: tuple[int, int] | None, dtype: torch.dtype) -> Plain:
    expect_tensors(weight=weight, weight_scale_inv=scales)
    if block is not None:
        check_block_size(block)
    expect(weight.dtype == E4M3, f"fastgemm: fp8 weights are torch.float8_e4m3fn, got {weight.dtype}")
    expect(weight.dim() == 2, f"fastgemm: the weight is {tuple(weight.shape)}, expected (N, K)")
    kinds = (torch.float32, torch.bfloat16, torch.float16, E8M0)
    expect(
        scales.dtype in kinds,
        f"fastgemm: scales of fp8 weights are float32, bfloat16 or float16, got {scales.dtype}",
    )
    shape = (weight.shape[0], weight.shape[1])
    matrix, group = blocks_of(shape, scales, block)
    return Plain("fp8", weight, matrix, group, shape, dtype)


def of_mxfp4(blocks: Tensor, scales: Tensor, dtype: torch.dtype) -> Plain:
    expect_tensors(blocks=blocks, scales=scales)
    expect(
        blocks.dtype == torch.uint8 and blocks.dim() == 3 and blocks.shape[-1] == 16,
        f"fastgemm: blocks of mxfp4 are (N, K / 32, 16) uint8, got {tuple(blocks.shape)} {blocks.dtype}; "
        "weights of several experts are converted one by one",
    )
    n, groups, _ = blocks.shape
    expect(
        scales.dtype in (torch.uint8, E8M0) and scales.shape == (n, groups),
        f"fastgemm: scales of mxfp4 are {(n, groups)} uint8 or float8_e8m0fnu, "
        f"got {tuple(scales.shape)} {scales.dtype}",
    )
    codes = blocks.reshape(n, groups * 16)
    return Plain("mxfp4", codes, scales.view(E8M0), (1, 32), (n, groups * 32), dtype)


def of_nvfp4(weight: Tensor, scales: Tensor, global_scale: Tensor, dtype: torch.dtype) -> Plain:
    expect_tensors(weight=weight, weight_scale=scales, weight_scale_2=global_scale)
    expect(
        weight.dtype == torch.uint8 and weight.dim() == 2 and weight.shape[1] % 8 == 0,
        "fastgemm: codes of nvfp4 are (N, K / 2) uint8 with K a multiple of 16, "
        f"got {tuple(weight.shape)} {weight.dtype}",
    )
    n, k = weight.shape[0], weight.shape[1] * 2
    expect(
        scales.dtype == E4M3 and scales.shape == (n, k // 16),
        f"fastgemm: scales of nvfp4 are {(n, k // 16)} float8_e4m3fn, got {tuple(scales.shape)} {scales.dtype}",
    )
    expect(
        global_scale.numel() == 1,
        f"fastgemm: the global scale is one number, got {tuple(global_scale.shape)}",
    )
    by = global_scale.reshape(()).to(weight.device, torch.float32)
    return Plain("nvfp4", weight, scales, (1, 16), (n, k), dtype, global_scale=by)
