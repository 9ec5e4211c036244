"""Products by planes on GPUs without wgmma: what test_simulator.py asks of them on an H200, by mma.sync."""

from __future__ import annotations

import math
import random

import fastgemm
import pytest
import test_simulator
import torch
from fastgemm._explain.run import load_simulator
from reference import (
    UNIT_ROUNDOFF,
    by_name,
    check_gemm,
    exact_product,
    largest_relative_error,
    needs_simulator,
    random_tensor,
    result_dtype,
)
from test_simulator import LAYOUTS, operands

pytestmark = needs_simulator

SCHEMES = {
    **dict.fromkeys(("bf16x6", "bf16x3", "fp16x3"), torch.float32),
    "int8x10": torch.int32,
    "int16x4": torch.int16,
}
every_scheme = pytest.mark.parametrize("kernel", SCHEMES)
float_schemes = pytest.mark.parametrize(
    "kernel", [name for name, dtype in SCHEMES.items() if dtype == torch.float32]
)


@pytest.fixture
def simulated():
    """An RTX 4090 of three multiprocessors, so that blocks take several turns, some of them at shared tiles."""
    simulator = load_simulator()
    simulator.begin(count=False, raise_problems=True, max_blocks=0, multiprocessors=3, capability=89)
    yield
    simulator.end()


@every_scheme
@pytest.mark.parametrize("layout", LAYOUTS, ids=["NN", "NT", "TN", "TT"])
def test_layouts(simulated, kernel, layout):
    test_simulator.test_gemm(kernel, SCHEMES[kernel], layout)


@every_scheme
def test_several_tiles(simulated, kernel):
    test_simulator.test_gemm_in_several_tiles(kernel, SCHEMES[kernel])


@every_scheme
def test_scalars_slices_and_out(simulated, kernel):
    test_simulator.test_gemm_scalars_slices_and_out(kernel, SCHEMES[kernel])


@every_scheme
@pytest.mark.parametrize("size", [(130, 120, 700), (300, 130, 600), (257, 385, 290)], ids=str)
def test_tiles_that_blocks_share(simulated, kernel, size):
    """One tile for all blocks, whole tiles before shared ones, and parts that straddle tiles."""
    dtype = SCHEMES[kernel]
    a, b = operands(*size, dtype, random.choice(LAYOUTS), slack=random.choice((0, 3)))
    check_gemm(a, b, kernel=kernel)
    c = random_tensor(*size[:2], dtype=result_dtype(dtype))
    check_gemm(a, b, c, alpha=2, beta=-3, out=c, kernel=kernel)


@every_scheme
def test_batches(simulated, kernel):
    dtype = SCHEMES[kernel]
    a, b = random_tensor(3, 144, 96, dtype=dtype), random_tensor(3, 96, 272, dtype=dtype)
    c = random_tensor(3, 144, 272, dtype=result_dtype(dtype))
    check_gemm(a, b, kernel=kernel)
    check_gemm(a[0], b, c, beta=-1, out=c, kernel=kernel)
    check_gemm(a, b[0], c[0, 0], alpha=-1, beta=2, kernel=kernel)


@float_schemes
def test_tiny_values(simulated, kernel):
    test_simulator.test_planes_of_tiny_values(kernel)


@pytest.mark.parametrize("k", [100, 700])
def test_in_range(simulated, k):
    test_simulator.test_bf16x6_in_range("bf16x6", k)


@pytest.mark.parametrize("kernel", ["bf16x6", "bf16x3"])
@pytest.mark.parametrize(("small", "largest"), [(1e-34, 1.0), (1e-40, 1e30), (1e-44, 3e38)])
def test_small_numbers_beside_larger_ones(simulated, kernel, small, largest):
    test_simulator.test_small_numbers_beside_larger_ones(kernel, small, largest)


@pytest.mark.parametrize("beta", [0, -3])
def test_long_k(simulated, beta):
    test_simulator.test_bf16x6_of_long_k("bf16x6", beta)


@float_schemes
@pytest.mark.parametrize("beta", [0, -3])
def test_special_values_in_any_quarter_of_a_strip(simulated, kernel, beta):
    """Other warps of the strip leave it, too, for c may be the result, and is read again."""
    m, n, k = 200, 300, 96
    a, b, c = torch.randn(m, k), torch.randn(k, n), torch.randn(m, n)
    a[17, 40], a[150, 3] = math.inf, math.nan
    for column in (5, 40, 127, 128, 250):
        b[7, column] = -math.inf
    check_gemm(a, b, c if beta else None, alpha=2, beta=beta, out=c, kernel=kernel)
    check_gemm(a[:1], b, kernel=kernel)


def test_one_element_that_is_not_finite(simulated):
    """Sums that overflow in float32 or in a plane alone."""
    a, b = torch.randn(64, 96), torch.randn(96, 130)
    a[33], b[:, 70] = 0, 0
    a[33, 5], b[5, 70], b[5, 71] = 3.4e38, 0.5, 2.0
    c = torch.randn(64, 130)
    check_gemm(a, b, c, alpha=1, beta=2, out=c, kernel="bf16x6")


def test_integers_wrap(simulated):
    edges = torch.tensor([-(2**31), 2**31 - 1, -1, 0, 1, 2**16, -(2**24)], dtype=torch.int32)
    a, b = edges[torch.randint(7, (140, 333))], edges[torch.randint(7, (333, 150))]
    check_gemm(a, b, kernel="int8x10")


def test_sums_of_long_k_err_no_more_than_float32_sums(simulated):
    """Each stage is promoted, and rounds the sum so far once."""
    a, b = torch.rand(130, 8192), torch.rand(8192, 30)
    right, u = exact_product(a, b), UNIT_ROUNDOFF[torch.float32]
    ours = largest_relative_error(fastgemm.matmul(a, b, kernel="bf16x6"), right)
    assert ours <= 1.5 * largest_relative_error(a @ b, right) + 4 * u


@every_scheme
def test_the_same_bits_on_every_gpu(kernel):
    """Tiles that no blocks share are summed in one order, however many blocks there are."""
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
