"""Tests every GEMM row of the kernel table with every dtype that it takes."""

import itertools
import math
import random

import fastgemm
import pytest
import torch
from pairwise import pairs
from reference import (
    DTYPES,
    FLOATS,
    LEVEL,
    SENTINEL,
    assert_right,
    by_name,
    check_gemm,
    every_device,
    exact_product,
    expected_gemm,
    is_library,
    largest_relative_error,
    levels,
    poisoned,
    random_tensor,
    result_dtype,
    row_id,
    rows,
    threads,
)

ROWS = rows("gemm")
OWN_ROWS = [row for row in ROWS if not is_library("gemm", *row[:2])]  # these must take every problem


def every(found):
    return pytest.mark.parametrize(("device", "kernel", "dtype"), found, ids=row_id)


def only(dtypes, found=ROWS):
    return [row for row in found if row[2] in dtypes]


every_row = every(ROWS)
every_own_row = every(OWN_ROWS)
# The TMA copies rows of multiples of 16 bytes, and only GPUs have it. tests/simt simulates these shapes.
every_own_row_of_a_gpu = every([row for row in OWN_ROWS if row[0] == "cuda"])

LAYOUTS = list(itertools.product((False, True), repeat=2))
TILE_SIZES = (8, 14, 16, 32, 48, 64, 96, 128, 192, 256, 384)


def is_slow(device: str, kernel: str, dtype: torch.dtype) -> bool:
    """One thread without vector instructions is slow, and so are torch's 16-bit and integer products on a CPU."""
    if device != "cpu":
        return False
    return LEVEL["gemm", device, kernel] <= 3 or (kernel == "torch" and dtype in (torch.float16, torch.int32))


def operands(m, n, k, dtype, *, trans_a=False, trans_b=False):
    """a and b so that op(a) is (m, k) and op(b) is (k, n)."""
    a = random_tensor(*((k, m) if trans_a else (m, k)), dtype=dtype)
    b = random_tensor(*((n, k) if trans_b else (k, n)), dtype=dtype)
    return a, b


def check_layout(m, n, k, dtype, layout, by_flag, **choice):
    trans_a, trans_b = layout
    a, b = operands(m, n, k, dtype, trans_a=trans_a, trans_b=trans_b)
    if by_flag:
        check_gemm(a, b, trans_a=trans_a, trans_b=trans_b, **choice)
    else:
        check_gemm(a.t() if trans_a else a, b.t() if trans_b else b, **choice)


def check_into(a, b, kernel, out):
    """Runs check_gemm with an out that is not contiguous. torch's int8 product may refuse it."""
    try:
        check_gemm(a, b, kernel=kernel, out=out)
    except RuntimeError as refusal:
        assert (a.device.type, kernel) == ("cpu", "torch")
        assert a.dtype == torch.int8
        assert not out.is_contiguous()
        assert "'torch' cannot run here: torch._int_mm writes contiguous results only" in str(refusal)
        out.fill_(SENTINEL)


@every_row
def test_small_sizes(device, kernel, dtype):
    """Runs an odd problem in every layout, by views and by flags. Other problems have one layout each, which
    depends on the row."""
    sizes = [(61, 67, 71)] * 8 + [
        (1, 1, 1),
        (1, 7, 5),
        (7, 1, 3),
        (3, 2, 1),
        (2, 3, 64),
        (13, 17, 19),
        (31, 33, 29),
    ]
    ways = list(itertools.product(LAYOUTS, (False, True)))
    for i, (m, n, k) in enumerate(sizes, ROWS.index((device, kernel, dtype))):
        check_layout(m, n, k, dtype, *ways[i % 8], kernel=kernel)


@every_row
def test_tile_edges(device, kernel, dtype):
    """Random sizes that are one below, at or one above the tile sizes of the kernels."""
    limit = 1_000_000 if is_slow(device, kernel, dtype) else 4_000_000
    near = [size + step for size in TILE_SIZES for step in (-1, 0, 1)]
    for _ in range(6):
        m, n, k = (random.choice(near) for _ in range(3))
        while m * n * k > limit:
            m, n, k = (random.choice(near) for _ in range(3))
        check_layout(m, n, k, dtype, random.choice(LAYOUTS), random.random() < 0.5, kernel=kernel)


@every_row
def test_large_and_odd(device, kernel, dtype):
    """Every loop of the blocked kernels runs several times."""
    if is_slow(device, kernel, dtype):
        m, n, k = 130, 259, 517
    elif device != "cpu" or LEVEL["gemm", device, kernel] >= 5 or dtype == torch.float32:
        m, n, k = 513, 1025, 2049
    else:
        m, n, k = 257, 513, 1025
    check_layout(m, n, k, dtype, random.choice(LAYOUTS), False, kernel=kernel)


@every_own_row_of_a_gpu
def test_rows_of_whole_units(kernel, dtype):
    """Rows are multiples of 16 bytes, so the TMA can access every matrix in place, also c and the result."""
    sizes = [(48, 80, 96), (144, 272, 160), (272, 144, 96), (48, 1040, 48)]
    for (m, n, k), layout in zip(sizes, LAYOUTS, strict=True):
        check_layout(m, n, k, dtype, layout, random.random() < 0.5, kernel=kernel)
        a, b = operands(m, n, k, dtype)
        c = random_tensor(m, n, dtype=result_dtype(dtype))
        check_gemm(a, b, c, alpha=-3, beta=2, kernel=kernel)
        check_gemm(a, b, c, beta=1, kernel=kernel)
    a, b = random_tensor(3, 144, 48, dtype=dtype), random_tensor(3, 48, 272, dtype=dtype)
    check_gemm(a, b, random_tensor(3, 144, 272, dtype=result_dtype(dtype)), beta=-1, kernel=kernel)


@every_row
def test_skinny_and_long(kernel, dtype):
    sizes = [(1, 800, 300), (800, 1, 300), (2, 700, 129), (701, 2, 130), (8, 256, 512), (256, 8, 512)]
    sizes += [(1, 1, 70_001), (3, 5, 20_000), (16, 24, 9_001), (10, 21, 9_001), (300, 400, 1), (300, 200, 2)]
    for i, (m, n, k) in enumerate(sizes):
        check_layout(m, n, k, dtype, LAYOUTS[i % 4], False, kernel=kernel)


@every([row for row in only([torch.float32], OWN_ROWS) if "precision" not in by_name(*row[1:])])
def test_fp32_accuracy_at_long_k(device, kernel, dtype):
    """Summands are positive. The usual bound of about sqrt(K) u would not notice a worse order of summation."""
    if device == "cuda":
        m, n, k = 4096, 4096, 8200  # so many tiles that the library does not split K, which is more accurate
    else:
        m, n, k = (24, 32, 8192) if is_slow(device, kernel, dtype) else (130, 200, 16_411)
    a, b = torch.rand(m, k), torch.rand(k, n)
    sample = slice(None, None, m // 128 or 1)
    exact = exact_product(a[sample], b)
    allowed = 1.5 * largest_relative_error((a @ b)[sample], exact) + 4 * 2**-24
    for count in (1, 2) if device == "cpu" else (1,):
        with threads(count):
            result = fastgemm.matmul(a, b, kernel=kernel)[sample]
            assert largest_relative_error(result, exact) <= allowed


@every_row
def test_k_zero_and_empty(device, kernel, dtype):
    a, b = operands(5, 3, 0, dtype)
    result = check_gemm(a, b, kernel=kernel)
    assert result is None or not result.any()
    if not is_library("gemm", device, kernel):
        check_gemm(a, b, random_tensor(5, 3, dtype=result_dtype(dtype)), beta=-2, kernel=kernel)
        check_gemm(a, b, random_tensor(3, dtype=result_dtype(dtype)), kernel=kernel)
    if a.is_cuda:  # one wave of tiles and a part of another
        check_gemm(*operands(1000, 5000, 0, dtype), kernel=kernel)
    for m, n, k in [(0, 3, 4), (5, 0, 4), (0, 0, 0), (0, 3, 0)]:
        a, b = operands(m, n, k, dtype)
        result = fastgemm.matmul(a, b, **by_name(kernel, dtype))
        assert result.shape == (m, n)
        assert result.dtype == result_dtype(dtype)
    batch = fastgemm.matmul(random_tensor(0, 2, 3, dtype=dtype), random_tensor(3, 4, dtype=dtype))
    assert batch.shape == (0, 2, 4)


@every_row
def test_slices_with_leading_dimensions_and_offsets(kernel, dtype):
    """Operands and out are slices of larger tensors at odd offsets. Memory around out must not change."""
    sizes, offsets = [(33, 47, 29), (16, 16, 16), (9, 65, 130), (33, 47, 29)], (1, 2, 3, 5)
    for (m, n, k), (trans_a, trans_b), offset in zip(sizes, LAYOUTS, offsets, strict=True):
        a, b = operands(m + 7, n + 9, k + 5, dtype, trans_a=trans_a, trans_b=trans_b)
        a = (a.t() if trans_a else a)[offset : offset + m, 1 : 1 + k]
        b = (b.t() if trans_b else b)[5 - offset :, offset:][:k, :n]
        around = poisoned(m + 4, n + 6, dtype=result_dtype(dtype))
        check_into(a, b, kernel, around[2 : 2 + m, offset : offset + n])
        around[2 : 2 + m, offset : offset + n] = SENTINEL
        assert (around.isnan() | (around == SENTINEL)).all()


def within_units(rows, cols, dtype, *, transposed=False):
    """A matrix inside of rows of 80 elements, which are multiples of 16 bytes. The last 16 bytes of a row may
    reach beyond the matrix. Returns the matrix and the rows."""
    around = poisoned(*((cols, 80) if transposed else (rows, 80)), dtype=dtype)
    matrix = around[:, :rows].t() if transposed else around[:, :cols]
    return matrix.copy_(random_tensor(rows, cols, dtype=dtype)), around


@every_own_row_of_a_gpu
def test_slices_of_whole_units(kernel, dtype):
    """Copies of 16 bytes at a time must stay inside the matrix. Memory beside the operands is NaN, so a wrong read
    changes the result. Memory beside the result must not change."""
    kind = result_dtype(dtype)
    for m, n, k in [(33, 47, 29), (65, 79, 77)]:
        for trans_a, trans_b in LAYOUTS:
            a, _ = within_units(m, k, dtype, transposed=trans_a)
            b, _ = within_units(k, n, dtype, transposed=trans_b)
            c, _ = within_units(m, n, kind)
            out, around = within_units(m, n, kind)
            check_gemm(a, b, out=out, kernel=kernel)
            check_gemm(a, b, c, beta=-2, out=out, kernel=kernel)
            beside = around[:, n:]
            assert (beside.isnan() | (beside == SENTINEL)).all()


@every_row
def test_misaligned_storage(kernel, dtype):
    """Uses every byte offset that the dtype allows, so operands are 16-byte aligned only by chance."""
    m, n, k = 19, 35, 50

    def shifted(rows, cols, offset, kind):
        return poisoned(rows * cols + offset, dtype=kind)[offset:].view(rows, cols)

    for offset in range(1, 8):
        a, b = shifted(m, k, offset, dtype), shifted(k, n, (3 * offset) % 8, dtype)
        a.copy_(random_tensor(m, k, dtype=dtype)), b.copy_(random_tensor(k, n, dtype=dtype))
        check_gemm(a, b, kernel=kernel, out=shifted(m, n, offset, result_dtype(dtype)))


@every_row
def test_batches(kernel, dtype):
    def draw(*shape):
        return random_tensor(*shape, dtype=dtype)

    shapes = [
        ((3, 9, 17), (3, 17, 13)),
        ((5, 9, 17), (17, 13)),  # with one b, the batch forms the rows of one tall matrix
        ((9, 17), (4, 17, 13)),
        ((2, 1, 9, 17), (3, 17, 13)),
        ((2, 3, 1, 8, 5), (1, 3, 4, 5, 6)),
        ((1, 1, 7, 40), (2, 1, 40, 31)),
        ((40, 33, 31), (40, 31, 35)),
        ((4000, 3, 3), (4000, 3, 1)),
        ((500, 5, 2), (500, 2, 12)),
    ]
    for (a_shape, b_shape), columns in zip(shapes, itertools.cycle((False, True)), strict=False):
        a, b = draw(*a_shape), draw(*b_shape)
        check_gemm(*((a.mT.contiguous().mT, b.mT.contiguous().mT) if columns else (a, b)), kernel=kernel)
    check_gemm(draw(1, 9, 17).expand(6, 9, 17), draw(6, 17, 5), kernel=kernel)
    check_gemm(draw(6, 9, 17), draw(17, 5).expand(6, 17, 5), kernel=kernel)
    check_gemm(draw(9, 6, 17).transpose(0, 1), draw(17, 6, 5).transpose(0, 1), kernel=kernel)
    check_gemm(draw(2, 3, 4, 9, 7).permute(2, 0, 1, 3, 4), draw(4, 1, 3, 7, 9), kernel=kernel)
    out = poisoned(9, 6, 13, dtype=result_dtype(dtype)).transpose(0, 1)
    check_into(draw(6, 9, 17), draw(6, 17, 13), kernel, out)


@every_device
def test_large_batches_use_threads_and_stay_right(device):
    for dtype in DTYPES:
        a, b = random_tensor(70, 64, 48, dtype=dtype), random_tensor(70, 48, 80, dtype=dtype)
        check_gemm(a, b)
        check_gemm(a, b, level=max(set(levels("gemm", device)) & {5, 6}))


def test_four_threads_share_rows_and_columns():
    """Four threads divide the work in a grid of two by two, which two or three threads cannot."""
    a, b = random_tensor(84, 600, dtype=torch.float32), random_tensor(600, 256, dtype=torch.float32)
    with threads(4):
        check_gemm(a, b, level=5)


@every_own_row
def test_alpha_beta_c(kernel, dtype):
    kind = result_dtype(dtype)
    factors = [(1, 1), (-3, 2), (2, None), (0, 1), (5, 0), (-1, -1)]
    if dtype in FLOATS:
        factors += [(0.5, -1.25), (1.0, 0.1)]
    sizes = [(1, 1, 1), (33, 49, 17), (8, 16, 300)]
    addends = {  # with the shape m x n
        "matrix": lambda m, n: random_tensor(m, n, dtype=kind),
        "row": lambda m, n: random_tensor(n, dtype=kind),
        "column": lambda m, n: random_tensor(m, 1, dtype=kind),
        "number": lambda m, n: random_tensor(1, 1, dtype=kind),
        "column-major": lambda m, n: random_tensor(n, m, dtype=kind).t(),
    }
    for ((m, n, k), addend), (alpha, beta) in zip(
        pairs(sizes, addends), itertools.cycle(factors), strict=False
    ):
        a, b = operands(m, n, k, dtype)
        check_gemm(a, b, addends[addend](m, n), alpha=alpha, beta=beta, kernel=kernel)
        check_gemm(a, b, alpha=alpha, kernel=kernel)


@every([row for row in only((torch.float16, torch.bfloat16, torch.int32), OWN_ROWS) if row[0] == "cpu"])
def test_a_c_of_one_column_has_the_bits_of_a_matrix(kernel, dtype):
    """Vectors of the result read such a c as one number."""
    a, b = operands(33, 65, 70, dtype)
    for shape in ((33, 1), (1, 1)):
        c = random_tensor(*shape, dtype=result_dtype(dtype))
        full = fastgemm.gemm(a, b, c.expand(33, 65).contiguous(), alpha=2, beta=3, kernel=kernel)
        assert torch.equal(fastgemm.gemm(a, b, c, alpha=2, beta=3, kernel=kernel), full)


@every_own_row
def test_alpha_beta_over_several_blocks_of_k(device, kernel, dtype):
    """alpha and beta must be applied once, not once for every block of K."""
    m, n, k = (20, 33, 2100) if is_slow(device, kernel, dtype) else (70, 90, 4100)
    a, b = operands(m, n, k, dtype)
    c = random_tensor(m, n, dtype=result_dtype(dtype))
    check_gemm(a, b, c, alpha=3, beta=-2, kernel=kernel)
    check_gemm(a, b, c[:1], kernel=kernel)


@every_own_row
def test_batched_c(kernel, dtype):
    kind = result_dtype(dtype)
    a, b = random_tensor(4, 1, 9, 17, dtype=dtype), random_tensor(3, 17, 13, dtype=dtype)
    for c_shape in [(4, 3, 9, 13), (3, 1, 13), (4, 1, 9, 1), (13,)]:
        check_gemm(a, b, random_tensor(*c_shape, dtype=kind), alpha=-1, beta=3, kernel=kernel)
    tall = random_tensor(5, 9, 17, dtype=dtype)
    for c_shape in [(5, 9, 13), (9, 13), (13,)]:  # with one b, the batch merges into rows only if c allows it
        check_gemm(tall, b[0], random_tensor(*c_shape, dtype=kind), kernel=kernel)


@every_own_row
def test_beta_zero_never_reads_c(kernel, dtype):
    a, b = operands(17, 33, 89, dtype)
    kind = result_dtype(dtype)
    c = torch.full((17, 33), math.nan, dtype=kind) if dtype in FLOATS else random_tensor(17, 33, dtype=kind)
    result = check_gemm(a, b, c, alpha=2, beta=0, kernel=kernel)
    assert torch.equal(result, fastgemm.gemm(a, b, alpha=2, **by_name(kernel, dtype)))


@every_own_row
def test_out_may_be_exactly_c(kernel, dtype):
    choice = by_name(kernel, dtype)
    precision = choice.get("precision")
    for m, n, k, betas in [(17, 33, 89, (None, -2, 0)), (64, 96, 700, (-2,))]:
        a, b = operands(m, n, k, dtype)
        c = random_tensor(m, n, dtype=result_dtype(dtype))
        for beta in betas:
            out = c.clone()
            assert fastgemm.gemm(a, b, out, alpha=3, beta=beta, **choice, out=out) is out
            expected = expected_gemm(a, b, c, alpha=3, beta=beta, precision=precision)
            assert_right(out, expected, f"{kernel} beta={beta}")
        out = c.t().contiguous().t()
        fastgemm.gemm(a, b, out, **choice, out=out)
        assert_right(out, expected_gemm(a, b, c, precision=precision), f"{kernel} column-major c")


@every_row
def test_out_layouts(kernel, dtype):
    """Tests results that are column-major, strided in both dimensions, or with an inner batch dimension."""
    kind = result_dtype(dtype)
    for m, n, k in [(33, 18, 25), (1, 9, 4), (9, 1, 4)]:
        a, b = operands(m, n, k, dtype)
        check_into(a, b, kernel, poisoned(n, m, dtype=kind).t())
        check_into(a, b, kernel, poisoned(n, m + 5, dtype=kind).t()[3 : 3 + m])
        around = poisoned(3 * m, 2 * n, dtype=kind)
        check_into(a, b, kernel, around[1::3, ::2])
        around[1::3, ::2] = SENTINEL
        assert (around.isnan() | (around == SENTINEL)).all()
    a, b = random_tensor(3, 9, 7, dtype=dtype), random_tensor(3, 7, 5, dtype=dtype)
    check_into(a, b, kernel, poisoned(9, 5, 3, dtype=kind).permute(2, 0, 1))
    check_into(a, b, kernel, poisoned(3, 5, 9, dtype=kind).mT)


@every(only([torch.float16, torch.bfloat16], OWN_ROWS))
def test_out_dtype_float32(kernel, dtype):
    for m, n, k in [(1, 1, 1), (33, 49, 130), (8, 100, 3001)]:
        a, b = operands(m, n, k, dtype)
        check_gemm(a, b, out_dtype=torch.float32, kernel=kernel)
        check_gemm(
            a, b.t().contiguous().t(), torch.randn(m, n), beta=2, out_dtype=torch.float32, kernel=kernel
        )
        check_gemm(a, b, out_dtype=dtype, kernel=kernel)
    huge = torch.full((2, 40), 6e4 if dtype == torch.float16 else 1e30, dtype=dtype)
    check_gemm(huge, huge.t(), out_dtype=torch.float32, kernel=kernel)


@every_device
@pytest.mark.parametrize("dtype", DTYPES, ids=row_id)
def test_the_default_on_a_range_of_sizes(dtype):
    for m, n, k in [(1, 1, 1), (5, 300, 200), (64, 64, 64), (257, 129, 511), (1, 4096, 64), (600, 500, 400)]:
        check_layout(m, n, k, dtype, random.choice(LAYOUTS), True)
