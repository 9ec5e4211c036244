"""Layers on the simulator, by every row that applies the epilogue itself: no pass follows, results are right."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import fastgemm
import pytest
import torch
from fastgemm._introspect import take_last_gemm_kernel
from layers import ACTIVATIONS, check, check_cancelled, layer
from reference import needs_simulator, row_id, simulated_launches
from test_simulator_planes import room_for_planes

pytestmark = needs_simulator

# The rows that fuse, with what they multiply. What a rung does to float16 it does to bfloat16.
RUNGS = [
    "naive",
    "naive_uncoalesced",
    "tiled",
    "thread_tile",
    "thread_tile_unpadded",
    "vectorized",
    "cp_async",
    "warp_specialized",
]
STEPS = ["wmma", "wgmma", "wgmma_ring", "wgmma_persistent", "wgmma_overlapped"]
PITFALLS = ["float4_padded68", "float4_padded65", "double_buffer_sync"]
HALF = [
    "wgmma_specialized",
    "mma_sync",
    "skinny",
    "small_tile",
    "split_k",
    "narrow",
    "direct",
    "small",
    "invariant",
]
FLOAT32 = ["bf16x6", "bf16x6_fused", "crt", "narrow", "direct", "small", "batched"]
HOPPER = {"warp_specialized", "wgmma_specialized", *STEPS[1:]}
# Those whose blocks may share the k of a tile.
SHARING = {"cp_async", "warp_specialized", *FLOAT32, *HALF} - {"invariant"}
ROWS = [(torch.bfloat16, row) for row in (*RUNGS, *STEPS, *HALF)] + [(torch.float16, row) for row in HALF]
ROWS += [(torch.float32, row) for row in (*RUNGS, *PITFALLS, *FLOAT32)]
every_row = pytest.mark.parametrize("dtype, row", ROWS, ids=row_id)
every_gpu = pytest.mark.parametrize("gpu", ["h200", "rtx 4090"])


def runs_here(row: str, gpu: str) -> bool:
    return gpu == "h200" or row not in HOPPER


@every_row
@pytest.mark.parametrize("shape", [(200, 136, 256), (3, 1024, 128), (64, 64, 2048)], ids=str)
def test_no_pass_after_rows_that_fuse(dtype, row, shape):
    x, w, b, r = layer(*shape, dtype, "cpu", residual=True)
    for capability in (90, 89):
        if not runs_here(row, "h200" if capability == 90 else "rtx 4090"):
            continue
        with simulated_launches(132, capability, count=False) as launches:  # the last one: a pass would be it
            check(x, w, b, r, "gelu", kernel=row)
        assert "finish" not in [launch["kernel"] for launch in launches]


@every_gpu
@every_row
def test_values(dtype, row, gpu):
    if not runs_here(row, gpu):
        pytest.skip("a row of Hopper")
    with fastgemm.simulate(gpu):
        shapes = ((70, 200, 96), (5, 133, 161), (200, 6, 130), (1, 36, 1400))
        for m, n, k in shapes[:2] if row in (*RUNGS, *PITFALLS) else shapes:
            x, w, b, r = layer(m, n, k, dtype, "cpu", residual=True)
            for activation in ("gelu", "relu", None):
                check(x, w, b, r, activation, kernel=row)
                assert take_last_gemm_kernel() == row
            check(x, w, None, None, "gelu_tanh", kernel=row)
            check(x, w, b, None, "silu", kernel=row)
            if dtype != torch.float32:
                check(x, w, b, None, "silu", kernel=row, out_dtype=torch.float32)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("dtype, row", [row for row in ROWS if row[0] != torch.float32], ids=row_id)
def test_a_residual_that_nearly_cancels(dtype, row, activation):
    with fastgemm.simulate("h200"):
        for k in (1, 3):
            check_cancelled(k, dtype, "cpu", activation, kernel=row)


@every_row
def test_layouts(dtype, row):
    x, w, b, r = layer(132, 80, 320, dtype, "cpu", residual=True)
    with fastgemm.simulate("h200"):
        check(x[::2], w[::2], b[::2], r[::2, ::2], "gelu", kernel=row)
        check(x[:, 3:], w[:, 3:], b, r.mT.contiguous().mT, "gelu", kernel=row)  # rows of odd addresses
        check(x.mT.contiguous().mT, w.mT.contiguous().mT, b, r, "gelu", kernel=row)
        check(x.view(4, 33, 320), w, b, r.view(4, 33, 80), "silu", kernel=row)
        batch = x.view(4, 33, 320).transpose(0, 1)  # whose members no single matrix holds
        check(batch, w, b, r.view(33, 4, 80), "silu", kernel=row)


@pytest.mark.parametrize("dtype, row", [row for row in ROWS if row[1] in SHARING], ids=row_id)
def test_long_sums_that_blocks_share(dtype, row):
    with fastgemm.simulate("h200"):
        for (m, n, k), activations in (((16, 24, 9000), ACTIVATIONS), ((2, 8, 20000), ("gelu",))):
            x, w, b, r = layer(m, n, k, dtype, "cpu", residual=True)
            for activation in ("silu",) if row in ("cp_async", "warp_specialized") else activations:
                check(x, w, b, r, activation, kernel=row)


@every_gpu
@pytest.mark.parametrize("row", ["bf16x3", "fp16x3"])
def test_rows_of_a_precision(row, gpu):
    with fastgemm.simulate(gpu):
        for m, n, k in ((70, 200, 96), (5, 133, 161), (200, 6, 130), (16, 24, 9000)):
            x, w, b, r = layer(m, n, k, torch.float32, "cpu", residual=True)
            for activation in ("gelu", "relu", None):
                check(x, w, b, r, activation, kernel=row, precision=row)
    x, w, b, r = layer(200, 136, 256, torch.float32, "cpu", residual=True)
    with simulated_launches(132, 90 if gpu == "h200" else 89, count=False) as launches:
        check(x, w, b, r, "gelu", kernel=row, precision=row)
    assert "finish" not in [launch["kernel"] for launch in launches]


@every_gpu
@pytest.mark.parametrize("row", [*FLOAT32, "cp_async", "bf16x3", "fp16x3"])
def test_sums_that_are_not_finite(row, gpu):
    """They are computed again, and meet the epilogue once."""
    precision = row if row in ("bf16x3", "fp16x3") else None
    bound = {"rtol": 2e-5, "atol": 2e-4} if row != "bf16x3" else {"rtol": 1e-3, "atol": 1e-2}
    for m, n, k in ((140, 70, 100), (20, 40, 9000)):
        x, w, b, r = layer(m, n, k, torch.float32, "cpu", residual=True)
        x[3, 5], x[8, 1], w[7, 2] = math.inf, math.nan, 3e38
        x[11, 2], x[12] = 3e38, 1e-38
        x[3, 2] = 0  # infinity and a product that overflows: what comes of them depends on the order
        with fastgemm.simulate(gpu):
            for activation in ("relu", "silu", None):
                result = fastgemm.linear(
                    x, w, b, residual=r, activation=activation, kernel=row, precision=precision
                )
                expected = ACTIVATIONS[activation](torch.nn.functional.linear(x, w, b)) + r
                assert result.isnan().equal(expected.isnan())
                finite = expected.isfinite()
                assert result[~finite & ~expected.isnan()].equal(expected[~finite & ~expected.isnan()])
                torch.testing.assert_close(result[finite], expected[finite], **bound)


@pytest.mark.parametrize("capability", [90, 89])
@pytest.mark.parametrize("row", ["bf16x6", "crt", "bf16x3", "fp16x3"])
def test_panels_of_c(row, capability):
    """Where planes of all of A and B find no room: each has its part of bias and residual."""
    options = {"precision": row} if row in ("bf16x3", "fp16x3") else {}
    x, w, b, r = layer(300, 600, 160, torch.float32, "cpu", residual=True)

    def run() -> list[str]:
        with simulated_launches(capability=capability) as launches:
            check(x, w, b, r, "gelu", kernel=row, **options)
        return [launch["kernel"] for launch in launches]

    with ThreadPoolExecutor(1) as other_thread, room_for_planes(4e5):  # simulations do not nest
        found = other_thread.submit(run).result()
    assert sum(name.startswith((row, "bf16x6", "repair", "join")) for name in found) > 2
    assert "finish" not in found


@every_gpu
def test_segments_of_k_and_sums_that_are_not_finite(gpu):
    x, w, b, r = layer(20, 24, 20000, torch.float32, "cpu", residual=True)
    x[3, 19999] = math.inf
    with fastgemm.simulate(gpu):
        result = fastgemm.linear(x, w, b, residual=r, activation="relu", kernel="bf16x6")
    expected = torch.relu(torch.nn.functional.linear(x.double(), w.double(), b.double())) + r
    assert result[3].isinf().equal(expected[3].isinf())
    torch.testing.assert_close(result.double(), expected, rtol=2e-5, atol=2e-4)
