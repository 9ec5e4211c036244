"""Products dealt out to several threads, at sizes where shares are uneven: each share stays within its memory."""

from __future__ import annotations

from collections.abc import Iterator

import fastgemm
import pytest
import torch


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("m", [11, 28, 51, 84])
def test_complex_rows_are_dealt_out_by_fewer_than_a_tile(m: int, count: int) -> None:
    """The product takes long, so that threads overlap."""
    a, b = torch.randn(m, 1000, dtype=torch.complex64), torch.randn(1000, 2000, dtype=torch.complex64)
    exact = a.to(torch.complex128) @ b.to(torch.complex128)
    torch.set_num_threads(count)
    for _ in range(3):
        found = fastgemm.matmul(a, b, kernel="pipelined")
        assert (found - exact).abs().max() < 1e-2


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("kernel", ["pipelined", "amx_bf16"])
def test_more_threads_than_blocks_of_k(kernel: str) -> None:
    """A small result of a long sum is summed in parts, of which none is empty."""
    (row,) = [each for each in fastgemm.kernels(op="gemm", device="cpu") if each.name == kernel]
    if not row.available:
        pytest.skip(str(row.unavailable))
    a = torch.randn(200, 3000).bfloat16()
    b = torch.randn(3000, 100).bfloat16()
    torch.set_num_threads(128)
    for _ in range(3):
        found = fastgemm.matmul(a[:100], b, kernel=kernel)
        assert (found.double() - a[:100].double() @ b.double()).abs().max() < 4
