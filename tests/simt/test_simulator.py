"""Every CUDA kernel of the table on the simulator, with all its checks on, against float64.

A problem that the simulator finds (an access out of bounds, misaligned, uninitialized, racing or in flight; a
barrier that not all reach; a missing wait) raises RuntimeError and fails the test. Sizes are small and odd; the
persistent kernels see three multiprocessors, so that even here their blocks take several turns.
"""

from __future__ import annotations

import itertools
import math
import random
from concurrent.futures import ThreadPoolExecutor

import fastgemm
import pytest
import torch
from fastgemm.table import PRECISIONS
from reference import (
    FLOATS,
    PRECISION,
    SENTINEL,
    UNIT_ROUNDOFF,
    assert_right,
    by_name,
    check_gemm,
    exact_product,
    expected_gemm,
    largest_relative_error,
    needs_simulator,
    poisoned,
    random_tensor,
    result_dtype,
    row_id,
    simulated_rows,
)

pytestmark = needs_simulator

every_gemm_row = pytest.mark.parametrize(("kernel", "dtype"), simulated_rows("gemm"), ids=row_id)
LAYOUTS = list(itertools.product((False, True), repeat=2))
every_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=["NN", "NT", "TN", "TT"])


@pytest.fixture(autouse=True)
def on_the_simulator():
    with fastgemm.simulate():
        yield


def operands(m, n, k, dtype, layout, slack=0):
    """a (m, k) and b (k, n); transposed views as the layout says; ``slack`` columns beyond each matrix's own."""

    def view(rows, cols, transposed):
        shape = (cols, rows) if transposed else (rows, cols)
        x = random_tensor(shape[0], shape[1] + slack, dtype=dtype)[:, slack // 2 : slack // 2 + shape[1]]
        return x.t() if transposed else x

    return view(m, k, layout[0]), view(k, n, layout[1])


def test_every_kernel_of_the_table_is_simulated():
    for op in ("gemm", "transpose", "add"):
        assert len({kernel for kernel, _ in simulated_rows(op)}) >= 5, op


def least_k(kernel, dtype):
    """What a row that rejects short sums needs besides."""
    return 80 if kernel in ("bf16x6", "crt") and dtype == torch.float32 else 0


@every_gemm_row
@every_layout
def test_gemm(kernel, dtype, layout):
    for m, n, k in [(1, 1, 1), (7, 1, 3), (1, 9, 40), (13, 17, 19), (33, 65, 37), (61, 67, 71)]:
        check_gemm(*operands(m, n, least_k(kernel, dtype) + k, dtype, layout), kernel=kernel)


def test_what_rows_reject():
    def says(reason, m, n, k, dtype, kernel):
        a, b = torch.empty(m, 1, dtype=dtype).expand(m, k), torch.empty(1, n, dtype=dtype).expand(k, n)
        with pytest.raises(RuntimeError, match=f"'{kernel}' cannot run here: {reason}.*levels that can: .*5"):
            fastgemm.matmul(a, b, kernel=kernel)

    says("k is below 80", 200, 200, 79, torch.float32, "bf16x6")
    says("k is above 1,677,696", 1, 1, 1677697, torch.int32, "int8x10")
    says("C has more columns", 1, 64 * 65535 + 1, 8, torch.int8, "small_tile")


@every_gemm_row
def test_gemm_in_several_tiles(kernel, dtype):
    """More block tiles than multiprocessors, whole ones and cut ones, with and without 16-byte accesses."""
    for size, layout in zip(
        [(130, 257, 67), (250, 500, 44), (64, 128, 272), (144, 272, 96)], LAYOUTS, strict=True
    ):
        slack, (m, n, k) = random.choice((0, 0, 3, 16)), size
        check_gemm(*operands(m, n, least_k(kernel, dtype) + k, dtype, layout, slack), kernel=kernel)


@every_gemm_row
def test_gemm_scalars_slices_and_out(kernel, dtype):
    layout = random.choice(LAYOUTS)
    k = least_k(kernel, dtype) + 41
    a, b = operands(35, 50, k, dtype, layout, slack=random.choice((1, 3, 8)))
    result = result_dtype(dtype)
    c = random_tensor(35, 50, dtype=result)
    check_gemm(a, b, c, alpha=-3, beta=2, kernel=kernel)
    check_gemm(a, b, c[:1], alpha=2, kernel=kernel)  # a row that broadcasts
    in_place = c.clone()
    check_gemm(a, b, in_place, alpha=1, beta=-1, out=in_place, kernel=kernel)
    check_gemm(a, b, out=poisoned(50, 35, dtype=result).t(), kernel=kernel)
    around = poisoned(35, 60, dtype=result)
    check_gemm(a, b, out=around[:, 5:55], kernel=kernel)
    untouched = torch.cat((around[:, :5], around[:, 55:]), dim=1)
    assert untouched.isnan().all() if result.is_floating_point else (untouched == SENTINEL).all()
    if dtype in (torch.float16, torch.bfloat16):
        check_gemm(a, b, out_dtype=torch.float32, kernel=kernel)


ROUNDS_TO_TF32 = [kernel for kernel, precision in PRECISION.items() if precision == "tf32"]


@pytest.mark.parametrize("kernel", ["bf16x6", "bf16x6_fused", "bf16x3", "fp16x3"])
def test_planes_of_tiny_values(kernel):
    a, b = operands(35, 50, 97, torch.float32, random.choice(LAYOUTS), slack=random.choice((0, 3)))
    check_gemm(a * 2.0**-90, b * 2.0**-30, kernel=kernel)


SIX_PRODUCTS = pytest.mark.parametrize("kernel", ["bf16x6", "bf16x6_fused"])


@SIX_PRODUCTS
@pytest.mark.parametrize("k", [100, 700])
def test_bf16x6_in_range(kernel, k):
    """Rows of tiny values keep all their bits, and what overflows in bf16 or in sums is what float32 has."""
    a, b = torch.randn(60, k), torch.randn(k, 200)
    a[1], a[2], a[3], a[4], a[5] = a[1] * 1e-30, a[2] * 1e-38, a[3] * 1e-43, a[4].abs() * 1e30, 0
    b[:, 1], b[:, 2], b[:, 3], b[:, 4] = b[:, 1] * 1e-30, b[:, 2].abs() * 1e30, b[:, 3] * 1e-38, 0
    a[5, 3] = 3.4e38
    check_gemm(a, b, kernel=kernel)
    check_gemm(b.t(), a.t(), kernel=kernel)


@pytest.mark.parametrize("kernel", ["bf16x6", "bf16x6_fused", "bf16x3"])
@pytest.mark.parametrize("largest", [1.0, 1e30, 3e38])
@pytest.mark.parametrize("small", [1e-34, 1e-36, 1e-40, 1e-44])
def test_small_numbers_beside_larger_ones(kernel, small, largest):
    """The larger ones meet zeros, and the small ones decide; in rows of A, in columns of B, and in both."""
    a, b = torch.randn(40, 96), torch.randn(96, 30)
    a[::4, ::2], a[::4, 1::2] = largest, a[::4, 1::2] * small
    b[::2], b[1::2] = 0, b[1::2] * 1e20
    check_gemm(a, b, kernel=kernel)
    check_gemm(b.t(), a.t(), kernel=kernel)
    a, b = torch.randn(40, 96), torch.randn(96, 30)
    a[:, ::2], a[:, 1::2] = a[:, ::2] * small, a[:, 1::2] * 1e20
    b[::2], b[1::2] = b[::2] * 1e20, b[1::2] * small
    check_gemm(a, b, kernel=kernel)


@SIX_PRODUCTS
@pytest.mark.parametrize("beta", [0, -3])
def test_bf16x6_of_long_k(kernel, beta):
    """Sums of long k are cut into parts, which are added in the workspace."""
    a, b, c = torch.randn(3, 17000), torch.randn(17000, 5), torch.randn(3, 5)
    check_gemm(a, b, c if beta else None, alpha=2, beta=beta, out=c, kernel=kernel)
    a[0, 3], a[1, 16999] = math.inf, math.nan
    check_gemm(a, b, c if beta else None, alpha=2, beta=beta, out=c, kernel=kernel)


@every_layout
@pytest.mark.parametrize("gpu", ["h200", "a100"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16], ids=str)
def test_small_tile_of_whole_tiles(dtype, gpu, layout):
    """Both operands, one of them, and none of whole tiles; k that is cut; by wgmma and by mma.sync."""

    def check():
        with fastgemm.simulate(gpu):
            for m, n, k in [(64, 128, 256), (64, 100, 128), (33, 192, 128), (128, 64, 700), (64, 64, 2048)]:
                a, b = operands(m, n, k, dtype, layout, slack=random.choice((0, 3, 16)))
                c = random_tensor(m, n, dtype=result_dtype(dtype))
                check_gemm(a, b, kernel="small_tile")
                check_gemm(a, b, c, alpha=-1, beta=2, kernel="small_tile")

    with ThreadPoolExecutor(1) as other_thread:  # simulations do not nest
        other_thread.submit(check).result()


@every_layout
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [(20, 300, 5000), (300, 9, 800), (16, 8000, 250), (5, 28000, 130)], ids=str)
def test_skinny_on_many_multiprocessors(size, dtype, layout):
    """Tiles that blocks share, of which they have one stage or two, and for each block one or two of its own."""

    def check():
        with fastgemm.simulate("h200"):
            a, b = operands(*size, dtype, layout, slack=random.choice((0, 0, 3, 16)))
            c = random_tensor(size[0], size[1], dtype=result_dtype(dtype))
            check_gemm(a, b, c, alpha=-1, beta=2, kernel="skinny")

    with ThreadPoolExecutor(1) as other_thread:  # simulations do not nest
        other_thread.submit(check).result()


@every_layout
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize(
    "size", [(3, 2, 60000), (2, 5, 49999), (1, 1, 4097), (1000, 8, 40), (16, 333, 1)], ids=str
)
def test_narrow_on_many_multiprocessors(size, dtype, layout):
    """Blocks that share k, of which the last has less; threads along rows only, along k only, and both."""

    def check():
        with fastgemm.simulate("h200"):
            a, b = operands(*size, dtype, layout, slack=random.choice((0, 0, 3, 16)))
            c = random_tensor(size[0], size[1], dtype=result_dtype(dtype))
            check_gemm(a, b, c, alpha=-1, beta=2, kernel="narrow")

    with ThreadPoolExecutor(1) as other_thread:  # simulations do not nest
        other_thread.submit(check).result()


@every_layout
@pytest.mark.parametrize("size", [(8192, 1, 8200), (1, 8192, 8200)], ids=str)
def test_narrow_adds_short_chains(size, layout):
    """Of 512 numbers one after another, then of those sums: 4.5 u in 28 runs, and 9 u with chains of 1024."""
    m, n, k = size
    a = torch.rand(k, m).t() if layout[0] else torch.rand(m, k)
    b = torch.rand(n, k).t() if layout[1] else torch.rand(k, n)
    result = fastgemm.matmul(a, b, kernel="narrow")
    assert largest_relative_error(result, exact_product(a, b)) <= 6 * UNIT_ROUNDOFF[torch.float32]


@every_layout
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float32], ids=str)
def test_gemm_of_whole_units(dtype, layout):
    """Rows of whole 16 bytes everywhere: the tensor memory accelerator reads all matrices where they are."""
    run = {"kernel": "wgmma_specialized"}
    result = result_dtype(dtype)
    for m, n, k in [(16, 16, 16), (144, 272, 96), (272, 144, 160), (48, 1040, 48), (336, 336, 1008)]:
        a, b = operands(m, n, k, dtype, layout, slack=random.choice((0, 16)))
        check_gemm(a, b, **run)
        c = random_tensor(m, n, dtype=result)
        check_gemm(a, b, c, alpha=-3, beta=2, **run)
        in_place = c.clone()
        check_gemm(a, b, in_place, alpha=2, beta=-1, out=in_place, **run)
    a, b = random_tensor(3, 144, 48, dtype=dtype), random_tensor(3, 48, 272, dtype=dtype)
    c = random_tensor(3, 144, 272, dtype=result)
    check_gemm(a, b, c, beta=1, **run)
    check_gemm(a, b[0], c, beta=3, **run)
    if dtype == torch.bfloat16:
        check_gemm(a, b, c.float(), beta=1, out_dtype=torch.float32, **run)


@pytest.mark.parametrize("beta", [0, -3])
@pytest.mark.parametrize("kernel", ["bf16x6_fused", "batched"])
def test_batches_of_special_values(kernel, beta):
    a, b, c = torch.randn(20, 33, 36), torch.randn(20, 36, 40), torch.randn(20, 33, 40)
    a[3, 32, 35], a[7, 0, 0], b[9, 5, 39], b[11, 0, 0] = math.inf, math.nan, -math.inf, 3.4e38
    check_gemm(a, b, c if beta else None, alpha=2, beta=beta, kernel=kernel)


@every_layout
@pytest.mark.parametrize("size", [(250, 190, 200), (60, 251, 700)], ids=str)
def test_bf16x6_fused_with_tall_tiles(size, layout):
    """Three tiles of 256 rows, of A or of columns of B, and one whose k three blocks share."""
    a, b = operands(*size, torch.float32, layout, slack=random.choice((0, 0, 3, 16)))
    c = torch.randn(size[0], size[1])
    check_gemm(a, b, kernel="bf16x6_fused")
    a[-1, 0] = math.inf
    check_gemm(a, b, c, alpha=-1, beta=2, kernel="bf16x6_fused")


@SIX_PRODUCTS
def test_short_sums_are_exact(kernel):
    """All 24 bits of both operands count, in every layout of the planes."""
    x = torch.randint(1, 2**24, (90, 90)).float()  # bf16x6 leaves sums below 80 to level 5
    for a in (x, x.t()):
        assert (fastgemm.matmul(a, torch.eye(90), kernel=kernel) == a).all()
        assert (fastgemm.matmul(torch.eye(90), a, kernel=kernel) == a).all()


@pytest.mark.parametrize("kernel", ["bf16x6", "bf16x3", "fp16x3", "bf16x6_fused", "wgmma_specialized"])
def test_batches_that_share_c(kernel):
    """c stands in the same memory for all matrices of the batch, or is the result's own."""
    run = by_name(kernel, torch.float32)
    a, b = torch.randn(3, 144, 96), torch.randn(3, 96, 272)
    check_gemm(a, b, torch.randn(272), beta=2, **run)
    check_gemm(a, b, torch.randn(144, 272), beta=2, **run)
    check_gemm(a, b, torch.randn(3, 144, 271)[..., :1], alpha=-1, beta=0.5, **run)
    c = torch.randn(3, 144, 272)
    check_gemm(a, b, c, beta=-1, out=c, **run)


@every_layout
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float32], ids=str)
def test_gemm_of_rows_that_begin_anywhere(dtype, layout):
    """Operands and c are copied; boxes inside C and over its edges are stored row by row."""
    run = {"kernel": "wgmma_specialized"}
    result = result_dtype(dtype)
    m, n, k = 150, 335, 77
    a, b = operands(m, n, k, dtype, layout, slack=random.choice((0, 1, 2)))
    check_gemm(a, b, **run)
    check_gemm(a, b, out=poisoned(m, n + 2, dtype=result)[:, 1:-1], **run)
    wide = random_tensor(n, 3 * n, dtype=result)
    for c in (
        wide[:m, :n],
        wide[:m, 1 : n + 1],
        wide[: 2 * m : 2, ::3],
        wide[:n, :m].t(),
        wide[:m, :1],
        wide[:1, :n],
    ):
        check_gemm(a, b, c, alpha=-3, beta=2, **run)
    check_gemm(a, b, out=poisoned(n, m, dtype=result).t(), **run)
    if dtype == torch.bfloat16:
        check_gemm(a, b, wide[:m, :n].float(), beta=1, out_dtype=torch.float32, **run)


@pytest.mark.parametrize("kernel", ROUNDS_TO_TF32)
def test_tf32_is_asked_for_and_rounds_to_nearest(kernel):
    a = torch.full((16, 16), 1 + 2**-11 + 2**-12)
    assert (fastgemm.matmul(a, torch.eye(16), kernel=kernel, precision="tf32") == 1 + 2**-10).all()
    for other in ("ieee", "bf16x3"):
        with pytest.raises(RuntimeError, match=r'cannot run here: .*precision="tf32"'):
            fastgemm.matmul(a, a, kernel=kernel, precision=other)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_level_6_has_every_precision(precision):
    a, b = random_tensor(20, 30, dtype=torch.float32), random_tensor(30, 10, dtype=torch.float32)
    check_gemm(a, b, level=6, precision=precision)


@pytest.mark.parametrize("kernel", ["bf16x3", "fp16x3"])
def test_less_than_ieee_is_asked_for(kernel):
    a = torch.randn(16, 16)
    for other in ("ieee", "tf32", "bf16x6"):
        with pytest.raises(RuntimeError, match=f'cannot run here: .*"{kernel}" alone'):
            fastgemm.matmul(a, a, kernel=kernel, precision=other)


@every_gemm_row
def test_gemm_batches_and_empty(kernel, dtype):
    k = least_k(kernel, dtype) + 20
    a, b = random_tensor(3, 9, k, dtype=dtype), random_tensor(3, k, 33, dtype=dtype)
    check_gemm(a, b, kernel=kernel)
    check_gemm(a, b[0], kernel=kernel)
    check_gemm(a[:, :, :0], b[:, :0], kernel=kernel)
    check_gemm(a[:, :0], b, kernel=kernel)
    check_gemm(*operands(130, 400, 0, dtype, (False, False)), kernel=kernel)  # a wave of tiles, and some more


@pytest.mark.parametrize(
    ("kernel", "dtype"), [r for r in simulated_rows("gemm") if r[1] in FLOATS], ids=row_id
)
def test_gemm_nan_and_infinity(kernel, dtype):
    k = least_k(kernel, dtype) + 23
    a, b = random_tensor(40, k, dtype=dtype), random_tensor(k, 37, dtype=dtype)
    a[3, 5], a[17, 22], b[0, 36], b[7, 0] = math.inf, math.nan, -math.inf, math.nan
    choice = by_name(kernel, dtype)
    expected = expected_gemm(a, b, precision=choice.get("precision"))
    assert_right(fastgemm.matmul(a, b, **choice), expected, kernel)
