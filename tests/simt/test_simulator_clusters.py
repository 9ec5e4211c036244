"""Kernels whose blocks are clusters, on a simulated GPU of four multiprocessors: two clusters of two blocks, which
take several turns and share the tiles of the last one."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from reference import (
    check_gemm,
    needs_simulator,
    poisoned,
    random_tensor,
    result_dtype,
    simulated_launches,
)

pytestmark = needs_simulator

LAYOUTS = list(itertools.product((False, True), repeat=2))
every_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=["NN", "NT", "TN", "TT"])
DTYPES = [torch.bfloat16, torch.int8, torch.float32]


def operands(m, n, k, dtype, layout, slack):
    def view(rows, cols, transposed):
        shape = (cols, rows) if transposed else (rows, cols)
        x = random_tensor(shape[0], shape[1] + slack, dtype=dtype)[:, slack // 2 : slack // 2 + shape[1]]
        return x.t() if transposed else x

    return view(m, k, layout[0]), view(k, n, layout[1])


def clusters(launches):
    return [launch["cluster"] for launch in launches if launch["kernel"] == "wgmma_specialized"]


@every_layout
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("slack", [0, 16, 1])
def test_wgmma_specialized(dtype, layout, slack):
    """With and without c; in the last row of tiles the second block of a cluster has a part of C or all of it."""
    run = {"kernel": "wgmma_specialized"}
    result = result_dtype(dtype)
    with simulated_launches(multiprocessors=4) as launches:
        for m, n, k in [(250, 1000, 200), (500, 500, 96), (1000, 256, 40)]:
            if layout == (False, False) and dtype != torch.bfloat16:
                m, n = n, m
            a, b = operands(m, n, k, dtype, layout, slack)
            check_gemm(a, b, **run)
            c = random_tensor(m, n + 1, dtype=result)[:, random.choice((0, 1)) :][:, :n]
            check_gemm(a, b, c, alpha=-3, beta=2, **run)
            check_gemm(a, b, out=poisoned(m, n + 2, dtype=result)[:, 1:-1], **run)
    assert 2 in clusters(launches), clusters(launches)


@pytest.mark.parametrize(
    ("dtype", "n", "k"), [(DTYPES[0], 1279, 2400), (DTYPES[1], 1279, 4700), (DTYPES[2], 768, 1200)]
)
def test_tiles_that_clusters_share(dtype, n, k):
    """The last tile of a cluster is cut along k: each block adds what the block of its rank has left."""
    a, b = operands(250, n, k, dtype, (False, True), 0)
    with simulated_launches(multiprocessors=4) as launches:
        check_gemm(a, b, kernel="wgmma_specialized")
        check_gemm(a, b, random_tensor(250, n, dtype=result_dtype(dtype)), beta=2, kernel="wgmma_specialized")
    assert clusters(launches) == [2, 2]
    buffers = [buffer["bytes"] for launch in launches for buffer in launch["buffers"]]
    assert 4 * 128 * 256 * 4 in buffers, buffers  # partial sums


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batches_of_wgmma_specialized(dtype):
    """A cluster's tiles are of one matrix."""
    a, b = random_tensor(4, 200, 300, dtype=dtype), random_tensor(4, 1000, 300, dtype=dtype).mT
    c = random_tensor(4, 200, 1000, dtype=result_dtype(dtype))
    with simulated_launches(multiprocessors=4) as launches:
        check_gemm(a, b, kernel="wgmma_specialized")
        check_gemm(a[0], b, c, beta=3, kernel="wgmma_specialized")
    assert clusters(launches) == [2, 2]


def test_odd_rows_of_tiles_and_multiprocessors():
    """One block stays alone where a second would compute nothing, or has no neighbour."""
    a, b = torch.randn(300, 64).bfloat16(), torch.randn(64, 1536).bfloat16()
    with simulated_launches(multiprocessors=4) as launches:
        check_gemm(a, b, kernel="wgmma_specialized")
    with simulated_launches(multiprocessors=3) as more:
        check_gemm(a[:256], b, kernel="wgmma_specialized")
    assert clusters(launches + more) == [1, 1]
    assert all("Shape<256>" in launch["function"] for launch in launches + more)
