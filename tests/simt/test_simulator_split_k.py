"""How split_k and dmma share k: in clusters, by a second kernel, by stream-K."""

from __future__ import annotations

import random

import pytest
import torch
from reference import check_gemm, needs_simulator, poisoned, random_tensor, result_dtype, simulated_launches
from test_simulator import every_layout, operands

pytestmark = needs_simulator


def last_launch(multiprocessors, a, b, kernel):
    """Kernel and grid of the last launch of a product, whose C may have rows that begin anywhere."""
    shape, dtype = (*a.shape[:-1], b.shape[-1]), result_dtype(a.dtype)
    with simulated_launches(multiprocessors=multiprocessors, count=False) as launches:
        beta, skip = random.choice((0, 2)), random.choice((0, 1, 8))
        c = random_tensor(*shape, dtype=dtype)
        out = poisoned(*shape[:-1], shape[-1] + 8, dtype=dtype)[..., skip:][..., : shape[-1]]
        check_gemm(a, b, c if beta else None, alpha=-1, beta=beta, out=out, kernel=kernel)
    return launches[-1]["kernel"], launches[-1]["grid"]


@every_layout
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("multiprocessors", "m", "n", "stages", "blocks"),
    [
        (132, 120, 90, 11, 2),
        (16, 130, 190, 17, 16),
        (132, 60, 250, 33, 16),
        (8, 120, 90, 33, None),
        (2, 300, 130, 11, 6),
    ],
    ids=["clusters of 2", "clusters of 4", "clusters of 8", "second kernel", "whole k"],
)
def test_split_k_adds(multiprocessors, m, n, stages, blocks, dtype, layout):
    """Parts of k of equal and of different length, the last of which ends inside a stage."""
    k = stages * 128 // dtype.itemsize - 5
    a, b = operands(m, n, k, dtype, layout, slack=random.choice((0, 0, 3, 16)))
    kernel, grid = last_launch(multiprocessors, a, b, "split_k")
    assert (kernel, grid[0]) == ("split_k", blocks) if blocks else kernel == "add_splits"


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16], ids=str)
def test_split_k_in_clusters_of_a_batch(dtype):
    a, b = random_tensor(3, 70, 1500, dtype=dtype), random_tensor(3, 1500, 140, dtype=dtype)
    clusters = 2 * (2 if dtype == torch.int8 else 4)
    assert last_launch(132, a, b, "split_k") == ("split_k", (clusters, 3, 1))


@every_layout
@pytest.mark.parametrize("kernel", ["dmma", "dmma_m8n8k4"])
@pytest.mark.parametrize(
    ("multiprocessors", "m", "n", "k", "blocks"),
    [
        (132, 130, 65, 700, 16),
        (5, 250, 140, 300, 5),
        (3, 250, 250, 700, 3),
        (132, 150, 140, 100, 6),
        (2, 140, 250, 90, 2),
    ],
    ids=["few tiles", "narrow, shared", "wide, shared", "narrow, whole", "wide, whole"],
)
def test_dmma_shares(multiprocessors, m, n, k, blocks, kernel, layout):
    a, b = operands(m, n, k, torch.float64, layout, slack=random.choice((0, 0, 1, 2)))
    assert last_launch(multiprocessors, a, b, kernel) == (kernel, (blocks, 1, 1))
