"""The nearest codes of numbers. Each function reads a weight as few times as torch's operations allow."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from .formats import CODES, Packing
from .plain import pack

INTEGERS = {"int4": (-8, 7), "int8": (-128, 127)}
LARGEST_E4M3 = 448.0
# From here on float32 has no fraction: a sum with it is rounded to an integer, and to even. The low byte of its
# bits is that integer.
_NO_FRACTION = 1.5 * 2**23


def grouped(x: Tensor, size: int) -> list[Tensor]:
    """Views of ``(rows, groups, size)``: whole groups, and the last one if it is smaller."""
    whole = x.shape[1] // size
    views = [x[:, : whole * size].unflatten(1, (whole, size)), x[:, None, whole * size :]]
    return [view for view in views if view.shape[1] * view.shape[2]]


def rounded(w: Tensor, scale: Tensor, zero: Tensor | None, packing: Packing, by: Tensor | None) -> Tensor:
    """The codes of rows. Scales and zero points are given for each row, and ``by`` is the scale of the whole
    weight.

    Where a scale is not finite, codes have no meaning and may be any numbers."""
    divisor = scale.float() if by is None else scale.float() * by
    divisor = torch.where(divisor > 0, divisor, torch.inf)  # gives the code of 0
    if packing.code in INTEGERS:
        return _integers(w, divisor, zero, packing)
    x = _over(w, divisor, None, packing)
    if packing.code == "e4m3":
        return x.nan_to_num_(0).clamp_(-LARGEST_E4M3, LARGEST_E4M3).to(torch.float8_e4m3fn)
    bounds = torch.tensor(_bounds(packing.code), dtype=torch.float32, device=x.device)
    if packing.code == "nf4":
        return pack(torch.bucketize(x, bounds, out_int32=True).to(torch.uint8))
    sign = (x < 0).to(torch.uint8) << 3
    return pack(torch.bucketize(x.abs_(), bounds, out_int32=True).to(torch.uint8) | sign)


def _over(w: Tensor, divisor: Tensor, start: Tensor | None, packing: Packing) -> Tensor:
    """``start + w / divisor`` in float32, with one divisor and one start for each group."""
    result = torch.empty(w.shape, dtype=torch.float32, device=w.device)
    size, at = min(packing.group_k, max(packing.k, 1)), 0
    for group, out in zip(grouped(w, size), grouped(result, size), strict=True):
        columns = slice(at, at + group.shape[1])
        at += group.shape[1]
        if start is None:
            torch.div(group, divisor[:, columns, None], out=out)
        else:
            torch.addcdiv(start[:, columns, None], group, divisor[:, columns, None], out=out)
    return result


def _integers(w: Tensor, divisor: Tensor, zero: Tensor | None, packing: Packing) -> Tensor:
    lowest, highest = INTEGERS[packing.code]
    offset = _NO_FRACTION - (lowest if packing.code == "int4" else 0)  # codes of int4 begin with 0
    start = torch.full_like(divisor, offset) if zero is None else zero.float() + offset
    x = _over(w, divisor, start, packing).clamp_(offset + lowest, offset + highest)
    codes = x.view(torch.int32).to(torch.uint8)
    return codes.view(torch.int8) if packing.code == "int8" else pack(codes)


@cache
def _bounds(code: str) -> tuple[float, ...]:
    """For each code except the last, the largest number that is rounded to it. A number in the middle of two codes
    becomes the lower code in nf4, and the even code in e2m1."""
    # Not by the defaults of dtype and device, which the table would keep.
    options: Any = {"dtype": torch.float32, "device": "cpu"}
    numbers = torch.tensor(CODES[code].numbers[: 16 if code == "nf4" else 8], **options)
    middles = (numbers[1:] + numbers[:-1]) / 2
    if code == "e2m1":
        middles[1::2] = torch.nextafter(middles[1::2], torch.zeros(3, **options))
    return tuple(middles.tolist())
