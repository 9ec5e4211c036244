"""The weights of GPTQ and AWQ checkpoints: int32 words of unsigned codes. Zero points are packed in the same
way."""

from __future__ import annotations

import torch
from torch import Tensor

from .plain import Plain, bytes_of, expect, expect_tensors, halves, pack, signed, small, sort_by_group

# The place of each column in a word of eight codes. AWQ's kernels unpack the even places before the odd ones.
PLACE_OF_COLUMN = (0, 4, 1, 5, 2, 6, 3, 7)


def _check_words(name: str, words: Tensor, shape: tuple[int, int]) -> None:
    expect(words.dtype == torch.int32, f"fastgemm: {name} is {words.dtype}, expected torch.int32")
    expect(tuple(words.shape) == shape, f"fastgemm: {name} is {tuple(words.shape)}, expected {shape}")


def _check_scales(scales: Tensor) -> tuple[int, int]:
    """The numbers of groups and of rows."""
    expect(scales.dim() == 2, f"fastgemm: scales are {tuple(scales.shape)}, expected (groups, N)")
    kinds = (torch.float16, torch.bfloat16, torch.float32)
    expect(
        scales.dtype in kinds, f"fastgemm: scales are {scales.dtype}, expected float16, bfloat16 or float32"
    )
    groups, n = scales.shape
    return groups, n


def _group_size(k: int, groups: int, group_size: int | None) -> int:
    size = group_size if group_size is not None and group_size > 0 else -(-k // max(groups, 1))
    size = max(size, 1)
    expect(-(-k // size) == groups, f"fastgemm: {groups} groups of {size} are not those of K = {k}")
    return size


def of_gptq(
    qweight: Tensor,
    qzeros: Tensor,
    scales: Tensor,
    g_idx: Tensor | None,
    bits: int,
    group_size: int | None,
    version: int,
) -> Plain:
    expect_tensors(
        qweight=qweight, qzeros=qzeros, scales=scales, **({} if g_idx is None else {"g_idx": g_idx})
    )
    expect(bits in (4, 8), f"fastgemm: GPTQ weights of {bits} bits are not taken, only of 4 and 8")
    expect(version in (1, 2), f"fastgemm: unknown version {version!r} of GPTQ's zero points; accepted: 1, 2")
    groups, n = _check_scales(scales)
    each, largest = 32 // bits, 2**bits - 1
    k = qweight.shape[0] * each
    _check_words("qweight", qweight, (k // each, n))
    _check_words("qzeros", qzeros, (groups, -(-n // each)))
    size = _group_size(k, groups, group_size)
    # Down a column, eight consecutive k of one n: as rows of (N, K) these are the bytes of the plain order.
    codes = bytes_of(qweight.t())
    zeros = bytes_of(qzeros) if bits == 8 else halves(bytes_of(qzeros))
    zeros = zeros[:, :n].to(torch.int16)
    if version == 1:
        zeros = zeros + 1 & largest
    plain = Plain(
        format="int4" if bits == 4 else "int8",
        codes=codes if bits == 4 else signed(codes),
        scales=scales.t(),
        group=(1, size),
        shape=(n, k),
        dtype=scales.dtype,
        zeros=small((zeros - (largest + 1) // 2).t()),
    )
    return sort_by_group(plain, g_idx)


def _awq_columns(words: Tensor) -> Tensor:
    """Codes of 4 bits, one a byte: ``(rows, N / 8)`` int32 to ``(rows, N)`` uint8."""
    places = halves(bytes_of(words)).unflatten(1, (-1, 8))
    return places[:, :, PLACE_OF_COLUMN].flatten(1)


def of_awq(qweight: Tensor, qzeros: Tensor, scales: Tensor, bits: int, group_size: int | None) -> Plain:
    expect_tensors(qweight=qweight, qzeros=qzeros, scales=scales)
    expect(bits == 4, f"fastgemm: AWQ weights of {bits} bits are not taken, only of 4")
    groups, n = _check_scales(scales)
    expect(n % 8 == 0, f"fastgemm: AWQ packs 8 rows of the weight into a word, N = {n} is no multiple of 8")
    k = qweight.shape[0]
    _check_words("qweight", qweight, (k, n // 8))
    _check_words("qzeros", qzeros, (groups, n // 8))
    return Plain(
        format="int4",
        codes=pack(_awq_columns(qweight).t()),
        scales=scales.t(),
        group=(1, _group_size(k, groups, group_size)),
        shape=(n, k),
        dtype=scales.dtype,
        zeros=small(_awq_columns(qzeros).t().to(torch.int16) - 8),
    )
