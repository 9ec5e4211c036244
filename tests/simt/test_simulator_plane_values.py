"""Tests products by planes of float32 and of integers: values that no plane can hold, sums that overflow, and
tiles that blocks share, with wgmma (an H200) and with mma.sync (an RTX 4090)."""

import math

import fastgemm
import pytest
import torch
from pairwise import pairs
from reference import (
    UNIT_ROUNDOFF,
    by_name,
    check_gemm,
    exact_product,
    largest_relative_error,
    needs_simulator,
    random_tensor,
    result_dtype,
    row_id,
    simulated_launches,
)
from test_simulator import LAYOUTS, every_layout, operands

pytestmark = needs_simulator

F32 = torch.float32
SCHEMES = {
    **dict.fromkeys(("bf16x6", "bf16x3", "fp16x3"), F32),
    "int8x10": torch.int32,
    "int16x4": torch.int16,
}
SIX_PRODUCTS = ["bf16x6", "bf16x6_fused"]
FLOAT_SCHEMES = [*SIX_PRODUCTS, "bf16x3", "fp16x3"]
every_scheme = pytest.mark.parametrize("kernel", SCHEMES)
six_products = pytest.mark.parametrize("kernel", SIX_PRODUCTS)


@pytest.fixture(params=[90, 89], ids=["wgmma", "mma_sync"])
def simulated(request):
    """Simulates three multiprocessors, so that blocks process several tiles and share some."""
    with simulated_launches(capability=request.param):
        yield


# --- what no plane holds


@pytest.mark.parametrize("kernel", FLOAT_SCHEMES)
def test_tiny_values(simulated, kernel):
    a, b = operands(35, 50, 97, F32, (False, True), slack=3)
    check_gemm(a * 2.0**-90, b * 2.0**-30, kernel=kernel)


@six_products
def test_six_products_in_range(simulated, kernel):
    """Rows of tiny values keep all their bits. Overflow in bf16 or in sums gives float32's results."""
    for k in (100, 700):
        a, b = torch.randn(60, k), torch.randn(k, 200)
        a[1], a[2], a[3], a[4], a[5] = a[1] * 1e-30, a[2] * 1e-38, a[3] * 1e-43, a[4].abs() * 1e30, 0
        b[:, 1], b[:, 2], b[:, 3], b[:, 4] = b[:, 1] * 1e-30, b[:, 2].abs() * 1e30, b[:, 3] * 1e-38, 0
        a[5, 3] = 3.4e38
        check_gemm(a, b, kernel=kernel)
        check_gemm(b.t(), a.t(), kernel=kernel)


@pytest.mark.parametrize("kernel", ["bf16x6", "bf16x6_fused", "bf16x3"])
def test_small_numbers_beside_larger_ones(simulated, kernel):
    """Large numbers in rows of A, in columns of B or in both are multiplied by zeros, so the small ones decide."""
    for small, largest in ((1e-34, 1.0), (1e-36, 3e38), (1e-40, 1e30), (1e-44, 3e38), (1e-44, 1.0)):
        a, b = torch.randn(40, 96), torch.randn(96, 30)
        a[::4, ::2], a[::4, 1::2] = largest, a[::4, 1::2] * small
        b[::2], b[1::2] = 0, b[1::2] * 1e20
        check_gemm(a, b, kernel=kernel)
        check_gemm(b.t(), a.t(), kernel=kernel)
        a, b = torch.randn(40, 96), torch.randn(96, 30)
        a[:, ::2], a[:, 1::2] = a[:, ::2] * small, a[:, 1::2] * 1e20
        b[::2], b[1::2] = b[::2] * 1e20, b[1::2] * small
        check_gemm(a, b, kernel=kernel)


@six_products
def test_short_sums_are_exact(simulated, kernel):
    """All 24 bits of both operands count, in every layout of the planes."""
    x = torch.randint(1, 2**24, (90, 90)).float()  # bf16x6 rejects sums below 80, so level 5 computes them
    for a in (x, x.t()):
        assert (fastgemm.matmul(a, torch.eye(90), kernel=kernel) == a).all()
        assert (fastgemm.matmul(torch.eye(90), a, kernel=kernel) == a).all()


def test_integers_wrap(simulated):
    edges = torch.tensor([-(2**31), 2**31 - 1, -1, 0, 1, 2**16, -(2**24)], dtype=torch.int32)
    a, b = edges[torch.randint(7, (140, 333))], edges[torch.randint(7, (333, 150))]
    check_gemm(a, b, kernel="int8x10")


# --- sums that are not finite


def test_long_k(simulated):
    """Long sums are split into parts, which are added in the workspace; by bf16x6 in test_segments_in_groups."""
    a, b, c = torch.randn(3, 17000), torch.randn(17000, 5), torch.randn(3, 5)
    a[0, 3], a[1, 16999] = math.inf, math.nan
    check_gemm(a, b, c, alpha=2, beta=-3, out=c, kernel="bf16x6_fused")


@pytest.mark.parametrize("beta", [0, -3])
@pytest.mark.parametrize("kernel", FLOAT_SCHEMES)
def test_special_values_in_any_quarter_of_a_strip(simulated, kernel, beta):
    """Other warps of the strip do not store either, because c may be the result, and c is read again."""
    m, n, k = 200, 300, 96
    a, b, c = torch.randn(m, k), torch.randn(k, n), torch.randn(m, n)
    a[17, 40], a[150, 3] = math.inf, math.nan
    for column in (5, 40, 127, 128, 250):
        b[7, column] = -math.inf
    check_gemm(a, b, c if beta else None, alpha=2, beta=beta, out=c, kernel=kernel)
    check_gemm(a[:1], b, kernel=kernel)


@six_products
def test_one_element_that_is_not_finite(simulated, kernel):
    """Sums that overflow in float32, or only in a plane."""
    a, b = torch.randn(64, 96), torch.randn(96, 130)
    a[33], b[:, 70] = 0, 0
    a[33, 5], b[5, 70], b[5, 71] = 3.4e38, 0.5, 2.0
    c = torch.randn(64, 130)
    check_gemm(a, b, c, alpha=1, beta=2, out=c, kernel=kernel)


@pytest.mark.parametrize("beta", [0, -3])
@pytest.mark.parametrize("kernel", ["bf16x6_fused", "batched"])
def test_batches_of_special_values(simulated, kernel, beta):
    a, b, c = torch.randn(20, 33, 36), torch.randn(20, 36, 40), torch.randn(20, 33, 40)
    a[3, 32, 35], a[7, 0, 0], b[9, 5, 39], b[11, 0, 0] = math.inf, math.nan, -math.inf, 3.4e38
    check_gemm(a, b, c if beta else None, alpha=2, beta=beta, kernel=kernel)
    check_gemm(a[:4], b[3], c[:4] if beta else None, alpha=2, beta=beta, kernel=kernel)


# --- tiles that blocks share, and batches


@pytest.mark.parametrize(
    ("simulated", "kernel", "size", "layout"),
    pairs([90, 89], SCHEMES, [(130, 120, 700), (300, 130, 600), (257, 385, 290)], LAYOUTS),
    indirect=["simulated"],
    ids=row_id,
)
def test_tiles_that_blocks_share(simulated, kernel, size, layout):
    """One tile for all blocks, whole tiles before shared ones, and parts that cross tiles."""
    dtype = SCHEMES[kernel]
    a, b = operands(*size, dtype, layout, slack=3 * layout[0])
    c = random_tensor(*size[:2], dtype=result_dtype(dtype))
    check_gemm(a, b, c, alpha=2, beta=-3, out=c, kernel=kernel)


@pytest.mark.parametrize("kernel", [*SCHEMES, "bf16x6_fused", "wgmma_specialized"])
def test_batches_that_share(kernel):
    """All matrices of a batch share an operand or c, or c is the result itself."""
    dtype = SCHEMES.get(kernel, F32)
    a, b = random_tensor(3, 72, 96, dtype=dtype), random_tensor(3, 96, 144, dtype=dtype)
    c = random_tensor(3, 72, 144, dtype=result_dtype(dtype))
    for capability in (90,) if kernel == "wgmma_specialized" else (90, 89):
        with simulated_launches(capability=capability):
            check_gemm(a, b, c[0, 0], beta=2, kernel=kernel)
            check_gemm(a, b[0], c[0], alpha=-1, beta=2, kernel=kernel)
            check_gemm(a, b, c[..., :1], alpha=-1, beta=3, kernel=kernel)
            check_gemm(a[0], b, c, beta=-1, out=c, kernel=kernel)


# --- bf16x6_fused


@pytest.mark.parametrize(
    ("simulated", "size", "layout", "slack"),
    pairs([90, 89], [(250, 190, 200), (60, 251, 700), (16, 300, 64), (1, 9, 3)], LAYOUTS, (0, 3, 16)),
    indirect=["simulated"],
    ids=row_id,
)
def test_fused_with_every_width_of_tiles(simulated, size, layout, slack):
    """Tall tiles of A or of columns of B, k whole and in parts."""
    a, b = operands(*size, F32, layout, slack)
    c = torch.randn(*size[:2])
    check_gemm(a, b, kernel="bf16x6_fused")
    a[-1, 0] = math.inf
    check_gemm(a, b, c, alpha=-1, beta=2, out=c, kernel="bf16x6_fused")


@pytest.mark.parametrize(("columns", "transposed", "k"), pairs([5, 20, 64, 130], [False, True], [40, 600]))
def test_fused_takes_turns(columns, transposed, k):
    """More tiles than fit three multiprocessors, with k whole and in parts."""
    a, b = torch.randn(1000, k), torch.randn(k, columns)
    with simulated_launches(capability=89):
        check_gemm(*((b.t(), a.t()) if transposed else (a, b)), kernel="bf16x6_fused")


@every_layout
def test_fused_sums_as_by_wgmma(layout):
    """Products of the same planes are added in the same order, so the bits are equal."""
    for m, n, k in [(33, 130, 61), (200, 60, 63)]:
        a, b = operands(m, n, k, F32, layout)
        with fastgemm.simulate("h200"):
            by_wgmma = fastgemm.matmul(a, b, kernel="bf16x6_fused")
        with fastgemm.simulate("a100"):
            assert fastgemm.matmul(a, b, kernel="bf16x6_fused").equal(by_wgmma)


# --- accuracy and reproducibility


@pytest.mark.parametrize(
    ("multiprocessors", "layout"), [(3, LAYOUTS[0]), (128, LAYOUTS[0]), (3, LAYOUTS[3])], ids=row_id
)
def test_fused_is_accurate(multiprocessors, layout):
    """Operands are positive. Here a sequential sum would have an error of 60 units."""
    a, b = (x.abs() for x in operands(40, 50, 5000, F32, layout))
    with simulated_launches(multiprocessors, 89):
        result = fastgemm.matmul(a, b, kernel="bf16x6_fused")
    assert largest_relative_error(result, exact_product(a, b)) <= 8 * UNIT_ROUNDOFF[F32]


def test_sums_of_long_k_round_once_a_stage():
    """Each stage of 32 is promoted. The error of 256 roundings grows like a square root (8 to 11.4 units seen)."""
    k = 8192
    a, b = torch.rand(130, k), torch.rand(k, 30)
    with simulated_launches(capability=89):
        ours = largest_relative_error(fastgemm.matmul(a, b, kernel="bf16x6"), exact_product(a, b))
    assert ours <= math.sqrt(k / 32) * UNIT_ROUNDOFF[F32]


@every_scheme
def test_the_same_bits_on_every_gpu(kernel):
    """A tile of a single block is summed in a fixed order, which does not depend on the number of blocks."""
    dtype = SCHEMES[kernel]
    a, b = random_tensor(200, 130, dtype=dtype), random_tensor(130, 300, dtype=dtype)
    results = []
    for gpu in ("A100", "L40S", "RTX 4090"):
        with fastgemm.simulate(gpu):
            results.append(fastgemm.matmul(a, b, **by_name(kernel, dtype)))
    assert results[0].equal(results[1]) and results[0].equal(results[2])


@every_scheme
def test_copies_and_fragments_have_no_bank_conflicts(kernel):
    dtype = SCHEMES[kernel]
    choice = {name: x for name, x in by_name(kernel, dtype).items() if name != "out_dtype"}
    report = fastgemm.explain("gemm", shape=(256, 256, 512), dtype=dtype, gpu="RTX 4090", **choice)
    assert report.error is None and not report.problems
    (launch,) = (launch for launch in report.launches if launch.kernel == kernel)
    for what in ("cp.async", "ldmatrix"):
        sites = [site for site in launch.sites if site.kind == what and site.space == "shared"]
        assert sites and sum(site.requests for site in sites) > 0
        assert sum(site.wavefronts for site in sites) == sum(site.ideal_wavefronts for site in sites)
