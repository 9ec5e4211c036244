"""Tests every transpose row of the kernel table, with every element width and every dtype of torch."""

import random
import re

import fastgemm
import pytest
import torch
from reference import DEVICES, every_device, row_id, threads
from torch import Tensor

BYTES = (1, 2, 4, 8, 16)
BY_WIDTH = {1: torch.uint8, 2: torch.int16, 4: torch.float32, 8: torch.int64, 16: torch.complex128}
# geam computes and may change a NaN; test_cuda.py tests it.
KERNELS = {
    device: [
        row for row in fastgemm.kernels("transpose", device) if row.available and row.name != "cublas_geam"
    ]
    for device in DEVICES
}
ROWS = [(device, row.name) for device in DEVICES for row in KERNELS[device]]
WIDTHS = [
    (device, row.name, width)
    for device in DEVICES
    for row in KERNELS[device]
    for width, dtype in BY_WIDTH.items()
    if row.takes(dtype)
]
SUB_BYTE = re.compile(r"bits|u?int[1-7]|float4")


def every_dtype() -> list[torch.dtype]:
    """All of torch's dtypes except quantized ones and those of less than a byte, which have no operators."""
    found = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    names = {str(dtype).removeprefix("torch."): dtype for dtype in found}
    wide = re.compile(r"u?int(16|32|64)")
    return [
        names[name]
        for name in sorted(names)
        if wide.fullmatch(name) or not (name.startswith("q") or SUB_BYTE.match(name))
    ]


every_row = pytest.mark.parametrize(("device", "kernel"), ROWS)
every_row_and_width = pytest.mark.parametrize(("device", "kernel", "width"), WIDTHS)
every_width = pytest.mark.parametrize("width", BYTES)


def random_bytes(*shape: int, dtype: torch.dtype) -> Tensor:
    """Random bit patterns. A transposed copy must not change any bit, not even of a NaN."""
    if dtype == torch.bool:
        return torch.randint(2, shape).bool()
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    count = torch.Size(shape).numel() * dtype.itemsize
    return torch.randint(256, (count,), dtype=torch.uint8).view(dtype).view(shape)


def bits(x: Tensor) -> Tensor:
    """The elements of x as bytes, in one more dimension, for any strides of x."""
    flat = torch.empty(x.shape, dtype=x.dtype).copy_(x)
    return flat.unsqueeze(-1).view(torch.uint8)


def check(a: Tensor, out: Tensor | None = None, **choice: object) -> Tensor:
    expected = bits(a).transpose(-2, -3)
    if out is None:
        out = ~torch.zeros(a.mT.shape, dtype=torch.bool) if a.dtype == torch.bool else None
        if out is None:
            out = torch.empty(a.mT.shape, dtype=a.dtype)
            out.view(torch.uint8).fill_(0xA5)
    returned = fastgemm.transpose(a, out=out, **choice)
    assert returned is out
    shown = f"{choice} {tuple(a.shape)} strides {a.stride()} {a.dtype}, out strides {out.stride()}"
    assert torch.equal(bits(out), expected), shown
    return out


@every_row_and_width
def test_sizes(kernel, width):
    dtype = BY_WIDTH[width]
    sizes = [(1, 1), (1, 9), (9, 1), (2, 3), (3, 1000), (1000, 3), (16, 16), (17, 31), (65, 63), (129, 257)]
    for _ in range(5):  # random sizes that are one below, at or one above powers of two
        sizes.append(tuple(2 ** random.randint(2, 9) + random.randint(-1, 1) for _ in range(2)))
    for size in sizes:
        check(random_bytes(*size, dtype=dtype), kernel=kernel)


@every_row_and_width
def test_large(kernel, width):
    for size in [(1500, 1049), (1024, 512), (4099, 300)]:
        check(random_bytes(*size, dtype=BY_WIDTH[width]), kernel=kernel)


@every_device
@pytest.mark.parametrize("dtype", every_dtype(), ids=row_id)
def test_every_dtype(device, dtype):
    for kernel in (None, *[row.name for row in KERNELS[device] if row.takes(dtype)]):
        check(random_bytes(37, 51, dtype=dtype), kernel=kernel)
    result = fastgemm.transpose(random_bytes(2, 3, 5, dtype=dtype))
    assert result.dtype == dtype
    assert result.shape == (2, 5, 3)
    assert result.is_contiguous()


def test_the_list_of_dtypes_is_not_empty_by_accident():
    assert {torch.bool, torch.complex64, torch.float8_e4m3fn, torch.uint16, torch.bfloat16} <= set(
        every_dtype()
    )
    assert {dtype.itemsize for dtype in every_dtype()} == set(BYTES)


@every_row_and_width
def test_batches(kernel, width):
    dtype = BY_WIDTH[width]
    check(random_bytes(3, 17, 29, dtype=dtype), kernel=kernel)
    check(random_bytes(2, 3, 33, 8, dtype=dtype), kernel=kernel)
    check(random_bytes(2, 1, 3, 2, 5, 7, dtype=dtype), kernel=kernel)
    check(random_bytes(200, 3, 5, dtype=dtype), kernel=kernel)
    between = random_bytes(19, 4, 23, dtype=dtype).transpose(0, 1)  # the batch is between rows and columns
    check(between, kernel=kernel)
    check(random_bytes(3, 4, 19, 23, dtype=dtype).transpose(0, 1), kernel=kernel)
    check(random_bytes(19, 23, dtype=dtype).expand(5, 19, 23), kernel=kernel)


@every_row_and_width
def test_views(kernel, width):
    """Tests slices, odd offsets, and inputs that are column-major or have no unit stride."""
    dtype = BY_WIDTH[width]
    base = random_bytes(90, 110, dtype=dtype)
    for offset in (1, 2, 3, 7):
        check(base[offset : offset + 64, offset : offset + 80], kernel=kernel)
        check(base[offset : offset + 33, 1:100], kernel=kernel)
        check(base.t()[offset : offset + 65, offset:70], kernel=kernel)
    for view in (
        base.t(),
        base[::2, ::3],
        base[:, ::2],
        base[::2],
        base.t()[::3, 1::2],
        base[:, :1],
        base[:1, 3:50],
        base[0].expand(20, 110),  # one row, repeated
        base[:, :1].expand(90, 30),
    ):
        check(view, kernel=kernel)


@every_row_and_width
def test_out(kernel, width):
    """Tests results with a leading dimension, column-major or strided. Memory between elements must not change."""
    dtype = BY_WIDTH[width]
    for rows, cols in [(33, 47), (64, 32), (1, 5), (100, 3)]:
        a = random_bytes(rows, cols, dtype=dtype)
        check(a, torch.zeros(rows, cols, dtype=dtype).t(), kernel=kernel)
        for index in [
            (slice(1, 1 + cols), slice(3, 3 + rows)),
            (slice(0, 2 * cols, 2), slice(0, 3 * rows, 3)),
            (slice(2, 2 + cols), slice(1, 1 + 2 * rows, 2)),
        ]:
            around = torch.zeros(2 * cols + 3, 3 * rows + 5, dtype=dtype)
            check(a, around[index], kernel=kernel)
            around[index] = 0
            assert not bits(around).any()
    batch = random_bytes(3, 9, 14, dtype=dtype)
    check(batch, torch.zeros(14, 3, 9, dtype=dtype).transpose(0, 1), kernel=kernel)
    check(batch, torch.zeros(14, 9, 3, dtype=dtype).permute(2, 0, 1), kernel=kernel)


@every_row
def test_empty(kernel):
    for shape in [(0, 3), (3, 0), (0, 0), (0, 2, 3), (2, 0, 3), (4, 2, 0)]:
        result = fastgemm.transpose(torch.empty(shape), kernel=kernel)
        assert result.shape == torch.empty(shape).mT.shape


@pytest.mark.parametrize("kernel", [name for device, name in ROWS if device == "cpu"])
def test_same_with_any_number_of_threads(kernel):
    a = random_bytes(700, 901, dtype=torch.float32)
    for count in (1, 2, 3):
        with threads(count):
            check(a, kernel=kernel)


@every_device
@every_width
def test_default(width):
    for size in [(1, 1), (5, 7), (300, 200), (1000, 1001)]:
        a = random_bytes(*size, dtype=BY_WIDTH[width])
        assert torch.equal(bits(fastgemm.transpose(a)), bits(a.mT.contiguous()))
