"""Every row that runs on all GPUs since sm_80, on a simulated RTX 4090: no wgmma, and 99 KB of shared memory for a
block, beyond which the simulator refuses a launch. What these rows do on Hopper is in test_simulator.py.
"""

from __future__ import annotations

import math
import random
from concurrent.futures import ThreadPoolExecutor

import fastgemm
import pytest
import torch
from reference import (
    FLOATS,
    SENTINEL,
    assert_right,
    by_name,
    check_gemm,
    expected_gemm,
    needs_simulator,
    poisoned,
    random_tensor,
    result_dtype,
    row_id,
    simulated_launches,
    simulated_rows,
)
from test_simulator import LAYOUTS, every_layout, least_k, operands

pytestmark = needs_simulator

ADA, AMPERE, HOPPER = 89, 80, 90  # capabilities that differ in shared memory and in wgmma
PORTABLE = {row.name for row in fastgemm.kernels("gemm", "cuda") if row.needs == "sm_80" and row.level >= 5}
ROWS = [(kernel, dtype) for kernel, dtype in simulated_rows("gemm") if kernel in PORTABLE]

every_portable_row = pytest.mark.parametrize(("kernel", "dtype"), ROWS, ids=row_id)


@pytest.fixture(autouse=True)
def on_ada():
    with simulated_launches(capability=ADA, count=False):
        yield


def elsewhere(check):
    """Calls it in a thread that does not simulate yet: simulations do not nest."""
    with ThreadPoolExecutor(1) as other_thread:
        return other_thread.submit(check).result()


def test_rows_of_tensor_cores_are_portable():
    assert {
        "mma_sync",
        "dmma",
        "dmma_m8n8k4",
        "wmma",
        "split_k",
        "small_tile",
        "direct",
        "narrow",
    } <= PORTABLE


@every_portable_row
@every_layout
def test_gemm(kernel, dtype, layout):
    for m, n, k in [(1, 1, 1), (1, 9, 40), (13, 17, 19), (61, 67, 71)]:
        check_gemm(*operands(m, n, least_k(kernel, dtype) + k, dtype, layout), kernel=kernel)


@every_portable_row
def test_gemm_in_several_tiles(kernel, dtype):
    """More block tiles than multiprocessors, whole ones and cut ones, with and without 16-byte accesses."""
    sizes = [(130, 257, 67), (250, 500, 44), (64, 128, 272), (144, 272, 96)]
    for size, layout in zip(sizes, LAYOUTS, strict=True):
        slack, (m, n, k) = random.choice((0, 0, 3, 16)), size
        check_gemm(*operands(m, n, least_k(kernel, dtype) + k, dtype, layout, slack), kernel=kernel)


@every_portable_row
def test_gemm_scalars_slices_and_out(kernel, dtype):
    a, b = operands(
        35, 50, least_k(kernel, dtype) + 41, dtype, random.choice(LAYOUTS), random.choice((1, 3, 8))
    )
    result = result_dtype(dtype)
    c = random_tensor(35, 50, dtype=result)
    check_gemm(a, b, c, alpha=-3, beta=2, kernel=kernel)
    check_gemm(a, b, c[:1], alpha=2, kernel=kernel)  # a row that broadcasts
    in_place = c.clone()
    check_gemm(a, b, in_place, alpha=1, beta=-1, out=in_place, kernel=kernel)
    check_gemm(a, b, out=poisoned(50, 35, dtype=result).t(), kernel=kernel)
    around = poisoned(35, 61, dtype=result)  # rows that begin anywhere
    check_gemm(a, b, c, alpha=2, beta=3, out=around[:, 5:55], kernel=kernel)
    untouched = torch.cat((around[:, :5], around[:, 55:]), dim=1)
    assert untouched.isnan().all() if result.is_floating_point else (untouched == SENTINEL).all()
    if dtype in (torch.float16, torch.bfloat16):
        check_gemm(a, b, out_dtype=torch.float32, kernel=kernel)
        check_gemm(
            a, b, c.float(), beta=2, out=torch.empty(35, 51)[:, 1:], out_dtype=torch.float32, kernel=kernel
        )


@every_portable_row
def test_long_k(kernel, dtype):
    """Blocks that share the k of tiles: by stream-K, by split-K; with and without a C to add."""
    sizes = [(33, 50, 3000), (130, 270, 1111)]
    for (m, n, k), beta in zip(sizes, random.sample((0, -3), 2), strict=True):
        a, b = operands(m, n, k, dtype, random.choice(LAYOUTS), slack=random.choice((0, 3, 16)))
        c = random_tensor(m, n, dtype=result_dtype(dtype))
        check_gemm(a, b, c if beta else None, alpha=2, beta=beta, out=c, kernel=kernel)


@every_portable_row
def test_gemm_batches_and_empty(kernel, dtype):
    k = least_k(kernel, dtype) + 20
    a, b = random_tensor(3, 9, k, dtype=dtype), random_tensor(3, k, 33, dtype=dtype)
    check_gemm(a, b, kernel=kernel)
    check_gemm(a, b[0], kernel=kernel)
    check_gemm(a.mT.contiguous().mT, b, random_tensor(33, dtype=result_dtype(dtype)), beta=2, kernel=kernel)
    check_gemm(a[:, :, :0], b[:, :0], kernel=kernel)
    check_gemm(a[:, :0], b, kernel=kernel)


@pytest.mark.parametrize(("kernel", "dtype"), [r for r in ROWS if r[1] in FLOATS], ids=row_id)
def test_gemm_nan_and_infinity(kernel, dtype):
    k = least_k(kernel, dtype) + 23
    a, b = random_tensor(40, k, dtype=dtype), random_tensor(k, 37, dtype=dtype)
    a[3, 5], a[17, 22], b[0, 36], b[7, 0] = math.inf, math.nan, -math.inf, math.nan
    choice = by_name(kernel, dtype)
    expected = expected_gemm(a, b, precision=choice.get("precision"))
    assert_right(fastgemm.matmul(a, b, **choice), expected, kernel)


@every_layout
@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [(60, 100, 9000), (140, 130, 4000), (7, 300, 5000)], ids=str)
def test_split_k_on_many_multiprocessors(size, dtype, layout):
    """Parts of k of equal and of different length, the last of which ends inside a stage."""

    def check():
        with fastgemm.simulate(gpu="RTX 4090"):
            a, b = operands(*size, dtype, layout, slack=random.choice((0, 0, 3, 16)))
            c = random_tensor(size[0], size[1], dtype=result_dtype(dtype))
            check_gemm(a, b, c, alpha=-1, beta=2, kernel="split_k")

    elsewhere(check)


@every_layout
@pytest.mark.parametrize("kernel", ["mma_sync", "wmma"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int8], ids=str)
def test_rows_that_begin_anywhere(dtype, kernel, layout):
    """Operands of which one, the other or both are copied, in batches and where a batch shares one."""
    m, n, k = 150, 140, 171
    result = result_dtype(dtype)
    for slack in [(0, 16), (16, 0), (3, 3)]:
        a, b = operands(m, n, k, dtype, layout, slack[0])[0], operands(m, n, k, dtype, layout, slack[1])[1]
        check_gemm(a, b, out=poisoned(m, n + 2, dtype=result)[:, 1:-1], kernel=kernel)
    a, b = random_tensor(2, m, k, dtype=dtype), random_tensor(2, k, n, dtype=dtype)
    check_gemm(
        a.mT.contiguous().mT if layout[0] else a, b.mT.contiguous().mT if layout[1] else b, kernel=kernel
    )
    check_gemm(a, b[1], kernel=kernel)


def launched(kernel, dtype, capability):
    """The main launch of a product by this row on such a GPU."""

    def launch():
        with simulated_launches(capability=capability) as launches:
            a, b = operands(64, 64, 600, dtype, (False, True))
            check_gemm(a, b, kernel=kernel)
        return next(launch for launch in launches if launch["kernel"] == kernel)

    return elsewhere(launch)


@pytest.mark.parametrize(
    ("kernel", "dtype", "ada", "others"),
    [
        ("mma_sync", torch.bfloat16, 96 << 10, 144 << 10),
        ("dmma", torch.float64, 96 << 10, 96 << 10),
        ("wmma", torch.bfloat16, 72 << 10, 108 << 10),
        ("wmma", torch.int8, 99840, 99840),
    ],
    ids=str,
)
def test_stages_follow_the_shared_memory_of_a_block(kernel, dtype, ada, others):
    assert launched(kernel, dtype, ADA)["dynamic_shared"] == ada
    assert launched(kernel, dtype, AMPERE)["dynamic_shared"] == others
    assert launched(kernel, dtype, HOPPER)["dynamic_shared"] == others


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8], ids=str)
def test_split_k_multiplies_by_what_the_gpu_has(dtype):
    for capability, kernel in [
        (ADA, "split_k_mma_kernel"),
        (AMPERE, "split_k_mma_kernel"),
        (HOPPER, "split_k_kernel"),
    ]:
        assert kernel in launched("split_k", dtype, capability)["function"]
