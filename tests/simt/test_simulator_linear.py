"""Tests layers on the simulator, with all its checks. Rows that apply the epilogue themselves are tested without
a pass, other rows with the pass."""

import math
from itertools import cycle

import fastgemm
import pytest
import torch
from fastgemm._introspect import take_last_gemm_kernel
from layers import ACTIVATIONS, check, check_cancelled, layer
from pairwise import pairs
from reference import needs_simulator, row_id, simulated_launches
from test_simulator import SHARING
from test_simulator_planes import room_for_planes

pytestmark = needs_simulator

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
# These use different instructions for float16 and bfloat16.
HALF = [
    "wgmma_specialized",
    "wgmma_fused",
    "mma_sync",
    "one_wave",
    "skinny",
    "small_tile",
    "split_k",
    "narrow",
    "direct",
    "small",
    "invariant",
]
FLOAT32 = ["bf16x6", "bf16x6_fused", "crt", "narrow", "direct", "small", "batched"]
BY_PRECISION = ["bf16x3", "fp16x3"]
HOPPER = {"warp_specialized", "one_wave", "wgmma_specialized", "wgmma_fused"}
# Rows that launch other kernels on other GPUs.
TWICE = {"mma_sync", "skinny", "small_tile", "split_k", "invariant", "bf16x6", "bf16x6_fused", "crt"}
TWICE |= {*BY_PRECISION}
ROWS = [(BF16, row) for row in ("warp_specialized", *HALF)] + [(F16, row) for row in HALF]
ROWS += [(F32, row) for row in ("warp_specialized", *FLOAT32, *BY_PRECISION)]
# Rungs compute sums, and one pass follows all of them: by threads, vectors, warps, warpgroups and boxes.
PASSES = [(BF16, row) for row in ("naive", "vectorized", "wmma", "wgmma", "wgmma_overlapped")]
PASSES += [(F32, row) for row in ("tiled", "float4_padded68", "double_buffer_sync")]
every_row = pytest.mark.parametrize("dtype, row", ROWS, ids=row_id)
capabilities = pytest.mark.parametrize("capability", [90, 89])


def gpus(row: str) -> tuple[int, ...]:
    return (90, 89) if row in TWICE else (90,)


def choice(row: str) -> dict[str, str]:
    return {"kernel": row} | ({"precision": row} if row in BY_PRECISION else {})


def launched(
    layout: tuple, activation: str | None, multiprocessors: int = 3, capability: int = 90, **options
) -> str:
    """Checks a layer against the bound. Returns the kernel that it launched last, which would be the pass if
    there is one."""
    with simulated_launches(multiprocessors, capability) as launches:
        check(*layout, activation, **options)
    return launches[-1]["kernel"]


@pytest.mark.parametrize(
    "dtype, row, capability", [(*row, c) for row in ROWS for c in gpus(row[1])], ids=row_id
)
def test_rows_that_fuse(dtype, row, capability):
    """Each activation, with and without bias and residual, for whole, narrow, odd and long shapes."""
    shapes = [
        (140, 136, 128),
        (3, 520, 128),
        (64, 64, 1024),
        (70, 200, 96),
        (5, 133, 161),
        (200, 6, 130),
        (1, 36, 1400),
    ]
    turn = ROWS.index((dtype, row))
    activations = cycle([*ACTIVATIONS][turn % 5 :] + [*ACTIVATIONS][: turn % 5])
    cases = list(enumerate(zip(shapes, activations, strict=False)))
    if dtype != F32 or row in TWICE:  # types and GPUs alternate
        cases = cases[(turn + (capability == 89)) % 2 :: 2]
    for i, (shape, activation) in cases:
        x, w, b, r = layer(*shape, dtype, "cpu", residual=True)
        bias, residual = (b, None, b)[i % 3], (r, None)[(i + turn) % 2]
        found = launched((x, w, bias, residual), activation, 132, capability, **choice(row))
        assert take_last_gemm_kernel() == row
        if shape in shapes[:3] and activation:
            assert found != "finish"
    if dtype != F32:
        launched((x, w, b, None), "silu", 132, capability, kernel=row, out_dtype=F32)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("dtype, row", [row for row in ROWS if row[0] != F32], ids=row_id)
def test_a_residual_that_nearly_cancels(dtype, row, activation):
    with fastgemm.simulate("h200"):
        check_cancelled(3, dtype, "cpu", activation, kernel=row)


@every_row
def test_layouts(dtype, row):
    x, w, b, r = layer(132, 80, 64, dtype, "cpu", residual=True)
    if row in ("bf16x6", "crt"):  # these reject short sums
        x, w = torch.cat((x, x), 1), torch.cat((w, w), 1) / 2
    k = x.shape[1]
    with fastgemm.simulate("h200"):
        check(x[::2], w[::2], b[::2], r[::2, ::2], "gelu", **choice(row))
        check(x[:, 3:], w[:, 3:], b, r.mT.contiguous().mT, "gelu", **choice(row))  # rows at odd addresses
        check(x.mT.contiguous().mT, w.mT.contiguous().mT, b, r, "gelu", **choice(row))
        check(x.view(4, 33, k), w, b, r.view(4, 33, 80), "silu", **choice(row))
        batch = x.view(4, 33, k).transpose(0, 1)  # its members do not form a single matrix
        check(batch, w, b, r.view(33, 4, 80), "silu", **choice(row))


@pytest.mark.parametrize(
    "dtype, row", [row for row in ROWS if row[1] in SHARING and row[0] != F16], ids=row_id
)
def test_long_sums_that_blocks_share(dtype, row):
    launched(layer(16, 24, 6000, dtype, "cpu", residual=True), "silu", 132, **choice(row))


# --- edges of tiles, and bias that is copied

SIZES = {
    # Narrower tiles, rows that the TMA cannot store, tiles that blocks share.
    "wgmma_specialized": [(1, 64, 64), (129, 300, 264), (300, 136, 1000), (64, 514, 130)],
    "skinny": [(3, 64, 2048), (33, 130, 161), (200, 7, 512), (60, 129, 64)],
    "mma_sync": [(130, 264, 192), (65, 33, 70), (40, 64, 128)],
    "small_tile": [(130, 264, 192), (65, 33, 70), (40, 64, 128)],
}
WITH = {"bias": {}, "neither": {"bias": False}, "residual": {"residual": True}, "float32": {}}


@pytest.mark.parametrize(
    "row, size, given, dtype, capability",
    [
        (row, *case)
        for row, sizes in SIZES.items()
        for case in pairs(sizes, WITH, (F16, BF16), (90,) if row in HOPPER else (90, 80))
    ],
    ids=row_id,
)
def test_edges_of_tiles(row, size, given, dtype, capability):
    options = {"out_dtype": F32} if given == "float32" else {}
    operands = layer(*size, dtype, "cpu", **WITH[given])
    assert launched(operands, "gelu", 3, capability, kernel=row, **options) != "finish"


STRIPS = ["wgmma_fused", "wgmma_specialized", "invariant"]


@pytest.mark.parametrize("kernel", STRIPS)
def test_bias_whose_pairs_are_copied(kernel):
    """Odd columns, a bias that begins inside a pair of elements, a bias with a stride, and float32 results."""
    for n, step, begin in ((65, 1, 0), (64, 1, 1), (70, 2, 0), (161, 3, 1)):
        x, w, b, r = layer(70, n, 64, BF16, "cpu", residual=True)
        wide = torch.zeros(n * step + begin, dtype=b.dtype)
        wide[begin::step] = b
        for residual, options in ((r, {}), (None, {"out_dtype": F32})):
            assert launched((x, w, wide[begin::step], residual), "gelu", kernel=kernel, **options) != "finish"


@pytest.mark.parametrize("kernel", [*STRIPS, "mma_sync"])
def test_tf32(kernel):
    for m, n, k in ((130, 264, 96), (65, 33, 70), (4, 36, 100)):
        operands = layer(m, n, k, F32, "cpu", residual=True)
        assert launched(operands, "gelu", kernel=kernel, precision="tf32") != "finish"


# --- the pass, and what is chosen


def test_small_tiles_whose_k_is_split_leave_it_to_the_launch_that_adds():
    assert "add_splits" in launched(layer(16, 40, 4096, BF16, "cpu"), "gelu", kernel="small_tile")


@pytest.mark.parametrize("dtype, row", PASSES, ids=row_id)
def test_the_pass_of_rungs(dtype, row):
    """Tests all layouts. A 16-bit result is rounded once although a pass follows."""
    x, w, b, r = layer(70, 136, 96, dtype, "cpu", residual=True)
    assert launched((x, w, b, r), "gelu", 132, kernel=row) == "finish"
    assert launched((x.mT.contiguous().mT, w, b, None), "silu", 132, kernel=row) == "finish"


def test_what_fusion_saves():
    """The pass costs memory traffic: a float32 product is stored and read again before the result is stored."""
    m, n, k = 256, 512, 128
    sectors = {}
    for row in ("wgmma_overlapped", "wgmma_fused"):
        with simulated_launches(132, count=True) as launches:
            check(*layer(m, n, k, BF16, "cpu")[:3], None, "gelu", kernel=row)
        sites = [site for launch in launches for site in launch["sites"] if site["space"] == "global"]
        stores = sum(site["sectors"] for site in sites if "store" in site["kind"])
        sectors[row] = stores, [launch["kernel"] for launch in launches]
    assert sectors["wgmma_overlapped"] == (m * n * (4 + 2) // 32, ["wgmma_overlapped", "finish"])
    assert sectors["wgmma_fused"] == (m * n * 2 // 32, ["wgmma_fused"])


@pytest.mark.parametrize("kernel", ["naive", "tiled", "cp_async", "wmma", "dmma"])
def test_the_pass_of_float64(kernel):
    operands = layer(40, 70, 96, torch.float64, "cpu", residual=True)
    assert launched(operands, "gelu", kernel=kernel) == "finish"


@pytest.mark.parametrize("kernel", [*STRIPS, "mma_sync", "skinny"])
def test_the_pass_where_operands_do_not_lie_along_k(kernel):
    x, w, b, r = layer(40, 72, 96, BF16, "cpu", residual=True)
    assert launched((x.mT.contiguous().mT, w, b, r), "gelu", kernel=kernel) == "finish"


def test_the_pass_where_an_element_may_be_computed_again_after_its_store():
    for m in (3, 100):
        assert launched(layer(m, 70, 96, F32, "cpu", residual=True), "gelu", kernel="invariant") == "finish"


def test_every_level_and_no_terms():
    for level in range(1, 7):
        launched(layer(33, 40, 64, BF16, "cpu", residual=True), "silu", level=level)
    launched(layer(33, 40, 0, F32, "cpu", residual=True), "silu")


def test_the_choice_prefers_kernels_that_apply_the_epilogue():
    """A pass costs a launch, and memory traffic for the product."""
    assert launched(layer(8, 512, 1024, BF16, "cpu"), "gelu") != "finish"


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=row_id)
def test_rows_of_invariant_layers_have_the_same_bits(dtype, activation):
    """A separate kernel computes few rows. It must apply bias and activation as the general kernel does."""
    x, w, b, r = layer(1200, 200, 160, dtype, "cpu", residual=True)
    precision = "tf32" if dtype == F32 else None
    options = {"activation": activation, "kernel": "invariant", "precision": precision}
    for residual in (None, r):
        kernels, results = [], []
        parts = (slice(None), slice(5, 6), slice(3, 11), slice(64, 128))
        for part in parts:
            added = None if residual is None else residual[part]
            with simulated_launches() as launches:
                results.append(fastgemm.linear(x[part], w, b, residual=added, **options))
            kernels.append(launches[-1]["kernel"])
        assert all(y.equal(results[0][part]) for y, part in zip(results, parts, strict=True))
        if precision is None:  # tf32 has this kernel if only a bias is added, and no matrix
            assert kernels == ["wgmma_specialized", "decode", "decode", "decode"]


# --- sums that are computed again, and products that are divided


@pytest.mark.parametrize(
    "row, capability", [(row, c) for row in [*FLOAT32, *BY_PRECISION] for c in gpus(row)]
)
def test_sums_that_are_not_finite(row, capability):
    """These sums are computed again, but the epilogue is applied once."""
    bound = {"rtol": 2e-5, "atol": 2e-4} if row != "bf16x3" else {"rtol": 1e-3, "atol": 1e-2}
    for (m, n, k), activation in (((140, 70, 100), "silu"), ((20, 40, 3000), "relu"), ((33, 40, 100), None)):
        x, w, b, r = layer(m, n, k, F32, "cpu", residual=True)
        x[3, 5], x[8, 1], w[7, 2] = math.inf, math.nan, 3e38
        x[11, 2], x[12] = 3e38, 1e-38
        x[3, 2] = 0  # the sum of infinity and an overflowing product depends on the order
        with simulated_launches(132, capability):
            result = fastgemm.linear(x, w, b, residual=r, activation=activation, **choice(row))
        expected = ACTIVATIONS[activation](torch.nn.functional.linear(x, w, b)) + r
        assert result.isnan().equal(expected.isnan())
        infinite, finite = expected.isinf(), expected.isfinite()
        assert result[infinite].equal(expected[infinite])
        torch.testing.assert_close(result[finite], expected[finite], **bound)


@capabilities
@pytest.mark.parametrize("row", ["bf16x6", "crt", *BY_PRECISION])
def test_panels_of_c(row, capability):
    """The planes of A and B do not fit in memory. Each panel uses its part of bias and residual."""
    with room_for_planes(4e5), simulated_launches(capability=capability, count=True) as launches:
        check(*layer(300, 600, 160, F32, "cpu", residual=True), "gelu", **choice(row))
    found = [launch["kernel"] for launch in launches]
    assert sum(name.startswith((row, "bf16x6", "repair", "join")) for name in found) > 2
    assert "finish" not in found


@capabilities
def test_segments_of_k_and_sums_that_are_not_finite(capability):
    x, w, b, r = layer(20, 24, 16500, F32, "cpu", residual=True)
    x[3, 16499] = math.inf
    with simulated_launches(132, capability):
        result = fastgemm.linear(x, w, b, residual=r, activation="relu", kernel="bf16x6")
    expected = torch.relu(torch.nn.functional.linear(x.double(), w.double(), b.double())) + r
    assert result[3].isinf().equal(expected[3].isinf())
    torch.testing.assert_close(result.double(), expected, rtol=2e-5, atol=2e-4)
