"""``bf16x6_fused`` and ``skinny`` on GPUs without wgmma: mma.sync, and blocks of at most 99 KB of shared memory.

Everything that the simulator checks is on: it gives a block no more shared memory than the GPU does.
"""

from __future__ import annotations

import contextlib
import math
import random

import fastgemm
import pytest
import torch
from fastgemm._explain.run import load_simulator
from reference import (
    UNIT_ROUNDOFF,
    check_gemm,
    exact_product,
    largest_relative_error,
    needs_simulator,
    poisoned,
    random_tensor,
    result_dtype,
)
from test_simulator import every_layout, operands

pytestmark = needs_simulator

SMALLEST_BLOCK = 99 << 10  # bytes of shared memory that every GPU since sm_80 gives one
every_gpu = pytest.mark.parametrize("gpu", ["RTX 4090", "A100"])
every_type = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8], ids=str)


@contextlib.contextmanager
def three_multiprocessors():
    """Of compute capability 8.9, so that blocks take several turns on small problems; yields the launches."""
    simulator = load_simulator()
    simulator.begin(count=True, raise_problems=True, multiprocessors=3, max_blocks=0, capability=89)
    launches: list[dict] = []
    try:
        yield launches
    finally:
        launches += simulator.end()


def slack():
    """Columns beyond a matrix's own: rows that begin at multiples of 16 bytes, and rows that do not."""
    return random.choice((0, 0, 3, 16))


@pytest.mark.parametrize(
    ("kernel", "dtype", "instruction"),
    [
        ("bf16x6_fused", torch.float32, ".m16n8k16.f32.bf16"),
        ("skinny", torch.bfloat16, ".m16n8k16.f32.bf16"),
        ("skinny", torch.int8, ".m16n8k32.s32.s8"),
    ],
)
@pytest.mark.parametrize("side", [16, 32, 64])
@every_layout
def test_what_every_gpu_has(kernel, dtype, instruction, side, layout):
    """Tensor cores by mma.sync, copies by cp.async, little shared memory, and fragments without bank conflicts."""
    with three_multiprocessors() as launches:
        check_gemm(*operands(side, 272, 416, dtype, layout), kernel=kernel)
    (launch,) = (launch for launch in launches if launch["kernel"] == kernel)
    assert launch["dynamic_shared"] + launch["static_shared"] <= SMALLEST_BLOCK
    sites = launch["sites"]
    assert {site["instruction"] for site in sites if "mma" in site["instruction"]} == {"mma" + instruction}
    loop = [site for site in sites if site["kind"] in ("ldmatrix", "cp.async")]
    assert {site["kind"] for site in loop} == {"ldmatrix", "cp.async"}
    for site in loop:
        if site["kind"] == "ldmatrix" or kernel == "skinny":
            assert site["wavefronts"] == site["ideal_wavefronts"]


SIZES = [(1, 1, 1), (7, 1, 3), (13, 17, 19), (33, 65, 37), (61, 67, 71), (250, 190, 200), (60, 251, 700)]


@every_gpu
@every_layout
def test_fused(gpu, layout):
    """All widths of tiles, k whole and in parts, c and alpha."""
    with fastgemm.simulate(gpu):
        for m, n, k in SIZES:
            a, b = operands(m, n, k, torch.float32, layout, slack())
            c = torch.randn(m, n)
            check_gemm(a, b, kernel="bf16x6_fused")
            check_gemm(a, b, c, alpha=-3, beta=2, kernel="bf16x6_fused")
            check_gemm(a, b, c, alpha=2, beta=-1, out=c, kernel="bf16x6_fused")
            check_gemm(a, b, out=poisoned(n, m, dtype=torch.float32).t(), kernel="bf16x6_fused")


@pytest.mark.parametrize("columns", [5, 20, 64, 130])
@pytest.mark.parametrize("transposed", [False, True])
def test_fused_takes_turns(columns, transposed):
    """More tiles than fit three multiprocessors, with k whole and in parts."""
    for k in (40, 600):
        a, b = torch.randn(1000, k), torch.randn(k, columns)
        with three_multiprocessors():
            check_gemm(*((b.t(), a.t()) if transposed else (a, b)), kernel="bf16x6_fused")


@every_layout
def test_fused_sums_as_by_wgmma(layout):
    """The products of the same planes in the same order, added at the same places: the same bits."""
    for m, n, k in [(33, 130, 61), (16, 300, 64), (200, 60, 63)]:
        a, b = operands(m, n, k, torch.float32, layout)
        with fastgemm.simulate("h200"):
            by_wgmma = fastgemm.matmul(a, b, kernel="bf16x6_fused")
        with fastgemm.simulate("a100"):
            assert fastgemm.matmul(a, b, kernel="bf16x6_fused").equal(by_wgmma)


@every_gpu
@pytest.mark.parametrize("beta", [0, -3])
def test_fused_special_values(gpu, beta):
    """Infinities, NaN and sums that overflow in planes, in batches and in parts of a long k."""
    run = {"alpha": 2, "beta": beta, "kernel": "bf16x6_fused"}
    with fastgemm.simulate(gpu):
        a, b, c = torch.randn(20, 33, 36), torch.randn(20, 36, 40), torch.randn(20, 33, 40)
        a[3, 32, 35], a[7, 0, 0], b[9, 5, 39], b[11, 0, 0] = math.inf, math.nan, -math.inf, 3.4e38
        check_gemm(a, b, c if beta else None, **run)
        check_gemm(a[:4], b[3], c[:4] if beta else None, **run)
        a, b, c = torch.randn(3, 17000), torch.randn(17000, 5), torch.randn(3, 5)
        check_gemm(a, b, c if beta else None, **run)
        a[0, 3], a[1, 16999] = math.inf, math.nan
        check_gemm(a, b, c if beta else None, **run)


@pytest.mark.parametrize("k", [100, 700])
def test_fused_in_range(k):
    """Rows of tiny values keep all their bits, and what overflows in bf16 or in sums is what float32 has."""
    a, b = torch.randn(60, k), torch.randn(k, 200)
    a[1], a[2], a[3], a[4], a[5] = a[1] * 1e-30, a[2] * 1e-38, a[3] * 1e-43, a[4].abs() * 1e30, 0
    b[:, 1], b[:, 2], b[:, 3], b[:, 4] = b[:, 1] * 1e-30, b[:, 2].abs() * 1e30, b[:, 3] * 1e-38, 0
    a[5, 3] = 3.4e38
    with fastgemm.simulate("rtx 4090"):
        check_gemm(a, b, kernel="bf16x6_fused")
        check_gemm(b.t(), a.t(), kernel="bf16x6_fused")


def test_fused_keeps_every_bit():
    x = torch.randint(1, 2**24, (90, 90)).float()
    with fastgemm.simulate("rtx 4090"):
        for a in (x, x.t()):
            assert (fastgemm.matmul(a, torch.eye(90), kernel="bf16x6_fused") == a).all()
            assert (fastgemm.matmul(torch.eye(90), a, kernel="bf16x6_fused") == a).all()


@every_layout
@pytest.mark.parametrize("multiprocessors", ["few", "many"])
def test_fused_is_accurate(multiprocessors, layout):
    """Of positive numbers; sums one after the other err by 60 units here."""
    a, b = operands(40, 50, 5000, torch.float32, layout)
    a, b = a.abs(), b.abs()
    with three_multiprocessors() if multiprocessors == "few" else fastgemm.simulate("rtx 4090"):
        result = fastgemm.matmul(a, b, kernel="bf16x6_fused")
    assert largest_relative_error(result, exact_product(a, b)) <= 8 * UNIT_ROUNDOFF[torch.float32]


@every_gpu
@every_type
@every_layout
@pytest.mark.parametrize(
    "size", [(13, 17, 19), (70, 300, 700), (20, 300, 5000), (300, 9, 800), (16, 5000, 250)], ids=str
)
def test_skinny(size, dtype, layout, gpu):
    """Tiles that blocks share, of which they have one stage or two, and for each block one of its own."""
    a, b = operands(*size, dtype, layout, slack())
    c = random_tensor(size[0], size[1], dtype=result_dtype(dtype))
    with fastgemm.simulate(gpu):
        check_gemm(a, b, c, alpha=-1, beta=2, kernel="skinny")


@every_type
@every_layout
@pytest.mark.parametrize("side", [1, 17, 64, 100])
def test_skinny_takes_turns(side, dtype, layout):
    """Several tiles a block, shared and whole ones, of all widths; rows that begin anywhere."""
    for n, k in [(1, 5), (900, 64), (520, 600)]:
        a, b = operands(side, n, k, dtype, layout, slack())
        with three_multiprocessors():
            check_gemm(a, b, kernel="skinny")
            check_gemm(a, b, out=poisoned(n, side, dtype=result_dtype(dtype)).t(), kernel="skinny")
            if dtype.is_floating_point:
                check_gemm(a, b, torch.randn(side, n), beta=-2, out_dtype=torch.float32, kernel="skinny")


@every_type
def test_skinny_batches(dtype):
    """Matrices of their own, shared ones, and rows that are one in memory."""
    a, b = random_tensor(5, 20, 200, dtype=dtype), random_tensor(5, 200, 300, dtype=dtype)
    c = random_tensor(5, 20, 300, dtype=result_dtype(dtype))
    with three_multiprocessors():
        check_gemm(a, b, c, beta=2, kernel="skinny")
        check_gemm(a[0], b, c, beta=2, kernel="skinny")
        check_gemm(a, b[0], kernel="skinny")
        check_gemm(a, b.transpose(1, 2)[:, :200].transpose(1, 2), kernel="skinny")
        check_gemm(a[0], b[0, :1].expand(200, 300), kernel="skinny")
