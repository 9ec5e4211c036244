"""Layers on the simulator: epilogues in the kernels that multiply, and the pass after those that have none."""

from __future__ import annotations

import math

import fastgemm
import pytest
import torch
from fastgemm._explain.run import load_simulator
from fastgemm._introspect import take_last_gemm_kernel
from layers import ACTIVATIONS, check, layer
from reference import needs_simulator, row_id

pytestmark = needs_simulator

# The rows that fuse, with what they multiply.
HALF = ("wgmma_specialized", "mma_sync", "skinny", "small_tile", "split_k", "narrow", "direct")
FLOAT32 = ("bf16x6", "bf16x6_fused", "crt", "narrow", "direct")
ROWS = [(torch.bfloat16, row) for row in HALF] + [(torch.float32, row) for row in FLOAT32]
every_row = pytest.mark.parametrize("dtype, row", ROWS, ids=row_id)
every_gpu = pytest.mark.parametrize("gpu", ["h200", "rtx 4090"])


def launched(m: int, n: int, k: int, dtype: torch.dtype, row: str, capability: int = 90) -> list[str]:
    """The kernels that a layer launches, none of which runs."""
    x, w, b, r = layer(m, n, k, dtype, "cpu", residual=True)
    simulator = load_simulator()
    simulator.begin(True, True, multiprocessors=132, max_blocks=0, capability=capability, run=False)
    try:
        fastgemm.linear(x, w, b, residual=r, activation="gelu", kernel=row)
    finally:
        found = simulator.end()
    return [launch["kernel"] for launch in found]


def runs_here(row: str, gpu: str) -> bool:
    return gpu == "h200" or row != "wgmma_specialized"


@every_row
@pytest.mark.parametrize("shape", [(200, 136, 256), (3, 4096, 128), (64, 64, 8192)], ids=str)
def test_no_pass_after_rows_that_fuse(dtype, row, shape):
    for capability in (90, 89):
        if runs_here(row, "h200" if capability == 90 else "rtx 4090"):
            assert "finish" not in " ".join(launched(*shape, dtype, row, capability))


def test_a_pass_after_rows_that_do_not():
    assert "finish" in " ".join(launched(64, 64, 96, torch.float32, "small"))
    assert "finish" in " ".join(launched(64, 64, 96, torch.float64, "dmma"))


@every_gpu
@every_row
def test_values(dtype, row, gpu):
    if not runs_here(row, gpu):
        pytest.skip("a row of Hopper")
    with fastgemm.simulate(gpu):
        for m, n, k in ((70, 200, 96), (5, 133, 161), (200, 6, 130), (1, 36, 1400)):
            x, w, b, r = layer(m, n, k, dtype, "cpu", residual=True)
            for activation in ("gelu", "relu", None):
                check(x, w, b, r, activation, kernel=row)
                assert take_last_gemm_kernel() == row
            check(x, w, None, None, "gelu_tanh", kernel=row)
            check(x, w, b, None, "silu", kernel=row)


@every_row
def test_layouts(dtype, row):
    x, w, b, r = layer(132, 80, 320, dtype, "cpu", residual=True)
    with fastgemm.simulate("h200"):
        check(x[::2], w[::2], b[::2], r[::2, ::2], "gelu", kernel=row)
        check(x[:, 3:], w[:, 3:], b, r.mT.contiguous().mT, "gelu", kernel=row)  # rows of odd addresses
        check(x.mT.contiguous().mT, w.mT.contiguous().mT, b, r, "gelu", kernel=row)
        check(x.view(4, 33, 320), w, b, r.view(4, 33, 80), "silu", kernel=row)
        check(x.view(4, 33, 320).transpose(0, 1), w, b, None, "silu", kernel=row)


@every_row
def test_long_sums_that_blocks_share(dtype, row):
    with fastgemm.simulate("h200"):
        for m, n, k in ((16, 24, 9000), (2, 8, 20000)):
            x, w, b, r = layer(m, n, k, dtype, "cpu", residual=True)
            for activation in ACTIVATIONS:
                check(x, w, b, r, activation, kernel=row)


@every_gpu
@pytest.mark.parametrize("row", FLOAT32)
def test_sums_that_are_not_finite(row, gpu):
    """They are computed again, and meet the epilogue once."""
    for m, n, k in ((140, 70, 100), (20, 40, 9000)):
        x, w, b, r = layer(m, n, k, torch.float32, "cpu", residual=True)
        x[3, 5], x[8, 1], w[7, 2] = math.inf, math.nan, 3e38
        x[11, 2], x[12] = 3e38, 1e-38
        x[3, 2] = 0  # infinity and a product that overflows: what comes of them depends on the order
        with fastgemm.simulate(gpu):
            for activation in ("relu", "silu", None):
                result = fastgemm.linear(x, w, b, residual=r, activation=activation, kernel=row)
                expected = ACTIVATIONS[activation](torch.nn.functional.linear(x, w, b)) + r
                assert result.isnan().equal(expected.isnan())
                finite = expected.isfinite()
                assert result[~finite & ~expected.isnan()].equal(expected[~finite & ~expected.isnan()])
                torch.testing.assert_close(result[finite], expected[finite], rtol=2e-5, atol=2e-4)
