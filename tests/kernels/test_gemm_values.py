"""Tests NaN, infinities, the limits of types, and integers that wrap, in every GEMM row of the kernel table."""

import itertools
import math
import random

import fastgemm
import torch
from fastgemm import _introspect
from reference import FLOATS, INTEGERS, check_gemm, random_tensor, result_dtype
from test_gemm import OWN_ROWS, every, only, operands

every_float_row = every(only(FLOATS))
every_integer_row = every(only(INTEGERS))


def spreads_nan(kernel, dtype):
    """Whether a row may write NaN into rows of the result that should have none. oneDNN's AMX kernels compute
    torch's bfloat16 products on a CPU and do this in 61 to 74 of 200 products of 40 x 33 x 70. With
    ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16, it happens in none of 200 (torch 2.13)."""
    on_cpu = torch.get_default_device().type == "cpu"
    return (
        kernel == "torch" and dtype == torch.bfloat16 and on_cpu and _introspect.cpu_properties()["amx_bf16"]
    )


@every_float_row
def test_nan_and_infinity_land_where_ieee_puts_them(kernel, dtype):
    values = [math.nan, math.inf, -math.inf]
    for (m, n, k), value in zip(
        [(9, 11, 7), (40, 70, 33), (20, 30, 97)], random.sample(values, 3), strict=True
    ):
        a, b = operands(m, n, k, dtype)
        a[random.randrange(m), random.randrange(k)] = value
        b[random.randrange(k), random.randrange(n)] = value
        if spreads_nan(kernel, dtype):
            assert not fastgemm.matmul(a, b, kernel=kernel).isfinite().all()
            continue
        result = check_gemm(a, b, kernel=kernel)
        assert result is None or not result.isfinite().all()
        a, b = operands(m, n, k, dtype)
        a[3], b[:, 5] = math.inf, 0  # infinity times zero
        if spreads_nan(kernel, dtype):
            assert fastgemm.matmul(a, b, kernel=kernel)[3, 5].isnan()
            continue
        result = check_gemm(a, b, kernel=kernel)
        assert result is None or result[3, 5].isnan()


@every(only(FLOATS, OWN_ROWS))
def test_nan_in_c(kernel, dtype):
    a, b = operands(9, 17, 85, dtype)
    c = random_tensor(9, 17, dtype=dtype)
    c[4, 6], c[0, 0] = math.nan, -math.inf
    check_gemm(a, b, c, kernel=kernel)


@every(only(FLOATS, OWN_ROWS))
def test_alpha_0_reads_no_operand(kernel, dtype):
    """As in BLAS, NaN and infinity in a and b have no effect, but those in c have."""
    for batch in ((), (3,)):
        a, b = random_tensor(*batch, 9, 5, dtype=dtype), random_tensor(*batch, 5, 17, dtype=dtype)
        a[..., 2, 1], b[..., 3, 4] = math.inf, math.nan
        c = random_tensor(9, 17, dtype=dtype)
        c[4, 6] = math.nan
        check_gemm(a, b, alpha=0, kernel=kernel)
        check_gemm(a, b, c, alpha=0, beta=-2, kernel=kernel)
        check_gemm(a.mT, b.mT, alpha=0, trans_a=True, trans_b=True, kernel=kernel)
        with torch.no_grad():
            scattered = a.repeat_interleave(2, -1).repeat_interleave(2, -2)[..., ::2, ::2]
        check_gemm(scattered, b, c, alpha=0, beta=0, kernel=kernel)


@every_float_row
def test_huge_and_tiny_values(kernel, dtype):
    info = torch.finfo(dtype)
    a, b = operands(17, 20, 1, dtype)
    big = torch.full((17, 1), info.max, dtype=dtype)
    check_gemm(big, torch.full((1, 20), 1.0, dtype=dtype), kernel=kernel)
    check_gemm(big, torch.full((1, 20), -2.0, dtype=dtype), kernel=kernel)  # overflows to -infinity
    check_gemm(a * info.max**0.5, b * info.max**0.4, kernel=kernel)
    if dtype != torch.bfloat16:  # vdpbf16ps and oneDNN treat subnormal bfloat16 numbers as zero
        tiny = (torch.randn(17, 3, dtype=torch.float64) * info.smallest_normal).to(dtype)
        check_gemm(tiny, random_tensor(3, 20, dtype=dtype), kernel=kernel)
    check_gemm(a * info.smallest_normal**0.5, b * info.smallest_normal**0.5, kernel=kernel)


@every_integer_row
def test_integers_wrap_and_use_their_full_range(kernel, dtype):
    info = torch.iinfo(dtype)
    for value_a, value_b in itertools.product((info.min, info.max, -1), repeat=2):
        a, b = torch.full((33, 200), value_a, dtype=dtype), torch.full((200, 17), value_b, dtype=dtype)
        check_gemm(a, b, kernel=kernel)
    # 2**31 < 140000 * 2**14: int8 products wrap as well
    value = max(-128, info.min)
    check_gemm(
        torch.full((2, 140_000), value, dtype=dtype),
        torch.full((140_000, 3), value, dtype=dtype),
        kernel=kernel,
    )


@every(only(INTEGERS, OWN_ROWS))
def test_integer_alpha_beta_wrap(kernel, dtype):
    a, b = operands(9, 33, 40, dtype)
    c = random_tensor(9, 33, dtype=result_dtype(dtype))
    for alpha, beta in [(2**31, 1), (-(2**31), 2**31), (2**32 + 1, 2**40 + 3), (7, -(2**33) - 1)]:
        check_gemm(a, b, c, alpha=alpha, beta=beta, kernel=kernel)


def test_float16_while_subnormal_float32_is_flushed():
    """The smallest numbers of float16 are normal in float32, so torch.set_flush_denormal does not change them."""
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    x = x[x.isfinite()]
    square, exact, one = x[:1600].view(40, 40), x.float(), torch.ones(1, 1, dtype=x.dtype)
    identity = torch.eye(40, dtype=x.dtype)
    torch.set_flush_denormal(True)
    try:
        for level in range(1, 7):
            column = fastgemm.matmul(x[:, None], one, level=level, out_dtype=torch.float32)
            row = fastgemm.matmul(one, x[None], level=level, out_dtype=torch.float32)
            assert torch.equal(column[:, 0], exact) and torch.equal(row[0], exact), level
            for product in (square, identity), (identity, square.mT):
                result = fastgemm.matmul(*product, level=level)
                assert torch.equal(result, square if product[0] is square else square.mT), level
        tiny = torch.full((3, 37), 3e-5, dtype=x.dtype)
        assert torch.equal(fastgemm.add(tiny, torch.zeros_like(tiny)), tiny)
        assert (fastgemm.quantize_fp8(tiny, "row")[1] > 0).all()
    finally:
        torch.set_flush_denormal(False)
