"""Tests the elementwise sum a + alpha * b on all rungs."""

import math

import fastgemm
import pytest
import torch
from fastgemm._errors import COMPLEX_PARTS
from reference import (
    DTYPES,
    FLOATS,
    UNIT_ROUNDOFF,
    accumulator,
    every_device,
    poisoned,
    random_tensor,
    row_id,
    rows,
    threads,
    wrapped,
)
from stopwatch import shortest
from torch import Tensor

ROWS = rows("add")
LEVELS = [1, 2, 4, 5]
every_row = pytest.mark.parametrize(("device", "kernel", "dtype"), ROWS, ids=row_id)
SHAPES = [(1,), (7,), (64,), (1000,), (3, 5), (17, 33), (128, 129), (2, 3, 4, 5), (), (5, 0, 3)]


def exact_sum(a: Tensor, b: Tensor, alpha: float) -> Tensor:
    """The sum in float64, or for integers in their own type, which wraps."""
    if a.dtype.is_floating_point:
        return a.double() + alpha * b.double()
    return wrapped(a.long() + int(alpha) * b.long(), a.dtype)


def assert_sum(result: Tensor, a: Tensor, b: Tensor, alpha: float, what: str) -> None:
    result, a, b = result.cpu(), a.cpu(), b.cpu()
    exact = exact_sum(a, b, alpha)
    assert result.dtype == a.dtype, what
    assert result.shape == exact.shape, what
    if not a.dtype.is_floating_point:
        assert torch.equal(result, exact), what
        return
    # There are four roundings: alpha (to the accumulator's type), the product, the sum, and the result.
    scale = a.double().abs() + abs(alpha) * b.double().abs()
    bound = 4 * UNIT_ROUNDOFF[accumulator(a.dtype)] * scale + UNIT_ROUNDOFF[a.dtype] * exact.abs()
    bound = bound + torch.finfo(a.dtype).smallest_normal * UNIT_ROUNDOFF[a.dtype]
    assert ((result.double() - exact).abs() <= bound).all(), what


def check(a: Tensor, b: Tensor, *, alpha: float = 1, out: Tensor | None = None, **choice: object) -> None:
    if out is None:
        out = poisoned(*torch.broadcast_shapes(a.shape, b.shape), dtype=a.dtype)
    returned = fastgemm.add(a, b, alpha=alpha, out=out, **choice)
    assert returned is out
    shown = f"{choice} alpha={alpha} {tuple(a.shape)}/{a.stride()} + {tuple(b.shape)}/{b.stride()} {a.dtype}"
    assert_sum(out, a, b, alpha, shown)


def alphas(dtype: torch.dtype) -> tuple[float, ...]:
    return (1, -1, 0, 0.5, 2.75) if dtype in FLOATS else (1, -1, 0, 3, 2**31 + 5)


@every_row
def test_shapes_and_alpha(kernel, dtype):
    for shape, alpha in zip(SHAPES, 2 * alphas(dtype), strict=True):
        check(
            random_tensor(*shape, dtype=dtype), random_tensor(*shape, dtype=dtype), alpha=alpha, kernel=kernel
        )


@every_row
def test_large(kernel, dtype):
    a, b = random_tensor(701, 1203, dtype=dtype), random_tensor(701, 1203, dtype=dtype)
    for count in (1, 2):
        with threads(count):
            check(a, b, kernel=kernel)
    check(a, b.t().contiguous().t(), alpha=3, kernel=kernel)


@every_row
def test_broadcasting(kernel, dtype):
    shapes = [((5, 1), (1, 7)), ((3, 4, 5), (5,)), ((1,), (9, 33)), ((2, 1, 4, 1), (3, 1, 6)), ((), (4, 4))]
    for x, y in shapes:
        check(random_tensor(*x, dtype=dtype), random_tensor(*y, dtype=dtype), alpha=2, kernel=kernel)
        check(random_tensor(*y, dtype=dtype), random_tensor(*x, dtype=dtype), alpha=-1, kernel=kernel)


@every_row
def test_strides_and_offsets(kernel, dtype):
    base_a, base_b = random_tensor(60, 70, dtype=dtype), random_tensor(70, 60, dtype=dtype)
    for offset in (1, 3):
        check(base_a[offset:, offset:51], base_b.t()[offset:, offset:51], kernel=kernel)
    check(base_a[::2, ::3], base_b.t()[::2, ::3], kernel=kernel)
    check(base_a.t(), base_b, alpha=2, kernel=kernel)
    check(base_a.view(10, 6, 70).permute(2, 0, 1), base_b.view(70, 10, 6), kernel=kernel)
    around = poisoned(64, 80, dtype=dtype)
    check(base_a[:, :50], base_b.t()[:, :50], out=around[2:62, 5:55], kernel=kernel)
    around[2:62, 5:55] = 0x5A
    assert (around.isnan() | (around == 0x5A)).all()
    check(base_a, base_b.t(), out=poisoned(70, 60, dtype=dtype).t(), kernel=kernel)
    check(base_a, base_b.t(), out=poisoned(120, 210, dtype=dtype)[::2, ::3], kernel=kernel)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("kernel", ["vectorized", "streaming"])
@pytest.mark.parametrize("dtype", [*DTYPES, *COMPLEX_PARTS], ids=row_id)
def test_transposed_operands_have_the_bits_of_contiguous_ones(kernel, dtype):
    """They are added in tiles: of 16 to 64 numbers, of which some are not whole."""

    def numbers(*shape):
        if dtype.is_complex:
            return torch.view_as_complex(random_tensor(*shape, 2, dtype=COMPLEX_PARTS[dtype]))
        return random_tensor(*shape, dtype=dtype)

    x, y = numbers(131, 163), numbers(131, 163)
    row, column, plain = numbers(131), numbers(163, 1), numbers(163, 131)

    def same(found, expected):
        if dtype.is_complex:  # torch.equal does not take complex32
            found, expected = torch.view_as_real(found), torch.view_as_real(expected)
        assert torch.equal(found, expected)

    for a, b in (
        (x.mT, y.mT),
        (x.mT, plain),
        (plain, y.mT),
        (x.mT, row),
        (column, y.mT),
        (x[1:4].mT, y[:3].mT),
        (x.mT, plain.repeat(1, 2)[:, ::2]),
        (x[:126].view(3, 42, 163).mT, y[:42].mT),
    ):
        for alpha in (1, 3):
            found = fastgemm.add(a, b, alpha=alpha, kernel=kernel)
            same(found, fastgemm.add(a.contiguous(), b.contiguous(), alpha=alpha, kernel=kernel))
    same(fastgemm.add_(plain.clone(), x.mT, kernel=kernel), fastgemm.add(plain, x.mT, kernel=kernel))
    same(fastgemm.add_(plain.clone().mT, x, kernel=kernel), fastgemm.add(plain.mT, x, kernel=kernel))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=row_id)
def test_transposed_operands_are_read_in_tiles(dtype):
    """Row by row, 30 times as many cache lines are read: it took 9 times as long."""
    a, b = torch.randn(1024, 1024, dtype=dtype), torch.randn(1024, 1024, dtype=dtype)
    ordinary = shortest(lambda: fastgemm.add(fastgemm.transpose(a), fastgemm.transpose(b)))
    assert shortest(lambda: fastgemm.add(a.mT, b.mT)) < 3 * ordinary


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("kernel", ["vectorized", "streaming"])
@pytest.mark.parametrize("dtype", [*DTYPES, *COMPLEX_PARTS], ids=row_id)
def test_short_rows_and_strides_have_the_bits_of_contiguous_operands(kernel, dtype):
    """Short rows are added in blocks, as one long row. Strided operands and results go through buffers."""

    def numbers(*shape):
        if dtype.is_complex:
            return torch.view_as_complex(random_tensor(*shape, 2, dtype=COMPLEX_PARTS[dtype]))
        return random_tensor(*shape, dtype=dtype)

    def bits(x):  # torch.equal does not take complex32
        return torch.view_as_real(x) if dtype.is_complex else x

    for height, cols in ((1500, 1), (777, 3), (300, 7), (129, 20), (70, 47), (7, 130), (3, 2500)):
        wide = numbers(height, cols + 5)
        for a, b in (
            (numbers(height, cols), numbers(height, 1)),
            (numbers(cols), numbers(height, cols)),
            (numbers(height, 1), numbers(cols)),
            (wide[:, :cols], wide[:, 2 : cols + 2]),
            (numbers(2 * height, 3 * cols)[::2, ::3], numbers(1)),
        ):
            shape = (height, cols)
            plain = a.expand(shape).contiguous(), b.expand(shape).contiguous()
            for alpha in (1, 2):  # exact products, because some sums round them
                expected = bits(fastgemm.add(*plain, alpha=alpha, kernel=kernel))
                assert torch.equal(bits(fastgemm.add(a, b, alpha=alpha, kernel=kernel)), expected)
                for around, inner in (
                    (numbers(height, cols + 2), lambda x: x[:, 1:-1]),
                    (numbers(height, 2 * cols), lambda x: x[:, ::2]),
                    (numbers(3 * cols, 2 * height), lambda x: x.mT[::2, ::3]),
                ):
                    before, out = around.clone(), inner(around)
                    fastgemm.add(a, b, alpha=alpha, out=out, kernel=kernel)
                    assert torch.equal(bits(out.contiguous()), expected)
                    out.copy_(inner(before))
                    assert torch.equal(bits(around), bits(before)), "elements around the result"
                    out.copy_(plain[0])
                    fastgemm.add_(out, b, alpha=alpha, kernel=kernel)
                    assert torch.equal(bits(out.contiguous()), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.complex128], ids=row_id)
def test_short_rows_are_added_in_blocks(dtype):
    """Row by row, a float32 sum took 7 times as long, and one of complex numbers 25 times."""
    a, b = torch.randn(65536, 4, dtype=dtype), torch.randn(65536, 1, dtype=dtype)
    with threads(1):
        ordinary = shortest(lambda: fastgemm.add(a, a))
        assert shortest(lambda: fastgemm.add(a, b)) < 4 * ordinary


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64], ids=row_id)
def test_strided_results_take_no_longer_than_one_by_one(dtype):
    """They were taken for rows of one element, and took 3 times as long."""
    x, y = torch.zeros(512, 1024, dtype=dtype)[:, ::2], torch.ones(512, 512, dtype=dtype)
    with threads(1):
        one_by_one = shortest(lambda: fastgemm.add_(x, y, kernel="naive"))
        assert shortest(lambda: fastgemm.add_(x, y)) < 1.5 * one_by_one


@every_row
def test_in_place_and_out_is_an_operand(kernel, dtype):
    a, b = random_tensor(33, 65, dtype=dtype), random_tensor(33, 65, dtype=dtype)
    x = a.clone()
    assert fastgemm.add_(x, b, alpha=2, kernel=kernel) is x
    assert_sum(x, a, b, 2, "add_")
    x = a.clone()
    fastgemm.add_(x, b[:1], kernel=kernel)
    assert_sum(x, a, b[:1], 1, "add_ with broadcasting")
    x = b.clone()
    fastgemm.add(a, x, alpha=3, out=x, kernel=kernel)
    assert_sum(x, a, b, 3, "out is b")
    x = a.clone()
    fastgemm.add_(x, x, kernel=kernel)
    assert_sum(x, a, a, 1, "a += a")
    x = a.clone()
    fastgemm.add_(x.t(), b.t(), kernel=kernel)
    assert_sum(x, a, b, 1, "add_ into a column-major view")


@pytest.mark.parametrize(("device", "kernel", "dtype"), [r for r in ROWS if r[2] in FLOATS], ids=row_id)
def test_nan_and_infinity(kernel, dtype):
    special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1.5], dtype=dtype).repeat(9)
    a, b = special, special[torch.randperm(45)]
    for alpha in (1, -2, 0):
        result = fastgemm.add(a, b, alpha=alpha, kernel=kernel)
        assert torch.equal(result.double().nan_to_num(7), exact_sum(a, b, alpha).nan_to_num(7))


@every_device
@pytest.mark.parametrize("dtype", DTYPES, ids=row_id)
def test_default_equals_torch_where_torch_rounds_once(dtype):
    a, b = random_tensor(300, 41, dtype=dtype), random_tensor(300, 41, dtype=dtype)
    assert torch.equal(fastgemm.add(a, b), a + b)
