"""The two orders of a packed weight, and the way from one to the other, by torch's operations on any device.

csrc/core/packed_weight.h says where each code lies; ``place_in_unit`` there is the permutation of dimensions
here. The row r and the column c of a unit are, from the most significant digit on,

    r = warp (4), p0 (2), g (8)        c = high part of the step, low part, p1 (2), q (4), odd (2)

where 4 * g + q is the lane of a thread, p0 and p1 say which register of a fragment a code is in, and a step has
16 columns."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn import functional

from .. import _introspect
from .formats import CODES, SCALES, Packing, Parts, bits_of, blocks, decode, of_rows, row_chunks, scale_rows

ROWS, COLUMNS = 64, 128  # of a unit
GROUPS = (16, 32, 64)  # sizes along k in units, beside multiples of 128


def unit_groups(packing: Packing) -> tuple[int, int]:
    """The blocks that have a scale in units. They divide those of the weight: a scale is repeated if units have
    no such blocks.

    Raises:
        ValueError: groups along k have no such divisor.
    """
    n, k = packing.group_n, packing.group_k
    group_n = n if n % ROWS == 0 else blocks(packing.n, ROWS) * ROWS if n >= packing.n > 1 else 1
    if packing.by_rows:
        return 1, k
    divisor = k if k % COLUMNS == 0 else math.gcd(k, COLUMNS // 2)
    if divisor % COLUMNS and divisor not in GROUPS:
        raise ValueError(
            f"fastgemm: groups of {k} along K are for CPUs only; kernels of a GPU take multiples of "
            "16, and any size that is not below K"
        )
    return group_n, divisor


def _round_up(size: int) -> int:
    return blocks(size, 16) * 16


def _sizes(packing: Packing) -> tuple[int, int, int]:
    """The bytes of codes, scales and zero points in a unit, not yet rounded up."""
    code_bytes = ROWS * COLUMNS * CODES[packing.code].bits // 8
    if packing.by_rows:
        return code_bytes, 0, 0
    group_n, group_k = unit_groups(packing)
    count = (ROWS if group_n == 1 else 1) * max(1, COLUMNS // group_k)
    zero = packing.zero_dtype
    return code_bytes, count * SCALES[packing.scale].itemsize, 0 if zero is None else count * zero.itemsize


def unit_shape(packing: Packing) -> tuple[int, int, int]:
    """The shape of the codes as units."""
    codes, scales, zeros = _sizes(packing)
    size = codes + _round_up(scales) + _round_up(zeros)
    return blocks(packing.n, ROWS), blocks(packing.k, COLUMNS), size


Like = tuple[tuple[int, ...], torch.dtype] | None


def shapes(packing: Packing) -> tuple[Like, Like, Like]:
    """Shape and dtype of codes, scales and zero points, None for those that are not there."""
    zero = packing.zero_dtype
    if not packing.units:
        codes, groups = (packing.code_shape, CODES[packing.code].dtype), packing.groups
        return codes, (groups, SCALES[packing.scale]), None if zero is None else (groups, zero)
    units = unit_shape(packing), torch.uint8
    if not packing.by_rows:
        return units, None, None
    rows = (packing.n,)
    of_zeros = None if zero is None else (rows, zero if zero == torch.int8 else torch.float32)
    return units, (rows, torch.float32), of_zeros


def empty(packing: Packing, device: torch.device) -> Parts:
    """Tensors for a weight, without values."""
    codes, *others = (
        None if of is None else torch.empty(of[0], dtype=of[1], device=device) for of in shapes(packing)
    )
    assert codes is not None
    return Parts(codes, *others)


def to_units(parts: Parts, packing: Packing) -> Parts:
    """From the plain order to units. ``packing`` is that of ``parts``.

    Raises:
        ValueError: units have no groups of this size.
    """
    assert parts.scales is not None
    made = empty(packing._replace(units=True), parts.codes.device)
    code_bytes, scale_bytes, zero_bytes = _sizes(packing)
    at_zeros = code_bytes + _round_up(scale_bytes)
    made.codes[:, :, code_bytes:].zero_()
    for begin, end in row_chunks(packing.n, packing.k, ROWS):
        units = made.codes[begin // ROWS : blocks(end, ROWS)]
        units[:, :, :code_bytes] = _codes_to_units(parts.codes[begin:end].view(torch.uint8), packing)
        for x, at, size in ((parts.scales, code_bytes, scale_bytes), (parts.zeros, at_zeros, zero_bytes)):
            if x is not None and size:
                rows = of_rows(x, begin, end, packing.group_n)
                units[:, :, at : at + size] = _scales_to_units(rows, packing)
    if packing.by_rows:
        for x, to in ((parts.scales, made.scales), (parts.zeros, made.zeros)):
            if x is not None and to is not None and packing.k > 0:
                to.copy_(of_rows(x, 0, packing.n, packing.group_n)[:, 0])
            elif to is not None:
                to.zero_()
    return made


def to_plain(parts: Parts, packing: Packing) -> Parts:
    """From units to the plain order, bit by bit what :func:`to_units` was given. ``packing`` is that of
    ``parts``."""
    made = empty(packing._replace(units=False), parts.codes.device)
    assert made.scales is not None
    for begin, end in row_chunks(packing.n, packing.k, ROWS):
        rows = rows_of_units(parts, packing, begin, end)
        made.codes[begin:end] = rows.codes.view(made.codes.dtype)
    step = packing.group_n
    for to, x in zip(made[1:], scales_of_units(parts, packing, 0, packing.n), strict=True):
        if to is not None and x is not None:
            bits_of(to).copy_(bits_of(x[::step].to(to.dtype).contiguous()))
    return made


def rows_of_units(parts: Parts, packing: Packing, begin: int, end: int) -> Parts:
    """A range of rows in the plain order, with scales and zero points of their own. It begins with a unit."""
    units = parts.codes[begin // ROWS : blocks(end, ROWS)]
    codes = _codes_of_units(units[:, :, : _sizes(packing)[0]], packing)[: end - begin]
    return Parts(codes, *scales_of_units(parts, packing, begin, end))


def scales_of_units(
    parts: Parts, packing: Packing, begin: int, end: int
) -> tuple[Tensor | None, Tensor | None]:
    """The scales and zero points of each row in a range that begins with a unit."""
    if packing.by_rows:
        width = packing.groups[1]
        scales, zeros = (None if x is None else x[begin:end, None][:, :width] for x in parts[1:])
        return scales, zeros
    units = parts.codes[begin // ROWS : blocks(end, ROWS)]
    code_bytes, scale_bytes, zero_bytes = _sizes(packing)
    at_zeros = code_bytes + _round_up(scale_bytes)
    scales = _scales_of_units(
        units[:, :, code_bytes : code_bytes + scale_bytes], packing, SCALES[packing.scale]
    )
    zeros, dtype = None, packing.zero_dtype
    if dtype is not None:
        zeros = _scales_of_units(units[:, :, at_zeros : at_zeros + zero_bytes], packing, dtype)[: end - begin]
    return scales[: end - begin], zeros


def _codes_to_units(codes: Tensor, packing: Packing) -> Tensor:
    """Rows of codes as bytes, without scales: ``(blocks of rows, blocks of columns, bytes)``."""
    four, zero = CODES[packing.code].bits == 4, CODES[packing.code].zero
    count, width = blocks(codes.shape[0], ROWS), blocks(packing.k, COLUMNS)
    padding = width * (COLUMNS // 2 if four else COLUMNS) - codes.shape[1], count * ROWS - codes.shape[0]
    if four and packing.k % 2:
        last = codes[:, -1:] & 15 | zero << 4
        codes = torch.cat((codes[:, :-1], last), 1)
    if any(padding):
        codes = functional.pad(codes, (0, padding[0], 0, padding[1]), value=zero * 17 if four else zero)
    if not four:
        digits = codes.reshape(count, 4, 2, 8, width, 4, 2, 2, 4, 2)
        return digits.permute(0, 4, 5, 1, 3, 8, 6, 7, 9, 2).reshape(count, width, 8192)
    digits = codes.reshape(count, 4, 2, 8, width, 2, 4, 2, 4)
    of_row, of_row_8 = digits[:, :, 0], digits[:, :, 1]  # two rows share a byte, no longer two columns
    even, odd = of_row & 15 | of_row_8 << 4, of_row >> 4 | of_row_8 & 240
    pairs = torch.stack((even, odd), -1)
    return pairs.permute(0, 3, 4, 1, 2, 7, 5, 8, 6).reshape(count, width, 4096)


def _codes_of_units(units: Tensor, packing: Packing) -> Tensor:
    """The inverse: rows of bytes."""
    count, width, _ = units.shape
    if CODES[packing.code].bits == 8:
        digits = units.reshape(count, width, 4, 4, 8, 4, 2, 2, 2, 2)
        rows = digits.permute(0, 3, 9, 4, 1, 2, 6, 7, 5, 8).reshape(count * ROWS, width * COLUMNS)
        return rows[:, : packing.k]
    digits = units.reshape(count, width, 2, 4, 8, 4, 4, 2, 2).permute(0, 3, 4, 1, 2, 6, 8, 5, 7)
    even, odd = digits[..., 0], digits[..., 1]
    two_rows = torch.stack((even & 15 | odd << 4, even >> 4 | odd & 240), 2)
    rows = two_rows.reshape(count * ROWS, width * COLUMNS // 2)[:, : (packing.k + 1) // 2]
    if packing.k % 2:
        rows = torch.cat((rows[:, :-1], rows[:, -1:] & 15), 1)
    return rows


def _scales_to_units(rows: Tensor, packing: Packing) -> Tensor:
    """The scales of each row, ``(rows, groups)``, as bytes of units."""
    group_n, group_k = unit_groups(packing)
    count, width, each = blocks(rows.shape[0], ROWS), blocks(packing.k, COLUMNS), max(1, COLUMNS // group_k)
    bits = bits_of(rows)
    repeated = packing.group_k // (group_k if each > 1 else COLUMNS)
    if repeated > 1:
        bits = bits.repeat_interleave(repeated, 1)[:, : width * each]
    bits = functional.pad(bits, (0, width * each - bits.shape[1], 0, count * ROWS - bits.shape[0]))
    if group_n == 1:
        digits = bits.reshape(count, 4, 2, 8, width, each)
        ordered = digits.permute(0, 4, 5, 1, 3, 2).reshape(count, width, each * ROWS)
    else:
        ordered = bits[::ROWS].reshape(count, width, each)
    return ordered.contiguous().view(torch.uint8)


def _scales_of_units(units: Tensor, packing: Packing, dtype: torch.dtype) -> Tensor:
    """The inverse of ``_scales_to_units``. ``dtype``: of the scales."""
    group_n, group_k = unit_groups(packing)
    count, width, _ = units.shape
    each = max(1, COLUMNS // group_k)
    bits = bits_of(units.contiguous().view(dtype))
    if group_n == 1:
        digits = bits.reshape(count, width, each, 4, 8, 2)
        rows = digits.permute(0, 3, 5, 4, 1, 2).reshape(count * ROWS, width * each)
    else:
        rows = bits.reshape(count, width * each).repeat_interleave(ROWS, 0)
    repeated = packing.group_k // (group_k if each > 1 else COLUMNS)
    return rows[:, ::repeated][:, : packing.groups[1]].contiguous().view(dtype)


@cache
def _op_runs_on(device: str) -> bool:
    """Whether the op has a kernel there; a build without CUDA code has none for GPUs."""
    return torch._C._dispatch_has_kernel_for_dispatch_key("fastgemm::_dequantize", device.upper())


def has_kernel(codes: Tensor, packing: Packing) -> bool:
    """Whether the op ``_dequantize`` reads this order on this device, and rounds as torch's operations do: where a
    zero point is added, nvcc makes one operation of a product and a sum."""
    if codes.device.type == "cuda":
        return packing.units and packing.zero != "added" and _op_runs_on("cuda")
    return codes.device.type == "cpu" and packing.units == (not is_compiling() and _introspect.simulating())


def by_kernel(parts: Parts, packing: Packing, by: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The weight, ``(n, k)``, by one kernel, which computes the same bits as torch's operations would."""
    group_n, group_k = unit_groups(packing) if packing.units else (packing.group_n, packing.group_k)
    return torch.ops.fastgemm._dequantize.default(
        *(*parts, by),
        **{"n": packing.n, "k": packing.k, "code": packing.code, "zero": packing.zero},
        **{"scale": "f32" if packing.units and packing.by_rows else packing.scale, "units": packing.units},
        **{"group_n": group_n, "group_k": group_k, "dtype": dtype},
    )


def dequantize(
    parts: Parts, packing: Packing, by: Tensor | None, order: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """The weight, ``(n, k)``, computed in float32 and rounded once; ``by`` is the scale of the whole weight.
    Stored column j is column ``order[j]`` of the weight."""
    place = None if order is None else torch.argsort(order)
    if has_kernel(parts.codes, packing):
        matrix = by_kernel(parts, packing, by, dtype)
        return matrix if place is None else matrix.index_select(1, place)
    out = torch.empty((packing.n, packing.k), dtype=dtype, device=parts.codes.device)
    for begin, end in row_chunks(packing.n, packing.k, ROWS):
        if packing.units:
            rows = rows_of_units(parts, packing, begin, end)
            codes = rows.codes.view(CODES[packing.code].dtype)
        else:
            codes, of = parts.codes[begin:end], (begin, end, packing.group_n)
            rows = Parts(codes, *(None if x is None else of_rows(x, *of) for x in parts[1:]))
        assert rows.scales is not None
        numbers = scale_rows(decode(codes, packing.code, packing.k), (rows.scales, rows.zeros), packing, by)
        out[begin:end] = numbers if place is None else numbers.index_select(1, place)
    return out
