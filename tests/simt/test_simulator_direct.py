"""How `direct` shares k: among the warps of a block and among blocks; and operands of huge strides."""

from __future__ import annotations

import random

import pytest
import torch
from reference import check_gemm, needs_simulator, poisoned, random_tensor, result_dtype, simulated_launches
from test_simulator import every_layout, operands

pytestmark = needs_simulator

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.int8)
H200 = 132  # multiprocessors
DEPTH = {torch.float64: 16, torch.float32: 16, torch.bfloat16: 32, torch.int8: 64}  # of k, in a warp's step
WARPS = {dtype: 8 if dtype == torch.int8 else 12 for dtype in DTYPES}  # of a block, at most

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@every_dtype
@every_layout
@pytest.mark.parametrize("odd", [0, 3])
@pytest.mark.parametrize(
    ("multiprocessors", "m", "n", "steps", "warps", "tiles", "blocks"),
    [
        # A tile's warps, tiles of a block, and blocks that share k.
        (3, 60, 70, 1, 4, 1, 1),
        (H200, 64, 64, 11, "most", 1, 1),
        (H200, 33, 50, 23, 4, 1, 3),
        (H200, 100, 100, 80, 4, 1, 10),
        (3, 120, 125, 5, 2, 2, 1),
        (3, 120, 190, 2, 1, 4, 1),
    ],
    ids=["4 warps", "all warps", "3 blocks", "10 blocks", "2 warps", "1 warp"],
)
def test_who_shares_k(multiprocessors, m, n, steps, warps, tiles, blocks, odd, layout, dtype):
    a, b = operands(m, n, steps * DEPTH[dtype] - odd, dtype, layout, slack=random.choice((0, 0, 3, 16)))
    c = random_tensor(m, n, dtype=result_dtype(dtype))
    with simulated_launches(multiprocessors) as launches:
        check_gemm(a, b, c, alpha=-1, beta=2, kernel="direct")
    names = [launch["kernel"] for launch in launches]
    assert names == ["direct"] + ["add_splits"] * (blocks > 1)
    x, y = sorted((-(-m // 32), -(-n // 32)), reverse=True)
    assert launches[0]["block"][0] == 32 * (WARPS[dtype] if warps == "most" else max(warps, 4))
    assert launches[0]["grid"] == (-(-x // tiles), y, blocks)


@every_dtype
@every_layout
def test_strides_beyond_32_bits_of_offset(layout, dtype):
    """Rows of up to 32 that lie 2^21 elements and more apart: offsets within a tile are 64 bits then."""
    pitch = 2**21 + 8
    m, n, k = 9, 20, 37

    def operand(rows, cols, transposed):
        lines, length = (cols, rows) if transposed else (rows, cols)
        x = torch.empty(lines, pitch, dtype=dtype)[:, :length]
        x.copy_(random_tensor(lines, length, dtype=dtype))
        return x.t() if transposed else x

    huge_b = random.random() < 0.5
    a = operands(m, n, k, dtype, layout)[0] if huge_b else operand(m, k, layout[0])
    b = operand(k, n, layout[1]) if huge_b else operands(m, n, k, dtype, layout)[1]
    with simulated_launches() as launches:
        check_gemm(a, b, out=poisoned(m, n, dtype=result_dtype(dtype)), kernel="direct")
    (launch,) = launches
    assert ", long, false, false, 2>" in launch["function"]
