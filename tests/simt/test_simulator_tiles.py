"""Further tests of kernels for small, skinny and narrow products, and of kernels with a ring of tiles: on many
multiprocessors, with copied operands, and with tiles that blocks share."""

import pytest
import torch
from counter_model import BF16, F32, F64, I8
from pairwise import pairs
from reference import (
    UNIT_ROUNDOFF,
    check_gemm,
    exact_product,
    largest_relative_error,
    needs_simulator,
    poisoned,
    random_tensor,
    result_dtype,
    row_id,
    simulated_launches,
)
from test_simulator import LAYOUTS, every_layout, operands

pytestmark = needs_simulator

F16 = torch.float16
H200, FEW = 132, 3  # multiprocessors
HOPPER, ADA, AMPERE = 90, 89, 80  # capabilities
SMALLEST_BLOCK = 99 << 10  # bytes of shared memory that a block may have on every GPU since sm_80
# Sizes that fill many multiprocessors, by kernel.
ON_MANY = {
    # Whole tiles of both operands, of one or of none, and a split k; with wgmma and with mma.sync.
    "small_tile": [(64, 128, 256), (64, 100, 128), (33, 192, 128), (128, 64, 700), (64, 64, 2048)],
    # Tiles that blocks share, with one or two stages for each block, and one or two whole tiles for each block.
    "skinny": [(70, 300, 700), (20, 300, 5000), (300, 9, 800), (16, 8000, 250), (5, 28000, 130)],
    # Blocks that share k, the last with a smaller part. Threads are along rows, along k, or along both.
    "narrow": [(3, 2, 60000), (2, 5, 49999), (1, 1, 4097), (1000, 8, 40), (16, 333, 1)],
    # Parts of k with equal and with different lengths. The last part ends inside a stage.
    "split_k": [(60, 100, 9000), (140, 130, 4000), (7, 300, 5000)],
}
TYPES = {"narrow": (F64, F32, BF16, I8), "small_tile": (I8, BF16)}
GPUS = {"narrow": (HOPPER,)}


@pytest.mark.parametrize(
    ("kernel", "size", "layout", "dtype", "capability", "slack"),
    [
        (kernel, *case)
        for kernel, sizes in ON_MANY.items()
        for case in pairs(
            sizes, LAYOUTS, TYPES.get(kernel, (F16, BF16, I8)), GPUS.get(kernel, (HOPPER, ADA)), (0, 3, 16)
        )
    ],
    ids=row_id,
)
def test_on_many_multiprocessors(kernel, size, layout, dtype, capability, slack):
    a, b = operands(*size, dtype, layout, slack)
    c = random_tensor(*size[:2], dtype=result_dtype(dtype))
    with simulated_launches(H200, capability):
        check_gemm(a, b, c, alpha=-1, beta=2, kernel=kernel)


@pytest.mark.parametrize(
    ("side", "layout", "dtype"), pairs((1, 17, 64, 100), LAYOUTS, (F16, BF16, I8)), ids=row_id
)
def test_skinny_takes_turns(side, layout, dtype):
    """Each block has several shared and whole tiles of all widths. Rows begin at any address."""
    with simulated_launches(FEW, ADA):
        for n, k, slack in [(1, 5, 0), (900, 64, 16), (520, 600, 3)]:
            a, b = operands(side, n, k, dtype, layout, slack)
            check_gemm(a, b, out=poisoned(n, side, dtype=result_dtype(dtype)).t(), kernel="skinny")
            if dtype.is_floating_point:
                check_gemm(a, b, torch.randn(side, n), beta=-2, out_dtype=torch.float32, kernel="skinny")


@pytest.mark.parametrize("dtype", [BF16, I8], ids=row_id)
def test_skinny_batches(dtype):
    """Batches with separate matrices, with a shared matrix, and with rows that form one matrix in memory."""
    a, b = random_tensor(5, 20, 200, dtype=dtype), random_tensor(5, 200, 300, dtype=dtype)
    c = random_tensor(5, 20, 300, dtype=result_dtype(dtype))
    with simulated_launches(FEW, ADA):
        check_gemm(a, b, c, beta=2, kernel="skinny")
        check_gemm(a[0], b, c, beta=2, kernel="skinny")
        check_gemm(a, b[0], kernel="skinny")
        check_gemm(a, b.transpose(1, 2)[:, :200].transpose(1, 2), kernel="skinny")
        check_gemm(a[0], b[0, :1].expand(200, 300), kernel="skinny")


@pytest.mark.parametrize(
    ("size", "layout"), [((1024, 1, 8200), LAYOUTS[0]), ((1, 1024, 8200), LAYOUTS[3])], ids=str
)
def test_narrow_adds_short_chains(size, layout):
    """Chains of 512 numbers are summed, and then the chains' sums. The error was 4.5 u in 28 runs, and 9 u with
    chains of 1024."""
    a, b = (x.abs() for x in operands(*size, F32, layout))
    with simulated_launches(FEW):
        result = check_gemm(a, b, kernel="narrow")
    assert largest_relative_error(result, exact_product(a, b)) <= 6 * UNIT_ROUNDOFF[F32]


# --- GPUs without wgmma


def launched(kernel, size, dtype, capability, layout=(False, True)):
    """The main launch of a product by this row on such a GPU, counted."""
    with simulated_launches(FEW, capability, count=True) as launches:
        check_gemm(*operands(*size, dtype, layout), kernel=kernel)
    (launch,) = (launch for launch in launches if launch["kernel"] == kernel)
    return launch


@pytest.mark.parametrize(
    ("kernel", "dtype", "side", "layout"),
    [
        (kernel, dtype, *case)
        for kernel, dtype in (("bf16x6_fused", F32), ("skinny", BF16), ("skinny", I8))
        for case in pairs((16, 32, 64), LAYOUTS)[::2]
    ],
    ids=row_id,
)
def test_kernels_for_every_gpu(kernel, dtype, side, layout):
    """mma.sync, cp.async, little shared memory, and fragments without bank conflicts."""
    launch = launched(kernel, (side, 272, 416), dtype, ADA, layout)
    assert launch["dynamic_shared"] + launch["static_shared"] <= SMALLEST_BLOCK
    sites = launch["sites"]
    instruction = "mma.m16n8k32.s32.s8" if dtype == I8 else "mma.m16n8k16.f32.bf16"
    assert {site["instruction"] for site in sites if "mma" in site["instruction"]} == {instruction}
    loop = [site for site in sites if site["kind"] in ("ldmatrix", "cp.async")]
    assert {site["kind"] for site in loop} == {"ldmatrix", "cp.async"}
    for site in loop:
        if site["kind"] == "ldmatrix" or kernel == "skinny":
            assert site["wavefronts"] == site["ideal_wavefronts"]


@pytest.mark.parametrize(
    ("kernel", "dtype", "layout", "slacks"),
    pairs(("mma_sync", "wmma"), (F16, F32, I8), LAYOUTS, ((0, 16), (16, 0), (3, 3))),
    ids=row_id,
)
def test_rows_that_begin_anywhere(kernel, dtype, layout, slacks):
    """One or both operands are copied, also in batches, with and without a shared operand."""
    m, n, k = 150, 140, 171
    a, b = (operands(m, n, k, dtype, layout, slack)[i] for i, slack in enumerate(slacks))
    with simulated_launches(FEW, ADA):
        check_gemm(a, b, out=poisoned(m, n + 2, dtype=result_dtype(dtype))[:, 1:-1], kernel=kernel)
        a, b = random_tensor(2, m, k, dtype=dtype), random_tensor(2, k, n, dtype=dtype)
        turned = [x.mT.contiguous().mT if flag else x for x, flag in zip((a, b), layout, strict=True)]
        check_gemm(*turned, kernel=kernel)
        check_gemm(a, b[1], kernel=kernel)


@pytest.mark.parametrize(
    ("kernel", "dtype", "ada", "others"),
    [
        ("mma_sync", BF16, 96 << 10, 144 << 10),
        ("dmma", F64, 96 << 10, 96 << 10),
        ("wmma", BF16, 72 << 10, 108 << 10),
        ("wmma", I8, 99840, 99840),
    ],
    ids=row_id,
)
def test_stages_follow_the_shared_memory_of_a_block(kernel, dtype, ada, others):
    for capability, shared in ((ADA, ada), (AMPERE, others), (HOPPER, others)):
        assert launched(kernel, (64, 64, 600), dtype, capability)["dynamic_shared"] == shared


@pytest.mark.parametrize("dtype", [BF16, I8], ids=row_id)
def test_split_k_multiplies_by_what_the_gpu_has(dtype):
    for capability, name in [
        (ADA, "split_k_mma_kernel"),
        (AMPERE, "split_k_mma_kernel"),
        (HOPPER, "split_k_kernel"),
    ]:
        assert name in launched("split_k", (64, 64, 600), dtype, capability)["function"]


# --- wgmma_specialized

every_type = pytest.mark.parametrize("dtype", [I8, BF16, F32], ids=row_id)


@every_layout
@every_type
def test_rows_of_whole_units(dtype, layout):
    """All rows have multiples of 16 bytes, so the tensor memory accelerator reads all matrices in place."""
    run, result = {"kernel": "wgmma_specialized"}, result_dtype(dtype)
    sizes = [(16, 16, 16, 0), (48, 1040, 48, 0), (144, 336, 1008, 16), (144, 272, 96, 16)]
    with simulated_launches(FEW):
        for m, n, k, slack in sizes[LAYOUTS.index(layout) % 2 :: 2]:
            a, b = operands(m, n, k, dtype, layout, slack)
            c = random_tensor(m, n, dtype=result)
            check_gemm(a, b, c, alpha=-3, beta=2, **run)
            check_gemm(a, b, c, alpha=2, beta=-1, out=c, **run)
        a, b = random_tensor(3, 144, 48, dtype=dtype), random_tensor(3, 48, 272, dtype=dtype)
        c = random_tensor(3, 144, 272, dtype=result)
        check_gemm(a, b, c, beta=1, **run)
        check_gemm(a, b[0], c, beta=3, **run)
        if dtype == BF16:
            check_gemm(a, b, c.float(), beta=1, out_dtype=F32, **run)


@pytest.mark.parametrize("beta", [1, 2])
def test_a_row_is_added_to_every_row(beta):
    """With beta = 1 the row is a bias for wgmma_specialized; with another beta, it is not."""
    a, b = operands(35, 50, 64, BF16, (False, True))
    with simulated_launches(FEW):
        check_gemm(a, b, random_tensor(1, 50, dtype=BF16), beta=beta, kernel="wgmma_specialized")


def test_c_of_whole_units_is_added_by_kernels_that_store_boxes():
    """wgmma_overlapped stores such results in boxes without c, so other kernels must add c."""
    a, b = operands(144, 272, 96, BF16, (False, True))
    with simulated_launches(FEW):
        check_gemm(a, b, random_tensor(144, 272, dtype=BF16), beta=2, kernel="wgmma_overlapped")


@every_layout
@every_type
def test_gemm_of_rows_that_begin_anywhere(dtype, layout):
    """Operands and c are copied. Boxes inside C and across its edges are stored row by row."""
    run, result = {"kernel": "wgmma_specialized"}, result_dtype(dtype)
    m, n, k = 150, 335, 77
    a, b = operands(m, n, k, dtype, layout, slack=1)
    wide = random_tensor(n, 3 * n, dtype=result)
    addends = [
        wide[:m, :n],
        wide[:m, 1 : n + 1],
        wide[: 2 * m : 2, ::3],
        wide[:n, :m].t(),
        wide[:m, :1],
        wide[:1, :n],
    ]
    some = addends[LAYOUTS.index(layout) % 2 :: 2]
    with simulated_launches(FEW):
        check_gemm(a, b, out=poisoned(m, n + 2, dtype=result)[:, 1:-1], **run)
        for c in some:
            check_gemm(a, b, c, alpha=-3, beta=2, **run)
        check_gemm(a, b, out=poisoned(n, m, dtype=result).t(), **run)
        if dtype == BF16:
            check_gemm(a, b, wide[:m, :n].float(), beta=1, out_dtype=F32, **run)


@pytest.mark.parametrize(("dtype", "layout", "slack"), pairs((BF16, I8, F32), LAYOUTS, (0, 1)), ids=row_id)
def test_tiles_of_192_columns(dtype, layout, slack):
    """A tile has an odd number of boxes, so its staging boxes begin where those of the previous tile ended. Six
    tiles on three multiprocessors are stored by the TMA and by warps, with and without c."""
    run, result = {"kernel": "wgmma_specialized"}, result_dtype(dtype)
    with simulated_launches(FEW, count=True) as launches:
        for m, n, k in [(250, 576, 96), (576, 250, 96)]:  # C^T may have such tiles, too
            a, b = operands(m, n, k, dtype, layout, slack)
            c = random_tensor(m, n + 1, dtype=result)[:, slack:][:, :n]
            check_gemm(a, b, c, alpha=-3, beta=2, **run)
            check_gemm(a, b, out=poisoned(m, n + 2, dtype=result)[:, 1:-1], **run)
            if dtype == BF16:
                check_gemm(a, b, c.float(), beta=1, out_dtype=F32, **run)
    if layout == (True, False) and dtype != BF16:
        return  # rows of tiles are along the longer side of C
    functions = [x["function"] for x in launches if x["kernel"] == "wgmma_specialized"]
    assert any("Shape<192>" in function for function in functions), functions


# --- direct

DEPTH = {F64: 16, F32: 16, BF16: 32, I8: 64}  # k in a warp's step
WARPS = {F64: 12, F32: 12, BF16: 12, I8: 8}  # the most warps of a block


@pytest.mark.parametrize(
    ("shared", "dtype", "layout", "odd", "slack"),
    pairs(
        [  # Multiprocessors, m, n, steps of k; then warps of a tile, tiles of a block, and blocks that share k.
            (FEW, 60, 70, 1, 4, 1, 1),
            (H200, 64, 64, 11, None, 1, 1),
            (H200, 33, 50, 23, 4, 1, 3),
            (H200, 100, 100, 80, 4, 1, 10),
            (FEW, 120, 125, 5, 2, 2, 1),
            (FEW, 120, 190, 2, 1, 4, 1),
        ],
        DEPTH,
        LAYOUTS,
        (0, 3),
        (0, 3, 16),
    ),
    ids=row_id,
)
def test_how_direct_shares_k(shared, dtype, layout, odd, slack):
    multiprocessors, m, n, steps, warps, tiles, blocks = shared
    a, b = operands(m, n, steps * DEPTH[dtype] - odd, dtype, layout, slack)
    c = random_tensor(m, n, dtype=result_dtype(dtype))
    with simulated_launches(multiprocessors, count=True) as launches:
        check_gemm(a, b, c, alpha=-1, beta=2, kernel="direct")
    assert [launch["kernel"] for launch in launches] == ["direct"] + ["add_splits"] * (blocks > 1)
    x, y = sorted((-(-m // 32), -(-n // 32)), reverse=True)
    assert launches[0]["block"][0] == 32 * max(warps or WARPS[dtype], 4)
    assert launches[0]["grid"] == (-(-x // tiles), y, blocks)


@pytest.mark.parametrize(("dtype", "layout", "huge"), pairs(DEPTH, LAYOUTS, ("a", "b")), ids=row_id)
def test_direct_with_strides_beyond_32_bits_of_offset(dtype, layout, huge):
    """Up to 32 rows are 2^21 or more elements apart, so offsets inside a tile need 64 bits."""
    m, n, k = 9, 20, 37
    a, b = operands(m, n, k, dtype, layout)

    def spread(x, transposed):
        lines = x.t() if transposed else x
        far = torch.empty(len(lines), 2**21 + 8, dtype=dtype)[:, : lines.shape[1]].copy_(lines)
        return far.t() if transposed else far

    a, b = (spread(a, layout[0]), b) if huge == "a" else (a, spread(b, layout[1]))
    with simulated_launches(count=True) as launches:
        check_gemm(a, b, out=poisoned(m, n, dtype=result_dtype(dtype)), kernel="direct")
    (launch,) = launches
    assert ", long, false, false, 2>" in launch["function"]


@pytest.mark.parametrize(
    ("first", "width", "layout", "k", "dtype", "adds"),
    pairs((0, 1, 6, 15), (1100, 1121, 1127), LAYOUTS, (1, 9, 20), (BF16, F32, F64, I8), (False, True)),
    ids=row_id,
)
def test_tiles_of_outer_share_sectors(first, width, layout, k, dtype, adds):
    """Rows of several tiles that begin anywhere, and blocks that go down several tiles. Other elements stay."""
    n = width - first - (27 if width > 1100 else 0)
    a, b = operands(150, n, k, dtype, layout, slack=3)
    result = result_dtype(dtype)
    around = poisoned(150, width, dtype=result)
    before = around.clone()
    c, scales = (random_tensor(150, n, dtype=result), {"alpha": -1, "beta": 2}) if adds else (None, {})
    with simulated_launches(FEW, HOPPER):
        check_gemm(a, b, c, out=around[:, first : first + n], kernel="outer", **scales)
    for columns in (slice(0, first), slice(first + n, None)):
        assert torch.equal(around[:, columns].nan_to_num(7), before[:, columns].nan_to_num(7))
