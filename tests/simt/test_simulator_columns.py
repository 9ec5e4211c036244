"""wgmma_specialized with tiles of 192 columns: an odd number of boxes a tile, so that the staging boxes of a tile
begin where those of the one before ended."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from reference import check_gemm, needs_simulator, poisoned, random_tensor, result_dtype, simulated_launches

pytestmark = needs_simulator

LAYOUTS = list(itertools.product((False, True), repeat=2))


def operand(rows, columns, dtype, transposed, slack):
    shape = (columns, rows) if transposed else (rows, columns)
    x = random_tensor(shape[0], shape[1] + slack, dtype=dtype)[:, slack // 2 : slack // 2 + shape[1]]
    return x.t() if transposed else x


@pytest.mark.parametrize("layout", LAYOUTS, ids=["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8, torch.float32], ids=str)
@pytest.mark.parametrize("slack", [0, 1])
def test_four_tiles_a_block(dtype, layout, slack):
    """Twelve tiles on three multiprocessors, stored by the TMA and by warps, with and without c."""
    run = {"kernel": "wgmma_specialized"}
    result = result_dtype(dtype)
    with simulated_launches() as launches:
        for m, n, k in [(250, 1152, 96), (1152, 250, 96)]:  # of the second, C^T may have 192 columns
            a, b = operand(m, k, dtype, layout[0], slack), operand(k, n, dtype, layout[1], slack)
            c = random_tensor(m, n + 1, dtype=result)[:, random.choice((0, 1)) :][:, :n]
            check_gemm(a, b, **run)
            check_gemm(a, b, c, alpha=-3, beta=2, **run)
            check_gemm(a, b, out=poisoned(m, n + 2, dtype=result)[:, 1:-1], **run)
            if dtype == torch.bfloat16:
                check_gemm(a, b, c.float(), beta=1, out_dtype=torch.float32, **run)
    if layout == (True, False) and dtype != torch.bfloat16:
        return  # the longer side of C is that of the rows of tiles
    functions = [x["function"] for x in launches if x["kernel"] == "wgmma_specialized"]
    assert any("Shape<192>" in function for function in functions), functions
