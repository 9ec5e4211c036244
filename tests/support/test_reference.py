"""Tests the checker itself: it must find wrong results."""

import math

import pytest
import torch
from reference import (
    DTYPES,
    FLOATS,
    INTEGERS,
    assert_right,
    expected_gemm,
    poisoned,
    random_tensor,
    result_dtype,
    row_id,
)


def problem(dtype, m=37, n=29, k=53):
    a, b = random_tensor(m, k, dtype=dtype), random_tensor(k, n, dtype=dtype)
    expected = expected_gemm(a, b)
    return expected, expected.value.to(expected.dtype, copy=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=row_id)
def test_accepts_a_right_result(dtype):
    expected, right = problem(dtype)
    assert_right(right, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=row_id)
def test_catches_one_wrong_element(dtype):
    expected, result = problem(dtype)
    i, j = int(torch.randint(37, ())), int(torch.randint(29, ()))
    result[i, j] += 1 if dtype in INTEGERS else 1.0
    with pytest.raises(AssertionError, match=rf"1 of 1073 elements wrong .* first at \({i}, {j}\)"):
        assert_right(result, expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=row_id)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_catches_nan_and_infinity(dtype, value):
    expected, result = problem(dtype)
    result[-1, -1] = value
    with pytest.raises(AssertionError, match="1 of 1073"):
        assert_right(result, expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=row_id)
def test_catches_a_lost_nan(dtype):
    a, b = random_tensor(5, 7, dtype=dtype), random_tensor(7, 3, dtype=dtype)
    a[2, 3] = math.nan
    expected = expected_gemm(a, b)
    assert_right(expected.value.to(dtype), expected)
    with pytest.raises(AssertionError, match="3 of 15"):
        assert_right(expected.value.nan_to_num().to(dtype), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=row_id)
def test_catches_an_unwritten_element(dtype):
    expected, right = problem(dtype)
    result = poisoned(*right.shape, dtype=expected.dtype)
    result[:, :-1] = right[:, :-1]
    with pytest.raises(AssertionError, match="37 of 1073"):
        assert_right(result, expected)


def test_catches_an_error_slightly_above_the_bound():
    expected, _ = problem(torch.float32)
    expected.dtype = torch.float64  # can hold values on both sides of float32's bound
    expected.accumulator = torch.float32
    assert_right(expected.value + 0.99 * expected.bound(), expected)
    with pytest.raises(AssertionError, match=r"1073 of 1073 .* 1\.01 of the bound"):
        assert_right(expected.value + 1.01 * expected.bound(), expected)


def test_catches_fp32_summed_in_half_precision():
    a, b = torch.rand(16, 4096), torch.rand(4096, 16)
    expected = expected_gemm(a, b)
    with pytest.raises(AssertionError):
        assert_right((a.bfloat16() @ b.bfloat16()).float(), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_catches_rounding_twice_too_far(dtype):
    expected, right = problem(dtype)
    above = torch.nextafter(right, torch.tensor(math.inf, dtype=dtype))
    with pytest.raises(AssertionError):
        assert_right(above, expected)


def test_wrong_shape_and_dtype():
    expected, right = problem(torch.float32)
    with pytest.raises(AssertionError, match="shape"):
        assert_right(right.mT, expected)
    with pytest.raises(AssertionError, match="dtype"):
        assert_right(right.double(), expected)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_reference_is_exact_and_wraps(dtype):
    a, b = random_tensor(9, 33, dtype=dtype), random_tensor(33, 8, dtype=dtype)
    c = random_tensor(9, 8, dtype=result_dtype(dtype))
    bits = 8 * c.itemsize
    exact = [
        [
            (-3 * sum(x * y for x, y in zip(row, column, strict=True)) + 5 * z + 2 ** (bits - 1)) % 2**bits
            - 2 ** (bits - 1)
            for column, z in zip(b.mT.tolist(), addends, strict=True)
        ]
        for row, addends in zip(a.tolist(), c.tolist(), strict=True)
    ]
    found = expected_gemm(a, b, c, alpha=-3, beta=5).value
    assert (found.dtype, found.tolist()) == (c.dtype, exact)
