"""Tests every CUDA kernel of the table on the simulator, with all its checks, against float64.

The simulator raises RuntimeError for every problem: an access that is out of bounds, misaligned, uninitialized,
racing or in flight, a barrier that not all threads reach, or a missing wait. Sizes are small and odd. The GPU has
three multiprocessors, so that even here blocks process several tiles. Rows whose launchers depend on the GPU run
twice: as on Hopper, and as on Ada, which has no wgmma and 99 KB of shared memory for a block.
"""

import itertools
import math

import fastgemm
import pytest
import torch
from fastgemm.table import PRECISIONS
from reference import (
    FLOATS,
    LEVEL,
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

pytestmark = needs_simulator

CAPABILITY = {"hopper": 90, "ada": 89}
# Rows of level 6 that launch the same kernels on every GPU since sm_80.
SAME = {"narrow", "direct", "outer", "batched", "dmma_m8n8k4"}
PORTABLE = {row.name for row in fastgemm.kernels("gemm", "cuda") if row.needs == "sm_80" and row.level == 6}
TWICE = PORTABLE - SAME
# Rows whose blocks may share the k of a tile.
SHARING = {"warp_specialized", "wgmma_specialized", "mma_sync", "one_wave", "skinny", "small_tile", "split_k"}
SHARING |= {"narrow", "direct", "small", "bf16x6", "bf16x6_fused", "crt", "batched", "bf16x3", "fp16x3"}
SHARING |= {"cp_async", "dmma", "dmma_m8n8k4", "int8x10", "int16x4"}
ROWS = [("hopper", *row) for row in simulated_rows("gemm")]
ROWS += [("ada", *row) for row in simulated_rows("gemm") if row[0] in TWICE]
LAYOUTS = list(itertools.product((False, True), repeat=2))
LAYOUT_NAMES = dict(zip(LAYOUTS, ("NN", "NT", "TN", "TT"), strict=True))
every_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=LAYOUT_NAMES.get)


def every(rows):
    return pytest.mark.parametrize(("gpu", "kernel", "dtype"), rows, ids=row_id)


def types_of(row):
    """The rows of the same kernel on the same GPU, one for each of its types."""
    return [each for each in ROWS if each[:2] == row[:2]]


def alternate_types(first):
    """Every second type of a kernel that has more than four, and all types of other kernels."""
    return every([row for row in ROWS if len(types_of(row)) <= 4 or types_of(row).index(row) % 2 == first])


every_gemm_row = every(ROWS)


@pytest.fixture
def gpu():
    return "hopper"


@pytest.fixture(autouse=True)
def simulated(gpu):
    with simulated_launches(capability=CAPABILITY[gpu]):
        yield


def operands(m, n, k, dtype, layout, slack=0):
    """a (m, k) and b (k, n), as transposed views if the layout says so. Each has ``slack`` unused columns."""

    def view(rows, cols, transposed):
        shape = (cols, rows) if transposed else (rows, cols)
        x = random_tensor(shape[0], shape[1] + slack, dtype=dtype)[:, slack // 2 : slack // 2 + shape[1]]
        return x.t() if transposed else x

    return view(m, k, layout[0]), view(k, n, layout[1])


def least_k(kernel, dtype):
    """The least k of a row that rejects short sums."""
    return 80 if kernel in ("bf16x6", "crt") and dtype == torch.float32 else 0


def layouts(*row):
    """All four layouts. Each row begins with another one, so every size meets every layout in some row."""
    first = ROWS.index(row) % 4
    return LAYOUTS[first:] + LAYOUTS[:first]


def some(sizes, *row):
    """All sizes for a kernel with one or two types. More types share them: each gets every second to fourth
    one."""
    of_kernel = types_of(row)
    step = min(4, len(sizes), (len(of_kernel) + 1) // 2)
    return sizes[of_kernel.index(row) % step :: step]


def test_every_kernel_of_the_table_is_simulated():
    for op in ("gemm", "transpose", "add"):
        assert len({kernel for kernel, _ in simulated_rows(op)}) >= 5, op
    assert {"mma_sync", "wmma", "split_k", "small_tile", "skinny", "bf16x6", "crt"} <= TWICE


@every_gemm_row
def test_gemm(gpu, kernel, dtype):
    """Runs an odd problem of several tiles in every layout, and others in one layout each. Types of a kernel share
    them."""
    sizes = [(61, 67, 71)] * 4 + [(1, 1, 1), (7, 1, 3), (1, 9, 40), (13, 17, 19), (33, 65, 37)]
    sizes = some(sizes, gpu, kernel, dtype)
    for (m, n, k), layout in zip(sizes, itertools.cycle(layouts(gpu, kernel, dtype)), strict=False):
        check_gemm(*operands(m, n, least_k(kernel, dtype) + k, dtype, layout), kernel=kernel)


@every_gemm_row
def test_gemm_in_several_tiles(gpu, kernel, dtype):
    """More block tiles than multiprocessors, whole and partial tiles, with and without 16-byte accesses."""
    sizes = [(130, 257, 67, 3), (140, 260, 44, 0), (64, 128, 272, 16), (144, 272, 96, 0)]
    if LEVEL["gemm", "cuda", kernel] <= 2:  # tiles of at most 32 x 32
        sizes = [(m // 2, n // 2, k, slack) for m, n, k, slack in sizes]
    sizes = some(sizes, gpu, kernel, dtype)
    for (m, n, k, slack), layout in zip(sizes, layouts(gpu, kernel, dtype), strict=False):
        check_gemm(*operands(m, n, least_k(kernel, dtype) + k, dtype, layout, slack), kernel=kernel)


@alternate_types(0)
def test_gemm_scalars_slices_and_out(gpu, kernel, dtype):
    layout, *_ = layouts(gpu, kernel, dtype)
    a, b = operands(35, 50, least_k(kernel, dtype) + 41, dtype, layout, slack=3)
    result = result_dtype(dtype)
    c = random_tensor(35, 50, dtype=result)
    check_gemm(a, b, c[:1], alpha=2, kernel=kernel)  # a row that broadcasts
    in_place = c.clone()
    check_gemm(a, b, in_place, alpha=1, beta=-1, out=in_place, kernel=kernel)
    check_gemm(
        a, b, poisoned(35, 50, dtype=result), beta=0, out=poisoned(50, 35, dtype=result).t(), kernel=kernel
    )
    # Rows at any address, and rows that begin at multiples of 16 bytes but do not end there.
    for first, width, scales in ((5, 61, {"alpha": -3, "beta": 2}), (8, 64, {})):
        around = poisoned(35, width, dtype=result)
        out = around[:, first : first + 50]
        check_gemm(a, b, c if scales else None, out=out, kernel=kernel, **scales)
        untouched = torch.cat((around[:, :first], around[:, first + 50 :]), dim=1)
        assert untouched.isnan().all() if result.is_floating_point else (untouched == SENTINEL).all()
    if dtype in (torch.float16, torch.bfloat16):
        out = torch.empty(35, 51)[:, 1:]
        check_gemm(a, b, c.float(), beta=2, out=out, out_dtype=torch.float32, kernel=kernel)


@alternate_types(1)
def test_gemm_batches_and_empty(gpu, kernel, dtype):
    k = least_k(kernel, dtype) + 20
    a, b = random_tensor(3, 9, k, dtype=dtype), random_tensor(3, k, 33, dtype=dtype)
    check_gemm(a, b, kernel=kernel)
    check_gemm(a, b[0], kernel=kernel)
    check_gemm(a.mT.contiguous().mT, b, random_tensor(33, dtype=result_dtype(dtype)), beta=2, kernel=kernel)
    check_gemm(a[:, :, :0], b[:, :0], kernel=kernel)
    check_gemm(a[:, :0], b, kernel=kernel)
    check_gemm(*operands(130, 400, 0, dtype, LAYOUTS[0]), kernel=kernel)  # a wave of tiles, and some more


# The second run of kernels that run twice.
@every(
    [
        row
        for row in ROWS
        if LEVEL["gemm", "cuda", row[1]] >= 5 and not (row[0] == "hopper" and row[1] in TWICE)
    ]
)
def test_gemm_of_long_k(gpu, kernel, dtype):
    """Blocks share the k of tiles by stream-K or split-K, with and without a C to add. In other kernels, one tile
    passes through the stages several times."""
    cases = some([(33, 50, 2000, 0), (130, 140, 711, -3)], gpu, kernel, dtype)
    cases = cases if kernel in SHARING else [(33, 50, 711, -3)]
    for (m, n, k, beta), layout in zip(cases, layouts(gpu, kernel, dtype), strict=False):
        a, b = operands(m, n, k, dtype, layout, slack=3)
        c = random_tensor(m, n, dtype=result_dtype(dtype))
        check_gemm(a, b, c if beta else None, alpha=2, beta=beta, out=c, kernel=kernel)


@every([row for row in ROWS if row[2] in FLOATS])
def test_gemm_nan_and_infinity(gpu, kernel, dtype):
    k = least_k(kernel, dtype) + 23
    a, b = random_tensor(40, k, dtype=dtype), random_tensor(k, 37, dtype=dtype)
    a[3, 5], a[17, 22], b[0, 36], b[7, 0] = math.inf, math.nan, -math.inf, math.nan
    choice = by_name(kernel, dtype)
    expected = expected_gemm(a, b, precision=choice.get("precision"))
    assert_right(fastgemm.matmul(a, b, **choice), expected, kernel)


# --- what rows reject, and precisions


def test_what_rows_reject():
    def says(reason, m, n, k, dtype, kernel):
        a, b = torch.empty(m, 1, dtype=dtype).expand(m, k), torch.empty(1, n, dtype=dtype).expand(k, n)
        with pytest.raises(RuntimeError, match=f"'{kernel}' cannot run here: {reason}.*levels that can: .*5"):
            fastgemm.matmul(a, b, kernel=kernel)

    says("k is below 80", 200, 200, 79, torch.float32, "bf16x6")
    says("k is above 1,677,696", 1, 1, 1677697, torch.int32, "int8x10")
    says("C has more than 4,194,240 columns", 1, 64 * 65535 + 1, 8, torch.int8, "small_tile")
    says("C's longer side is above 2,097,120", 1, 32 * 65535 + 1, 8, torch.float16, "one_wave")


TF32 = [
    row.name for row in fastgemm.kernels("gemm", "cuda") if row.precision == "tf32" and row.takes_matrices
]


@pytest.mark.parametrize("kernel", TF32)
def test_tf32_is_asked_for_and_rounds_to_nearest(kernel):
    a = torch.full((16, 16), 1 + 2**-11 + 2**-12)
    assert (fastgemm.matmul(a, torch.eye(16), kernel=kernel, precision="tf32") == 1 + 2**-10).all()
    for other in ("ieee", "bf16x3"):
        with pytest.raises(RuntimeError, match=r'cannot run here: .*precision="tf32"'):
            fastgemm.matmul(a, a, kernel=kernel, precision=other)


@pytest.mark.parametrize("kernel", ["bf16x3", "fp16x3"])
def test_less_than_ieee_is_asked_for(kernel):
    a = torch.randn(16, 16)
    for other in ("ieee", "tf32", "bf16x6"):
        with pytest.raises(RuntimeError, match=f'cannot run here: .*"{kernel}" alone'):
            fastgemm.matmul(a, a, kernel=kernel, precision=other)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_level_6_has_every_precision(precision):
    a, b = random_tensor(20, 30, dtype=torch.float32), random_tensor(30, 10, dtype=torch.float32)
    check_gemm(a, b, level=6, precision=precision)
