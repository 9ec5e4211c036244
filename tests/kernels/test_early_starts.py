"""Tests products in sequence without synchronization. On Hopper a kernel begins before the previous one has ended.
It must wait before it reads the result, overwrites the operands, or reuses the workspace of that kernel."""

import fastgemm
import pytest
import torch
from reference import every_device
from torch import Tensor

KERNELS = (None, "one_wave", "wgmma_specialized", "split_k", "skinny", "small_tile", "narrow", "invariant")
# Rows of x, sides of the weights, and unused elements between rows.
SIZES = ((64, 256, 0), (192, 512, 0), (100, 250, 3), (8, 2048, 0))


def chain(x: Tensor, weights: list[Tensor], kernel: str | None, wait: bool) -> Tensor:
    """Each product reads the previous product's result and overwrites that product's operand."""
    first, buffers = x.clone(), [torch.empty_like(x), torch.empty_like(x)]
    x = first
    for turn, weight in enumerate([*weights, *weights]):
        out = buffers[turn % 2]
        out.fill_(float("nan"))
        added = {"c": first, "beta": 0.5} if turn % 3 else {}
        fastgemm.gemm(x, weight, **added, out=out, kernel=kernel)
        if wait and x.is_cuda:
            torch.cuda.synchronize()
        x = out
    return x.clone()


@every_device
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("m", "side", "slack"), SIZES)
def test_a_chain_is_the_same_without_waiting(device, kernel, m, side, slack):
    rows = {row.name for row in fastgemm.kernels("gemm", device, torch.bfloat16) if row.available}
    if kernel and kernel not in rows:
        pytest.skip(f"{kernel} is not for this device")
    x = torch.randn(m, side + slack, device=device).bfloat16()[:, :side]
    weights = [
        (torch.randn(side, side + slack, device=device) / side**0.5).bfloat16()[:, :side].mT for _ in range(4)
    ]
    expected = chain(x, weights, kernel, wait=True)
    assert expected.isfinite().all()
    for _ in range(5):
        assert torch.equal(chain(x, weights, kernel, wait=False), expected)
    if device == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = chain(x, weights, kernel, wait=False)
        for _ in range(5):
            found.zero_()
            graph.replay()
            assert torch.equal(found, expected)
