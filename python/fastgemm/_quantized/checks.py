"""The checks of what a QuantizedWeight is made of."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor

from .formats import CODES, FORMATS, SCALE_NAMES, Packing, Parts, ZeroKind, row_chunks

LOGICAL = (torch.bfloat16, torch.float16, torch.float32)


def check_dtype(dtype: torch.dtype) -> None:
    """Raises TypeError if a weight cannot be of a dtype."""
    if dtype not in LOGICAL:
        raise TypeError(f"fastgemm: a QuantizedWeight is bfloat16, float16 or float32, not {dtype}")


def check_format(format: object) -> None:
    """Raises ValueError unless it is the name of a format."""
    if not isinstance(format, str) or format not in FORMATS:
        raise ValueError(f"fastgemm: unknown format {format!r}; accepted: {', '.join(FORMATS)}")


def check_int(name: str, value: object) -> None:
    """Raises TypeError unless an argument is an integer, also one of torch.compile or numpy."""
    if not isinstance(value, (Integral, torch.SymInt)):
        raise TypeError(f"fastgemm: {name} must be an int, got {type(value).__name__}")


def check_block_size(block_size: object) -> None:
    """Raises TypeError or ValueError unless it is the rows and columns of a block."""
    if not isinstance(block_size, Sequence) or len(block_size) != 2:
        raise ValueError(f"fastgemm: block_size must be two positive sizes, got {block_size}")
    for size in block_size:
        check_int("block_size", size)
    if min(block_size) < 1:
        raise ValueError(f"fastgemm: block_size must be two positive sizes, got {block_size}")


def packing_of(parts: Parts, format: str, block_size: tuple[int, int], columns: int | None) -> Packing:
    """The packing of the tensors that a constructor was given."""
    codes, scales, zeros = parts
    for name, x in (("codes", codes), ("scales", scales), ("zero_points", zeros)):
        if not isinstance(x, Tensor) and not (x is None and name == "zero_points"):
            raise TypeError(f"fastgemm: {name} must be a torch.Tensor, got {type(x).__name__}")
        if x is not None and (x.dim() != 2 or x.device != codes.device):
            raise ValueError(
                f"fastgemm: {name} must have 2 dimensions and the device of the codes, {codes.device}; got shape "
                f"{tuple(x.shape)} on {x.device}"
            )
    assert scales is not None
    check_format(format)
    kind = FORMATS[format].code
    if codes.dtype != CODES[kind].dtype:
        raise TypeError(f"fastgemm: codes of {format!r} must be {CODES[kind].dtype}, got {codes.dtype}")
    if scales.dtype not in SCALE_NAMES:
        accepted = ", ".join(str(dtype) for dtype in SCALE_NAMES)
        raise TypeError(f"fastgemm: scales must have one of the types {accepted}; got {scales.dtype}")
    check_block_size(block_size)
    if columns is not None:
        check_int("columns", columns)
    zero: ZeroKind = "none"
    if zeros is not None:
        added = zeros.dtype == scales.dtype and scales.itemsize > 1
        if zeros.dtype != torch.int8 and not added:
            raise TypeError(
                "fastgemm: zero_points must be int8 or, with scales of 16 or 32 bits, of their dtype; "
                f"got {zeros.dtype} with scales of {scales.dtype}"
            )
        zero = "subtracted" if zeros.dtype == torch.int8 else "added"
    n, width = codes.shape
    k = width * (8 // CODES[kind].bits) if columns is None else columns
    packing = Packing(n, k, kind, SCALE_NAMES[scales.dtype], zero, int(block_size[0]), int(block_size[1]))
    if packing.code_shape != (n, width):
        raise ValueError(f"fastgemm: codes of shape {tuple(codes.shape)} do not hold {k} columns")
    for name, x in (("scales", scales), ("zero_points", zeros)):
        if x is not None and tuple(x.shape) != packing.groups:
            raise ValueError(
                f"fastgemm: {name} of a weight of {n} x {k} in blocks of {block_size[0]} x {block_size[1]} "
                f"must have shape {packing.groups}, got {tuple(x.shape)}"
            )
    return packing


def global_scale_of(by: Tensor, device: torch.device) -> Tensor:
    if not isinstance(by, Tensor) or by.numel() != 1 or by.device != device:
        raise ValueError(f"fastgemm: global_scale must be a tensor of one element on {device}")
    return by.detach().to(torch.float32).reshape(())


def order_of(order: Tensor, k: int, device: torch.device) -> Tensor:
    if not isinstance(order, Tensor) or tuple(order.shape) != (k,) or order.device != device:
        raise ValueError(f"fastgemm: order must be a tensor of {k} columns on {device}")
    if not _has_no_data(order) and not torch.equal(
        order.long().sort().values, torch.arange(k, device=device)
    ):
        raise ValueError("fastgemm: order must have every column once")
    return order.detach().to(torch.int32)


def _has_no_data(x: Tensor) -> bool:
    return x.is_meta or isinstance(x, torch._subclasses.FakeTensor)


def refuse_nan(codes: Tensor) -> None:
    if _has_no_data(codes):
        return
    for begin, end in row_chunks(*codes.shape):
        if (codes[begin:end].view(torch.uint8) & 127).eq(127).any():
            raise ValueError("fastgemm: a code of float8_e4m3fn is NaN; codes must be numbers")
