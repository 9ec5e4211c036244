"""Tests products at the limits of the routes that save packing: panel_dot.h, by_columns.h, in_place.h, and rows of
A read in place. Which route a product takes depends on the processor's L2; what it computes does not.
"""

from __future__ import annotations

import itertools

import fastgemm
import pytest
import torch
from fastgemm.bench.environment import using_threads

LAYOUTS = list(itertools.product("NT", repeat=2))
SHAPES = [
    (16, 700, 129),  # few rows: from k = 128 on
    (17, 65, 600),  # hardly more columns than threads have panels
    (48, 1003, 300),
    (49, 1003, 513),  # up to 128 rows if rows of B are contiguous
    (128, 515, 700),
    (129, 515, 700),
    (256, 256, 512),  # in place on several threads, and beyond
    (330, 330, 330),
    (90, 1536, 600),  # columns for each thread; A is read in place up to 1536 of them
    (150, 3072, 300),
]


def operand(rows: int, columns: int, layout: str, dtype: torch.dtype) -> torch.Tensor:
    """A random matrix with 3 numbers between its rows (or columns)."""
    sizes = (rows, columns) if layout == "N" else (columns, rows)
    x = torch.randn(sizes[0], sizes[1] + 3, dtype=torch.float64).to(dtype)[:, : sizes[1]]
    return x if layout == "N" else x.mT


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_are_right_in_all_layouts(shape, dtype):
    m, n, k = shape
    for a_layout, b_layout in LAYOUTS:
        a, b, c = operand(m, k, a_layout, dtype), operand(k, n, b_layout, dtype), operand(m, n, "N", dtype)
        exact, scale = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        bound = 2 * (k + 4) * torch.finfo(dtype).eps * scale
        with_c = 0.5 * exact - 2 * c.double()
        bound_with_c = bound + 8 * torch.finfo(dtype).eps * c.double().abs()
        for threads in (1, 2, 3):
            with using_threads(threads):
                plain = fastgemm.matmul(a, b, kernel="pipelined")
                added = fastgemm.gemm(a, b, alpha=0.5, beta=-2.0, c=c, kernel="pipelined")
            assert ((plain.double() - exact).abs() <= bound).all(), (a_layout, b_layout, threads)
            assert ((added.double() - with_c).abs() <= bound_with_c).all(), (a_layout, b_layout, threads)


def test_a_row_of_nan_stays_in_its_row():
    """Panels of B are read beyond the columns of a block, and tiles of A are padded."""
    a, b = torch.randn(20, 600), torch.randn(600, 700)
    a[3], b[5] = float("nan"), torch.inf
    result = fastgemm.matmul(a, b, kernel="pipelined")
    assert result[3].isnan().all()
    assert torch.equal(result.isnan(), torch.matmul(a, b).isnan())
