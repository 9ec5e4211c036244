"""What the codes of a weight stand for: the Python side of csrc/core/packed_weight.h.

Codes are decoded as in the header: in float32, with the same operations in the same order. So ``dequantize`` gives
on every device the numbers that kernels multiply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

CodeName = Literal["int4", "nf4", "e2m1", "int8", "e4m3"]
ScaleName = Literal["f32", "bf16", "f16", "e8m0", "e4m3"]
Granularity = Literal["tensor", "channel", "group", "128x128"]
ZeroKind = Literal["none", "subtracted", "added"]

NORMAL_FLOAT = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


class Code(NamedTuple):
    """A kind of code.

    Attributes:
        bits: 4 or 8.
        dtype: of the plain order.
        zero: the code of the number 0, which fills units.
        numbers: what the 16 codes of 4 bits stand for.
    """

    bits: int
    dtype: torch.dtype
    zero: int
    numbers: tuple[float, ...] = ()


CODES: dict[str, Code] = {
    "int4": Code(4, torch.uint8, 8, tuple(float(i - 8) for i in range(16))),
    "nf4": Code(4, torch.uint8, 7, NORMAL_FLOAT),
    "e2m1": Code(4, torch.uint8, 0, (*_E2M1, *(-x for x in _E2M1))),
    "int8": Code(8, torch.int8, 0),
    "e4m3": Code(8, torch.float8_e4m3fn, 0),
}
SCALES: dict[str, torch.dtype] = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "e8m0": torch.float8_e8m0fnu,
    "e4m3": torch.float8_e4m3fn,
}
SCALE_NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in SCALES.items()}


class Format(NamedTuple):
    """How :func:`fastgemm.quantize_weight` makes a format unless it is told otherwise.

    Attributes:
        code: the kind of its codes.
        granularity: of its scales.
        group_size: codes that share a scale, for the granularity ``"group"``.
        group_scale: the dtype of scales of groups; other scales are float32.
        largest: the number that the largest weight of a group becomes.
        zero_points: whether it may have them.
    """

    code: CodeName
    granularity: Granularity
    group_size: int
    group_scale: ScaleName
    largest: float
    zero_points: bool


FORMATS: dict[str, Format] = {
    "int4": Format("int4", "group", 128, "bf16", 7.0, True),
    "int8": Format("int8", "channel", 128, "bf16", 127.0, True),
    "fp8": Format("e4m3", "channel", 128, "bf16", 448.0, False),
    "nf4": Format("nf4", "group", 64, "bf16", 1.0, False),
    "mxfp4": Format("e2m1", "group", 32, "e8m0", 6.0, False),
    "nvfp4": Format("e2m1", "group", 16, "e4m3", 6.0, False),
}


class Packing(NamedTuple):
    """How the codes of a weight lie in memory: ``PackedWeight`` of the header.

    ``units`` is the order of a GPU. In it, scales of whole rows are float32 whatever ``scale`` says: ``scale``
    is the type in the plain order.
    """

    n: int
    k: int
    code: str
    scale: str
    zero: ZeroKind
    group_n: int
    group_k: int
    units: bool = False

    @property
    def by_rows(self) -> bool:
        """Whether one scale serves a whole row."""
        return self.group_k >= self.k

    @property
    def groups(self) -> tuple[int, int]:
        """The shape of the scales in the plain order."""
        return blocks(self.n, self.group_n), blocks(self.k, self.group_k)

    @property
    def code_shape(self) -> tuple[int, int]:
        """The shape of the codes in the plain order."""
        return self.n, (self.k + 1) // 2 if CODES[self.code].bits == 4 else self.k

    @property
    def zero_dtype(self) -> torch.dtype | None:
        """The dtype of the zero points in the plain order."""
        return (
            None if self.zero == "none" else torch.int8 if self.zero == "subtracted" else SCALES[self.scale]
        )


class Parts(NamedTuple):
    """The tensors of a weight, in one of the two orders. Units contain their scales and zero points, if these
    do not serve whole rows."""

    codes: Tensor
    scales: Tensor | None
    zeros: Tensor | None = None


def blocks(size: int, of: int) -> int:
    """How many blocks a size has."""
    return -(-size // of)


ROWS_HAVE = 1 << 25  # elements that are converted at a time, so that temporary memory is bounded


def row_chunks(n: int, k: int, multiple: int = 1) -> Iterator[tuple[int, int]]:
    """Ranges of rows, each with a bounded number of elements. Compiled code fuses its operations, so a single
    range is enough there."""
    step = n if is_compiling() else max(1, ROWS_HAVE // max(k, 1) // multiple) * multiple
    for begin in range(0, n, max(step, 1)):
        yield begin, min(n, begin + step)


_pairs: dict[tuple[str, torch.device], Tensor] = {}


def _numbers_of_bytes(code: str, like: Tensor) -> Tensor:
    """The two numbers of each byte, ``(256, 2)``. They stay on a GPU: CUDA graphs cannot copy them there."""
    if is_compiling() or type(like) is not Tensor:
        return torch.tensor(_every_byte(code), dtype=torch.float32, device=like.device)
    if (code, like.device) not in _pairs:
        with torch.inference_mode(False):
            _pairs[code, like.device] = torch.tensor(
                _every_byte(code), dtype=torch.float32, device=like.device
            )
    return _pairs[code, like.device]


def _every_byte(code: str) -> list[list[float]]:
    numbers = CODES[code].numbers
    return [[numbers[byte & 15], numbers[byte >> 4]] for byte in range(256)]


def decode(codes: Tensor, code: str, k: int) -> Tensor:
    """The numbers, float32 of ``(rows, k)``, of codes in the plain order. The result is a new tensor."""
    if CODES[code].bits == 8:
        return codes.to(torch.float32)
    pairs = _numbers_of_bytes(code, codes)  # both codes of a byte at once
    numbers = pairs.index_select(0, codes.to(torch.int32).flatten())
    return numbers.view(codes.shape[0], 2 * codes.shape[1])[:, :k]


def scale_rows(
    codes: Tensor, parts: tuple[Tensor, Tensor | None], packing: Packing, by: Tensor | None
) -> Tensor:
    """Turns decoded codes into weights, in place. ``parts`` are the scales and zero points of each row, ``by`` is
    the scale of the whole weight."""
    scales, zeros = (None if x is None else x.to(torch.float32) for x in parts)
    assert scales is not None
    size = min(packing.group_k, max(packing.k, 1))
    whole = packing.k // size  # groups, without one that is cut off by the end of the row
    for columns, groups in (
        (codes[:, : whole * size].unflatten(1, (whole, size)), slice(0, whole)),
        (codes[:, None, whole * size :], slice(whole, whole + 1)),
    ):
        if columns.numel() == 0:
            continue
        zero = None if zeros is None else zeros[:, groups, None]
        if zero is not None and packing.zero == "subtracted":
            columns.sub_(zero)
        columns.mul_(scales[:, groups, None])
        if zero is not None and packing.zero == "added":
            columns.add_(zero)
    return codes if by is None else codes.mul_(by.to(torch.float32))


def of_rows(x: Tensor, begin: int, end: int, group: int) -> Tensor:
    """The scales (or zero points) of each row in a range, from those of blocks in the plain order."""
    if group == 1:
        return x[begin:end]
    rows = torch.arange(begin, end, device=x.device).div_(group, rounding_mode="floor")
    bits = bits_of(x).index_select(0, rows)  # torch cannot select among numbers of 8 bits
    return bits.view(x.dtype)


def bits_of(x: Tensor) -> Tensor:
    """The same memory as integers, for operations that torch does not have for all types of scales."""
    return x.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.itemsize])
