"""A product in Triton as its users write it: one tile for each program, a loop over K, masked edges."""

from concurrent.futures import ThreadPoolExecutor

import triton
import triton.language as tl

GROUP = tl.constexpr(8)  # block rows that are traversed column by column, so that panels of B stay in L2


@triton.jit
def _product(
    a,
    b,
    c,
    m,
    n,
    k,
    a_row,
    a_col,
    b_row,
    b_col,
    c_row,
    c_col,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    block = tl.program_id(0)
    block_rows, block_cols = tl.cdiv(m, BM), tl.cdiv(n, BN)
    group = block // (GROUP * block_cols)
    height = min(block_rows - group * GROUP, GROUP)
    within = block - group * GROUP * block_cols
    i = (group * GROUP + within % height) * BM + tl.arange(0, BM)
    j = (within // height) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    # Rows and columns beyond the edge wrap around when they are read, which needs no mask. They are not stored.
    a_tile = a + (i % m)[:, None] * a_row + depth[None, :] * a_col
    b_tile = b + depth[:, None] * b_row + (j % n)[None, :] * b_col
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        inside = depth < k - start
        x = tl.load(a_tile, mask=inside[None, :], other=0.0)
        y = tl.load(b_tile, mask=inside[:, None], other=0.0)
        sums = tl.dot(x, y, sums, input_precision=PRECISION)
        a_tile += BK * a_col
        b_tile += BK * b_row
    c_tile = c + i[:, None] * c_row + j[None, :] * c_col
    tl.store(c_tile, sums.to(c.dtype.element_ty), mask=(i[:, None] < m) & (j[None, :] < n))


def blocks(size, tile):
    return triton.cdiv(size, tile)


def run(grid, arguments, options):
    _product[grid](*arguments, **options)


def compile_all(launches, threads):
    """Compiles in parallel. An error of the compiler shows only when the kernel runs."""
    with ThreadPoolExecutor(threads) as pool, triton.AsyncCompileMode(pool, ignore_errors=True):
        for grid, arguments, options in launches:
            _product.warmup(*arguments, grid=grid, **options)
