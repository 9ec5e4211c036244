"""Tests float64, float32 and int64 by residues on the simulator: the accuracy of each number of moduli, the tiles
that other kernels compute (float64's tensor cores, planes), and the division of a product into panels."""

import math
import random

import fastgemm
import pytest
import torch
from fastgemm.table import FLOAT64_PRECISIONS
from reference import check_gemm, needs_simulator, simulated_launches
from test_simulator import LAYOUTS, operands
from test_simulator_planes import ALL_ROOM, divided  # noqa: F401  the fixture

pytestmark = needs_simulator

MODULI = (256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181)


# How a product is divided does not depend on the GPU.
on_wgmma = pytest.mark.parametrize("divided", [90], indirect=True, ids=["wgmma"])
on_mma_sync = pytest.mark.parametrize("divided", [89], indirect=True, ids=["mma_sync"])


@pytest.fixture(params=[90, 89], ids=["wgmma", "mma_sync"])
def simulated(request):
    with simulated_launches(capability=request.param):
        yield


def exact(a, b):
    """The product as pairs of float64 that add up to it."""
    high = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
    low = torch.zeros_like(high)
    for k in range(a.shape[1]):
        x, y = a[:, k : k + 1].expand_as(high), b[k : k + 1].expand_as(high)
        product = x * y
        low += _error_of_product(x, y, product)
        total = high + product
        back = total - high
        low += (high - (total - back)) + (product - back)
        high = total
    return high, low


def _error_of_product(x, y, product):
    """Dekker's exact error of a product: x y - product."""
    split = 134217729.0
    x_high = x * split - (x * split - x)
    y_high = y * split - (y * split - y)
    x_low, y_low = x - x_high, y - y_high
    return ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low


def worst_error(result, a, b):
    """The worst error relative to the norms of row and column."""
    high, low = exact(a, b)
    norms = a.norm(dim=1)[:, None] * b.norm(dim=0)[None]
    return (((result - high) - low).abs() / norms).max().item()


@pytest.mark.parametrize("precision", FLOAT64_PRECISIONS)
def test_error_of_so_many_moduli(simulated, precision):
    """Operands are scaled to integers with norms of at least R / 2, each with an error of at most one half.
    Together the error is at most 2 sqrt(K) / R, plus the rounding of the result. From 16 moduli on only the
    rounding remains."""
    k, moduli = 150, int(precision.removeprefix("crt"))
    a, b = operands(20, 30, k, torch.float64, random.choice(LAYOUTS))
    a, b = a * 2.0 ** torch.randint(-99, 99, (20, 1)), b * 2.0 ** torch.randint(-99, 99, (1, 30))
    result = fastgemm.matmul(a, b, kernel="crt", precision=precision)
    room = math.sqrt(math.prod(MODULI[:moduli]) / 2)
    error = worst_error(result, a, b)
    assert error <= 2 * math.sqrt(k) / room + 2.0**-53
    if moduli == 14:
        assert error > 2.0**-58, "14 moduli have fewer bits than this result"


def test_more_accurate_than_sums_in_float64(simulated):
    a, b = operands(40, 50, 600, torch.float64, random.choice(LAYOUTS))
    assert worst_error(fastgemm.matmul(a, b, kernel="crt"), a, b) < 0.5 * worst_error(a @ b, a, b)


def test_wide_exponents_are_summed_in_float64(simulated):
    """With ieee, errors are componentwise. Residues are not accurate if large elements of a row are multiplied by
    small ones of a column."""
    a, b = torch.zeros(3, 40, dtype=torch.float64), torch.zeros(40, 5, dtype=torch.float64)
    a[:, :20], a[:, 20:] = 1.0, 2.0**-60
    b[:20], b[20:] = 2.0**-70, 3.0
    b[:20, 4] = 0
    assert check_gemm(a, b, kernel="crt")[0, 4] == 60 * 2.0**-60
    assert fastgemm.matmul(a, b, kernel="crt", precision="crt14")[0, 4] != 60 * 2.0**-60
    powers = torch.ldexp(torch.ones(3, 40, dtype=torch.float64), torch.randint(-300, 300, (3, 40)))
    assert check_gemm(a * powers, b, kernel="crt").isfinite().all()


def test_special_values_and_extreme_rows(simulated):
    a, b = operands(140, 300, 70, torch.float64, random.choice(LAYOUTS))
    a[3] = 0
    a[4], a[5] = a[4] * 1e-280, a[5] * 1e250  # squares of norms leave the range: float64 sums
    b[:, 7], b[:, 260] = 0, b[:, 260] * 1e-30
    check_gemm(a, b, kernel="crt")
    a[130, 5], a[131, 6], b[9, 270] = math.nan, math.inf, -math.inf
    a[6] = 5e-324
    check_gemm(a, b, kernel="crt")
    check_gemm(a, b, kernel="crt", precision="crt16")


@on_wgmma
def test_panels(divided):  # noqa: F811
    """Tests rows and columns of panels. No tile's result depends on the panels."""
    a, b = operands(300, 520, 60, torch.float64, random.choice(LAYOUTS))
    c = torch.randn(300, 520, dtype=torch.float64)
    run = {"alpha": 2, "beta": -3, "in_place": True, "kernel": "crt"}
    whole, launches = divided(ALL_ROOM, a, b, c, **run)
    assert launches.count("cut_residues") == launches.count("join_residues") == 1
    # The residues of A fit for the rows of two tiles, those of B and C for less than the columns of one.
    room = 15 * 128 * 256
    parts, launches = divided(room, a, b, c, **run)
    assert launches.count("cut_residues") == launches.count("join_residues") == 2 * 3
    assert whole.equal(parts)
    a[290, 3] = math.inf  # blocks share the sums of a float64 tile in a way that depends on the panel
    divided(room, a, b, c, **run)


def test_int64_is_exact_over_the_whole_range(simulated):
    a, b = (torch.randint(-(2**63), 2**63 - 1, shape, dtype=torch.int64) for shape in ((66, 300), (300, 270)))
    a[:5], b[:, :5] = -(2**63), -(2**63)
    check_gemm(a, b, kernel="crt")
    c = torch.randint(-(2**63), 2**63 - 1, (66, 270), dtype=torch.int64)
    check_gemm(a, b.mT.contiguous().mT, c, alpha=-3, beta=7, kernel="crt")


def test_int64_of_a_long_k_takes_another_modulus():
    """Operands have the largest magnitudes, so that 18 moduli would wrap."""
    with simulated_launches():
        a = torch.full((2, 11200), -(2**63), dtype=torch.int64)
        a[1] = 2**63 - 1
        b = a.mT.contiguous()
        b[7, 1] = 5
        check_gemm(a, b, kernel="crt")


def float32_operands(m, n, k):
    return operands(m, n, k, torch.float32, random.choice(LAYOUTS))


def float32_errors(result, a, b):
    """Componentwise errors, in units of float32's rounding."""
    magnitudes = a.double().abs() @ b.double().abs()
    return ((result.double() - a.double() @ b.double()).abs() / magnitudes).max().item() * 2**24


def test_float32_is_more_accurate_than_sums_in_float32(simulated):
    """The only error is the rounding of the result, which is small in a sum of random signs."""
    a, b = float32_operands(40, 50, 600)
    a, b = a * 2.0 ** torch.randint(-60, 60, (40, 1)), b * 2.0 ** torch.randint(-60, 60, (1, 50))
    assert float32_errors(check_gemm(a, b, kernel="crt"), a, b) < 0.5 * float32_errors(a @ b, a, b)
    assert float32_errors(fastgemm.matmul(a, b, kernel="crt"), a, b) <= 0.5


def test_float32_tiles_of_wide_exponents_are_left_to_planes(simulated):
    """bf16x6 computes only the tiles in which large elements of a row are multiplied by small ones of a column."""
    a, b = float32_operands(150, 300, 100)
    a, b = a.clone(), b.clone()
    a[:3, :50], a[:3, 50:] = 1.0, 2.0**-40
    b[:50, :4], b[50:, :4] = 2.0**-50, 3.0
    result, planes = check_gemm(a, b, kernel="crt"), fastgemm.matmul(a, b, kernel="bf16x6")
    assert result[:128, :256].equal(planes[:128, :256])
    assert not result[128:, :256].equal(planes[128:, :256])
    assert not result[:128, 256:].equal(planes[:128, 256:])


def test_float32_special_values_and_extreme_rows(simulated):
    a, b = float32_operands(140, 300, 90)
    a, b = a.clone(), b.clone()
    a[3] = 0
    a[4], a[5] = a[4] * 1e-38, a[5] * 1e36
    b[:, 7], b[:, 260] = 0, b[:, 260] * 1e-30
    check_gemm(a, b, kernel="crt")
    a[130, 5], a[131, 6], b[9, 270] = math.nan, math.inf, -math.inf
    a[6] = 1e-45
    check_gemm(a, b, kernel="crt")
    c = torch.randn(140, 300)
    check_gemm(a, b, c, alpha=-2, beta=3, kernel="crt")


@on_mma_sync
def test_float32_panels(divided):  # noqa: F811
    """There are panels of residues, and in them panels of planes for the remaining tiles."""
    a, b = float32_operands(300, 520, 96)
    a, b = a.clone(), b.clone()
    c = torch.randn(300, 520)
    b[:48, 300] *= 2.0**-60  # planes compute only some columns of the second and third tile
    a[130, 48:] *= 2.0**-60
    run = {"alpha": 2, "beta": -3, "in_place": True, "kernel": "crt"}
    whole, launches = divided(ALL_ROOM, a, b, c, **run)
    assert launches.count("cut_residues") == launches.count("bf16x6_rest") == 1
    parts, launches = divided(8 * 128 * 256, a, b, c, **run)
    assert launches.count("join_residues") == 2 * 3
    assert launches.count("bf16x6_rest") > 6
    assert whole.equal(parts)


@pytest.mark.parametrize(
    ("divided", "dtype"), [(90, torch.float32), (89, torch.float64)], indirect=["divided"], ids=str
)
def test_a_panel_without_tiles_for_residues_leaves_them_to_the_next(divided, dtype):  # noqa: F811
    """A's residues are made once for a row of panels, and B's once for a column, for any set of tiles."""
    moduli = 15 if dtype == torch.float64 else 8
    a, b = torch.randn(100, 128, dtype=dtype), torch.randn(128, 512, dtype=dtype)
    b[5, :256] = math.inf
    _, launches = divided(moduli * 128 * 256, a, b, kernel="crt")
    assert launches.count("join_residues") == 2
    a, b = torch.randn(256, 128, dtype=dtype), torch.randn(128, 200, dtype=dtype)
    a[:128, 3] = math.nan
    _, launches = divided(moduli * 128 * 128, a, b, kernel="crt")
    assert launches.count("join_residues") == 2


@pytest.mark.parametrize(("simulated", "k"), [(90, 1000), (89, 4096)], indirect=["simulated"])
def test_float32_roundings_of_equal_elements_add_up(simulated, k):
    """Equal elements are small relative to their row's norm if the row has an outlier. With columns of one sign
    their roundings add up: at most half a unit each, in rows with a norm of 2^30 units."""
    a, b = torch.full((4, k), 0.7654321), torch.rand(k, 5)
    a *= torch.tensor([1.0, 1.1, 1.3, 1.7])[:, None]
    a[:, 7] *= 15 * math.sqrt(k)
    b[7] = 0
    units = a.norm(dim=1).max() / a[:, 0].max() / 2.0**30  # error of an element, relative to the element
    assert float32_errors(fastgemm.matmul(a, b, kernel="crt"), a, b) <= 2**24 * units.item() + 0.5


def test_float32_of_a_long_k_is_summed_in_parts():
    a, b = torch.randn(3, 2**14 + 40), torch.randn(2**14 + 40, 5)
    with simulated_launches(count=True) as launches:
        result = check_gemm(a, b, kernel="crt")
    assert [launch["kernel"] for launch in launches].count("join_residues") == 2
    assert float32_errors(result, a, b) < 1
