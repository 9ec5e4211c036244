"""Tests integer operands of mixed types, and of types that are widened before the product."""

import itertools

import fastgemm
import pytest
import torch
from fastgemm import _introspect
from fastgemm._introspect import take_last_gemm_kernel
from pairwise import pairs
from reference import (
    INTEGERS,
    every_device,
    integer_product,
    levels,
    needs_simulator,
    poisoned,
    random_tensor,
    wrapped,
)
from torch import Tensor

BYTES = (torch.uint8, torch.int8, torch.bool)
MIXED = [(x, y) for x in BYTES for y in BYTES if x != y]
EXTREMES = {
    torch.uint8: (0, 255),
    torch.int8: (-128, 127),
    torch.int16: (-(2**15), 2**15 - 1),
    torch.bool: (0, 1),
}


def draw(*shape: int, dtype: torch.dtype) -> Tensor:
    if dtype == torch.bool:
        return random_tensor(*shape, dtype=torch.uint8) > 127
    return random_tensor(*shape, dtype=dtype)


def columns(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT


def exact(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    as_digits = [x.to(torch.int16) if x.itemsize == 1 else x for x in (a.cpu(), b.cpu())]
    return wrapped(integer_product(*as_digits), dtype)


def check(a: Tensor, b: Tensor, dtype: torch.dtype, **options: object) -> None:
    result = fastgemm.matmul(a, b, **options)
    assert result.dtype == dtype
    assert torch.equal(result.cpu(), exact(a, b, dtype)), (a.dtype, b.dtype, options)


@every_device
@pytest.mark.parametrize(("x", "y"), [*MIXED, (torch.bool, torch.bool)], ids=str)
def test_bytes_mix_into_int32(device, x, y):
    for level in (None, *levels("gemm", device)):
        check(draw(33, 41, dtype=x), draw(41, 50, dtype=y), torch.int32, level=level)
        check(columns(draw(64, 300, dtype=x)), columns(draw(300, 64, dtype=y)), torch.int32, level=level)
    for m, n, k in [(1, 1, 1), (5, 300, 7)]:
        check(draw(m, k, dtype=x), columns(draw(k, n, dtype=y)), torch.int32)
    check(draw(3, 1, 9, 17, dtype=x), draw(2, 17, 5, dtype=y), torch.int32)
    check(draw(9, 17, dtype=x).expand(4, 9, 17), draw(4, 17, 5, dtype=y), torch.int32)
    check(draw(9, 34, dtype=x)[:, ::2], draw(34, 12, dtype=y)[::2, ::2], torch.int32)
    check(draw(17, dtype=x), draw(17, dtype=y), torch.int32)


@every_device
@pytest.mark.parametrize(("x", "y"), MIXED, ids=str)
def test_mixed_bytes_at_their_extremes(device, x, y):
    for value_a in EXTREMES[x]:
        for value_b in EXTREMES[y]:
            a, b = torch.full((9, 300), value_a, dtype=x), torch.full((300, 17), value_b, dtype=y)
            check(a, b, torch.int32)
    # 255 * 128 * 70000 > 2**31
    a, b = torch.full((2, 70_000), EXTREMES[x][1], dtype=x), torch.full((70_000, 3), EXTREMES[y][0], dtype=y)
    check(a, b, torch.int32)


@every_device
def test_int16_gives_int64_or_int32(device):
    for level in (None, *levels("gemm", device)):
        for m, n, k in [(1, 1, 1), (33, 50, 41), (5, 300, 7)]:
            a, b = draw(m, k, dtype=torch.int16), draw(k, n, dtype=torch.int16)
            check(a, b, torch.int64, level=level, out_dtype=torch.int64)
            check(columns(a), columns(b), torch.int64, level=level)
            check(a, b, torch.int32, level=level, out_dtype=torch.int32)
    least = torch.full((3, 70_000), -(2**15), dtype=torch.int16)
    assert (fastgemm.matmul(least, least.mT) == 70_000 * 2**30).all()  # int32 would wrap
    assert (fastgemm.matmul(least, least.mT, out_dtype=torch.int32) == 70_000 * 2**30 % 2**32 - 2**32).all()
    check(draw(3, 1, 9, 17, dtype=torch.int16), draw(2, 17, 5, dtype=torch.int16), torch.int64)


KINDS = [(torch.uint8, torch.int8, torch.int32), (torch.bool, torch.bool, torch.int32)]
KINDS += [(torch.int16, torch.int16, torch.int64)]


@every_device
@pytest.mark.parametrize(("x", "y", "kind"), KINDS, ids=str)
def test_widened_operands_with_c_and_out(device, x, y, kind):
    a, b, c = draw(17, 33, dtype=x), draw(33, 9, dtype=y), random_tensor(17, 9, dtype=kind)
    product = exact(a, b, torch.int64)
    for alpha, beta in [(1, 1), (-3, 2), (2, 0), (0, 5)]:
        want = wrapped(alpha * product + beta * c.cpu().long(), kind)
        out = poisoned(9, 17, dtype=kind).t()
        assert fastgemm.gemm(a, b, c, alpha=alpha, beta=beta, out=out) is out
        assert torch.equal(out.cpu(), want)
        transposed = fastgemm.gemm(
            a.mT.contiguous(), b.mT.contiguous(), c, alpha=alpha, beta=beta, trans_a=True, trans_b=True
        )
        assert torch.equal(transposed.cpu(), want)
    for m, n, k in [(0, 3, 2), (3, 2, 0), (0, 0, 0)]:
        empty = fastgemm.matmul(torch.zeros(m, k, dtype=x), torch.zeros(k, n, dtype=y))
        assert empty.dtype == kind
        assert torch.equal(empty, torch.zeros(m, n, dtype=kind))


SCALES = [2**53 + 1, -(2**53) - 1, 2**62, -(2**63), 2**63 - 1, 1e16, -(2.0**63), 2**31, -3]
OPERANDS = [(t, t, None) for t in INTEGERS] + [
    (torch.int16, torch.int16, torch.int32),
    (torch.uint8, torch.int8, None),
    (torch.bool, torch.int8, None),
]


@every_device
@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize(("x", "y", "out_dtype"), OPERANDS, ids=str)
def test_scales_are_exact(device, x, y, out_dtype, scale):
    """The ops take doubles, which hold integers up to 2^53."""
    a, b = draw(3, 5, 17, dtype=x).to(device), draw(17, 6, dtype=y).to(device)
    product = fastgemm.matmul(a, b, out_dtype=out_dtype)
    c = draw(3, 5, 6, dtype=product.dtype).to(device)
    factors = itertools.cycle([(scale, scale), (scale, None), (1, scale)])
    for level, (alpha, beta) in zip((None, *levels("gemm", device)), factors, strict=False):
        expected = product.long() * int(alpha) + c.long() * int(beta or 0)
        added = None if beta is None else c
        try:
            result = fastgemm.gemm(a, b, added, alpha=alpha, beta=beta, level=level, out_dtype=out_dtype)
        except RuntimeError as refused:
            assert level == 7, refused  # for some types a library has no scales
            continue
        assert torch.equal(result, wrapped(expected, product.dtype)), (alpha, beta, level)
    out = c.clone()
    fastgemm.gemm(a, b, out, alpha=scale, beta=scale, out_dtype=out_dtype, out=out)
    assert torch.equal(out, wrapped((product.long() + c.long()) * int(scale), out.dtype))


@every_device
@pytest.mark.parametrize("other", [torch.float32, torch.int32])
def test_a_scale_beyond_doubles_hides_no_wrong_type(device, other):
    a, b = draw(5, 7, dtype=torch.int64).to(device), draw(7, 6, dtype=torch.int64).to(device)
    out = torch.empty(5, 6, dtype=torch.int64, device=device)
    for options in {}, {"out": out}:
        with pytest.raises(ValueError, match="b has dtype"):
            fastgemm.gemm(a, b.to(other), alpha=2**60 + 1, **options)
        with pytest.raises(ValueError, match="c has dtype"):
            fastgemm.gemm(a, b, out.to(other), beta=2**60 + 1, **options)


@every_device
@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_scales_of_sums_are_exact(device, dtype, scale):
    a, b = draw(5, 7, dtype=dtype).to(device), draw(5, 7, dtype=dtype).to(device)
    expected = wrapped(a.long() + int(scale) * b.long(), dtype)
    assert torch.equal(fastgemm.add(a, b, alpha=scale), expected)
    assert torch.equal(fastgemm.add_(a, b, alpha=scale), expected)


@pytest.mark.parametrize("x", [*INTEGERS, torch.bool], ids=str)
@pytest.mark.parametrize("y", [*INTEGERS, torch.bool], ids=str)
def test_meta_tensors_have_the_types_of_real_ones(x, y):
    def outcome(device: str, **options: object) -> object:
        a, b = (torch.ones(4, 4, dtype=t, device=device) for t in (x, y))
        try:
            return fastgemm.matmul(a, b, **options).dtype
        except (ValueError, TypeError) as error:
            return type(error)

    for out_dtype in (None, torch.int32, torch.int64, torch.int16, torch.float32):
        assert outcome("meta", out_dtype=out_dtype) == outcome("cpu", out_dtype=out_dtype), out_dtype


EXTREME_SIZES = [(130, 200, 333), (33, 50, 41), (144, 272, 96)]


def from_extremes(*shape: int, dtype: torch.dtype) -> Tensor:
    values = torch.tensor([*EXTREMES[dtype], 0, 1, EXTREMES[dtype][1] - 1], dtype=dtype)
    return values[torch.randint(len(values), shape)]


def rows_that_take(product: str) -> list[str]:
    names = _introspect.product_kernels()[product]
    assert names
    return names


def test_meta_tensors_know_which_kernels_take_products_as_they_are():
    def outcome(x: torch.dtype, y: torch.dtype, **options: object) -> object:
        return fastgemm.matmul(*(torch.ones(4, 4, dtype=t, device="meta") for t in (x, y)), **options).dtype

    for kernel in rows_that_take("uint8 with int8"):
        assert outcome(torch.uint8, torch.int8, kernel=kernel) == torch.int32
        assert outcome(torch.int8, torch.bool, kernel=kernel) == torch.int32
    for kernel in rows_that_take("int16 to int64"):
        assert outcome(torch.int16, torch.int16, kernel=kernel) == torch.int64
        assert outcome(torch.int16, torch.int16, kernel=kernel, out_dtype=torch.int32) == torch.int32
    for x, y in [(torch.uint8, torch.int8), (torch.int16, torch.int16)]:
        with pytest.raises(RuntimeError, match=r"int8x10.*cannot run gemm"):
            outcome(x, y, kernel="int8x10")


BY_TENSOR_CORES = {
    "uint8 with int8": (torch.uint8, torch.int8, torch.int32),
    "int8 with uint8": (torch.int8, torch.uint8, torch.int32),
    "int16 to int64": (torch.int16, torch.int16, torch.int64),
}


@needs_simulator
@pytest.mark.parametrize("gpu", ["h200", "rtx 4090"])
@pytest.mark.parametrize("product", BY_TENSOR_CORES)
def test_products_by_the_tensor_cores(gpu, product):
    """Every row that supports the types must multiply them without widening, in every layout."""
    x, y, wide = BY_TENSOR_CORES[product]
    with fastgemm.simulate(gpu):
        for kernel, ((m, n, k), left, right) in itertools.product(
            rows_that_take(product), pairs(EXTREME_SIZES, (False, True), (False, True))
        ):
            if gpu != "h200" and kernel.startswith("wgmma"):
                continue
            kind = torch.int32 if left else wide  # int16 has two rows
            a, b = from_extremes(m, k + 3, dtype=x)[:, 3:], from_extremes(k, n, dtype=y)
            a, b = columns(a) if left else a, columns(b) if right else b
            options = {"kernel": kernel} | ({"out_dtype": kind} if x == torch.int16 else {})
            check(a, b, kind, **options)
            assert take_last_gemm_kernel() == kernel
            result, c = poisoned(n, m, dtype=kind).t(), random_tensor(m, n, dtype=kind)
            fastgemm.gemm(a, b, c, alpha=-3, beta=2, out=result, **options)
            assert torch.equal(result, wrapped(exact(a, b, torch.int64) * -3 + 2 * c.long(), kind))


@needs_simulator
def test_levels_that_take_products_as_they_are_and_those_that_widen():
    a, b = draw(40, 50, dtype=torch.int16), draw(50, 60, dtype=torch.int16)
    u, s = draw(40, 50, dtype=torch.uint8), draw(50, 60, dtype=torch.int8)
    with fastgemm.simulate("h200"):
        for left, right, product in [(a, b, "int16 to int64"), (u, s, "uint8 with int8")]:
            for level in (None, 6):
                fastgemm.matmul(left, right, level=level)
                assert take_last_gemm_kernel() in rows_that_take(product)
            fastgemm.matmul(left, right, level=2)
            assert take_last_gemm_kernel() == "tiled"
            fastgemm.matmul(left, right, kernel="narrow")
            assert take_last_gemm_kernel() == "narrow"
        with pytest.raises(RuntimeError, match="cannot run here"):
            fastgemm.matmul(u, s, kernel="int8x10")


def test_int64_is_exact_where_torch_is():
    """Numbers are from the full range. torch's product on a CPU wraps, too."""
    a, b = draw(65, 33, dtype=torch.int64), draw(33, 47, dtype=torch.int64)
    assert torch.equal(fastgemm.matmul(a, b), a @ b)
