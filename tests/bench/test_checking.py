"""Tests the check of results before they are timed: right results pass, wrong ones do not."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from fastgemm.bench import Add, Gemm, Transpose, check, instantiate
from fastgemm.bench.checking import MAX_PRODUCTS, Reference, integer_product
from fastgemm.bench.problems import ARITHMETIC, LAYOUTS, random_matrix, torch_precision

DTYPES = list(ARITHMETIC.values())
OTHERS = [Transpose(33, 65), Transpose(7, 5, torch.complex128, 3), Add(33, 65), Gemm(9, 8, 7, batch=3)]
OTHERS += [Gemm(9, 8, 7, torch.int8, batch=3)]


@pytest.mark.parametrize("allocate", [False, True])
@pytest.mark.parametrize(
    "problem",
    [*(Gemm(33, 65, 47, *pair) for pair in zip(DTYPES, itertools.cycle(LAYOUTS), strict=False)), *OTHERS],
    ids=str,
)
def test_check_accepts_this_library_and_torch(problem, allocate):
    instance = instantiate(problem, allocate=allocate)
    reference = Reference(instance)
    for call in (instance.ours(), instance.ours(level=1), instance.torch()):
        outcome = check(call, reference)
        assert outcome.right and outcome.worst <= 1, outcome.message


def spoil_one(out):
    out[3, 5] += 1


def spoil_by_nan(out):
    out[3, 5] = math.nan if out.dtype.is_floating_point else out[3, 5] ^ 1


def spoil_columns(out):
    out[:, 16:] = 0


@pytest.mark.parametrize("spoil", [spoil_one, spoil_by_nan, spoil_columns, None])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_check_catches(dtype, spoil):
    """``spoil`` None: nothing is written, so the poison remains."""
    instance = instantiate(Gemm(20, 30, 40, dtype))
    right, out = instance.ours(), instance.out

    def wrong():
        if spoil:
            right()
            spoil(out)
        return out

    right()
    outcome = check(wrong, Reference(instance))
    assert not outcome.right and "elements wrong" in outcome.message


def test_check_catches_a_transpose_that_is_a_copy():
    instance = instantiate(Transpose(32, 32))
    assert not check(instance.copy(), Reference(instance)).right


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_check_allows_one_rounding_of_a_narrow_result(dtype):
    instance = instantiate(Gemm(64, 64, 64, dtype))
    a, b = instance.operands
    exact = a.double() @ b.double()
    unit = torch.finfo(dtype).eps

    def off_by(units):
        return lambda: instance.out.copy_(exact * (1 + units * unit))

    reference = Reference(instance)
    assert check(off_by(0), reference).right
    assert not check(off_by(0.75), reference).right, "1.5 roundings and that of the result"


def test_check_of_a_huge_product_takes_a_sample_of_its_rows(monkeypatch):
    monkeypatch.setattr("fastgemm.bench.checking.MAX_PRODUCTS", 1000)
    instance = instantiate(Gemm(500, 8, 8))
    reference = Reference(instance)
    outcome = check(instance.ours(), reference)
    assert outcome.right and outcome.rows_checked < outcome.rows == 500
    assert {0, 499} <= set(reference.index.tolist())
    assert MAX_PRODUCTS > 4096**3  # every row is checked at the published sizes

    def wrong():
        instance.ours()()
        instance.out[499] = 0
        return instance.out

    assert "(499, 0)" in check(wrong, reference).message


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64], ids=str)
def test_integer_product_wraps_like_its_type(dtype):
    a, b = random_matrix(17, 17, dtype=dtype), random_matrix(17, 17, dtype=dtype)
    got = integer_product(a, b)
    half = 2 ** (8 * got.itemsize - 1)
    exact = [[sum(map(int.__mul__, row, column)) for column in b.mT.tolist()] for row in a.tolist()]
    assert got.tolist() == [[(v + half) % (2 * half) - half for v in row] for row in exact]


def in_planes(x, dtype):
    high = x.to(dtype).float()
    return high, ((x - high) * 2**11).to(dtype).float() / 2**11


def to_tf32(x):
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def products_of(precision, a, b):
    """The products that a precision adds, and the same with one product missing."""
    if precision == "tf32":
        a, b = to_tf32(a), to_tf32(b)
        return [(a, b)], [(a[:, 1:], b[1:])]
    dtype = {"fp16x3": torch.float16, "bf16x3": torch.bfloat16}[precision]
    (a, a_low), (b, b_low) = in_planes(a, dtype), in_planes(b, dtype)
    return [(a, b), (a, b_low), (a_low, b)], [(a, b), (a_low, b)]


@pytest.mark.parametrize("precision", ["tf32", "fp16x3", "bf16x3"])
def test_check_knows_what_a_precision_leaves_out(precision):
    exact = instantiate(Gemm(64, 64, 2048))
    instance = replace(exact, problem=replace(exact.problem, precision=precision))
    right, wrong = (
        lambda pairs=pairs: exact.out.copy_(sum(x.double() @ y.double() for x, y in pairs))
        for pairs in products_of(precision, *exact.operands)
    )
    outcome = check(right, Reference(instance))
    assert outcome.right and outcome.worst < 0.7
    assert not check(wrong, Reference(instance)).right
    assert precision != "tf32" or not check(right, Reference(exact)).right


def test_torch_precision_is_set_to_that_of_the_problem():
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    for precision, of_torch in (("tf32", "tf32"), ("ieee", "ieee"), ("fp16x3", "ieee"), (None, before)):
        with torch_precision(Gemm(1, 1, 1, precision=precision)):
            assert matmul.fp32_precision == of_torch
        assert matmul.fp32_precision == before
