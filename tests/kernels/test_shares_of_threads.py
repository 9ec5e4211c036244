"""Tests products that several threads share unequally: each thread must stay within its memory."""

from collections.abc import Iterator

import fastgemm
import pytest
import torch
from reference import check_gemm, random_tensor
from test_complex import assert_right, random_complex


@pytest.fixture(autouse=True)
def as_many_threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [2, 4, 8])
@pytest.mark.parametrize("m", [11, 28, 51, 84])
def test_complex_rows_are_dealt_out_by_fewer_than_a_tile(m: int, threads: int) -> None:
    """The product takes long, so that threads run at the same time."""
    a, b = random_complex(m, 1000, dtype=torch.complex64), random_complex(1000, 2000, dtype=torch.complex64)
    torch.set_num_threads(threads)
    for _ in range(3):
        assert_right(fastgemm.matmul(a, b, kernel="pipelined"), a, b)


# On a processor without AMX, the kernel pipelined and the emulated tiles (tests/cpp) run the same loops over parts
# of k.
SPLITTING = [k.name for k in fastgemm.kernels(op="gemm", device="cpu", dtype=torch.bfloat16) if k.available]


@pytest.mark.parametrize("kernel", [name for name in SPLITTING if name in ("pipelined", "amx_bf16")])
def test_more_threads_than_blocks_of_k(kernel: str) -> None:
    """Long sums of a small result are split into parts. No part may be empty."""
    a, b = random_tensor(100, 3000, dtype=torch.bfloat16), random_tensor(3000, 100, dtype=torch.bfloat16)
    torch.set_num_threads(128)
    for _ in range(3):
        check_gemm(a, b, kernel=kernel)
