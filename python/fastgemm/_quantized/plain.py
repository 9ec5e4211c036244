"""What a converter makes of another library's weight: its codes, scales and zero points in the plain order."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .. import _errors


class Plain(NamedTuple):
    """A weight of ``(n, k)`` in the plain order of csrc/core/packed_weight.h.

    Attributes:
        format: the name of its format.
        codes: ``(n, k)``; codes of 4 bits are ``(n, ceil(k / 2))``, uint8.
        scales: one for each block of ``group``: ``(ceil(n / group[0]), ceil(k / group[1]))``.
        group: the rows and columns of a block.
        shape: ``(n, k)``.
        dtype: the weight's dtype for torch; the library would dequantize to it.
        zeros: as ``scales``; int8 zero points are subtracted from codes, others are added.
        global_scale: float32, one number; or None.
        order: int32 of ``(k,)``: stored column j is column ``order[j]`` of the weight; or None.
    """

    format: str
    codes: Tensor
    scales: Tensor
    group: tuple[int, int]
    shape: tuple[int, int]
    dtype: torch.dtype
    zeros: Tensor | None = None
    global_scale: Tensor | None = None
    order: Tensor | None = None


def own(x: Tensor) -> Tensor:
    """A copy: a weight that kept a view of a checkpoint's tensor would keep all of it, and change with it."""
    return x.detach().clone(memory_format=torch.contiguous_format)


def expect_tensors(**arguments: object) -> None:
    """Raises TypeError if one is no tensor."""
    for name, value in arguments.items():
        if not isinstance(value, Tensor):
            raise _errors.not_a_tensor(**{name: value})


def expect(condition: bool, message: str) -> None:
    """Raises a ValueError unless a condition holds."""
    if not condition:
        raise ValueError(message)


def halves(packed: Tensor) -> Tensor:
    """Codes of 4 bits, one a byte, the low half of each byte first: ``(..., b)`` to ``(..., 2 * b)`` uint8."""
    return torch.stack((packed & 15, packed >> 4), -1).flatten(-2)


def pack(codes: Tensor) -> Tensor:
    """The inverse for rows of codes: ``(n, k)`` to ``(n, ceil(k / 2))``; the half without a column is 0."""
    if codes.shape[1] % 2:
        codes = torch.nn.functional.pad(codes, (0, 1))
    return codes[:, ::2] | codes[:, 1::2] << 4


def bytes_of(words: Tensor) -> Tensor:
    """The bytes of 32-bit words, the lowest first: ``(rows, w)`` int32 to ``(rows, 4 * w)`` uint8."""
    return words.contiguous().flatten().view(torch.uint8).view(words.shape[0], 4 * words.shape[1])


def signed(codes: Tensor) -> Tensor:
    """Unsigned codes of 8 bits, whose middle is 128, as int8."""
    return (codes ^ 128).view(torch.int8)


def small(zeros: Tensor) -> Tensor | None:
    """Zero points as int8; None if all are 0, as those of symmetric weights are.

    Raises:
        ValueError: one is not in the range of int8.
    """
    if not bool(zeros.any()):
        return None
    expect(
        bool(((zeros >= -128) & (zeros <= 127)).all()),
        "fastgemm: zero points are -128 to 127 from the middle code",
    )
    return zeros.to(torch.int8)


def sort_by_group(plain: Plain, groups: Tensor | None) -> Plain:
    """A weight whose column c is in group ``groups[c]``, with its columns sorted by group (act-order).

    Raises:
        ValueError: groups are not of one size.
    """
    size, k = plain.group[1], plain.shape[1]
    if groups is None:
        return plain
    expect(
        groups.shape == (k,),
        f"fastgemm: g_idx is {tuple(groups.shape)}, expected one group for each of {k} columns",
    )
    in_order = torch.arange(k, device=groups.device).div_(size, rounding_mode="floor")
    if torch.equal(groups.long(), in_order):
        return plain
    order = torch.argsort(groups, stable=True)
    expect(
        torch.equal(groups[order].long(), in_order),
        f"fastgemm: g_idx has groups of several sizes; each group must have {size} columns, but the last one",
    )
    four = plain.codes.shape[1] != k
    columns = halves(plain.codes)[:, :k] if four else plain.codes
    columns = columns.index_select(1, order)
    return plain._replace(codes=pack(columns) if four else columns, order=order.to(torch.int32))
