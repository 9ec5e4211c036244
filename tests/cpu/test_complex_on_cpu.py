"""Tests complex products by rows that take them directly: refused calls, shared operands, too little memory."""

from collections.abc import Iterator

import fastgemm
import pytest
import torch
from fastgemm import _introspect
from fastgemm._introspect import take_last_gemm_kernel
from reference import row_id


def test_precisions_of_float64_are_not_complex64s():
    a = torch.randn(9, 9, dtype=torch.complex64)
    for choice in ({}, {"level": 6}, {"kernel": "pipelined"}, {"level": 5}):
        with pytest.raises(ValueError, match="'crt14' is for float64 operands only"):
            fastgemm.matmul(a, a, precision="crt14", **choice)


def test_symmetric_batches_that_share_their_operands():
    e = torch.randn(16, 12, dtype=torch.complex64).expand(3, 16, 12)
    torch.testing.assert_close(fastgemm.gemm(e, e.mH, kernel="symmetric"), e @ e.mH)


@pytest.mark.parametrize("dtype, n", [(torch.float32, 64), (torch.complex64, 48)], ids=row_id)
def test_short_memory_is_known_before_c_is_overwritten(dtype, n):
    """A batch with long sums, which are split among threads. c is the result itself."""
    a, b, c = (torch.randn(12, *shape, dtype=dtype) for shape in ((n, 4096), (4096, n), (n, n)))
    expected = c + a @ b
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for limit in (10_000, 1 << 18, 1 << 20, 3 << 20, 6 << 20, None):
            fastgemm.tuning.limit_workspace(limit)
            out = c.clone()
            try:
                fastgemm.gemm(a, b, out, beta=1, out=out, kernel="pipelined")
            except RuntimeError:
                assert limit is not None and torch.equal(out, c)
            else:
                torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-2)
    finally:
        torch.set_num_threads(threads)
        fastgemm.tuning.limit_workspace(None)


# The least rows, columns and edges from which own kernels are chosen, on the measured processors: Zen 4, which
# computes one vector of 64 bytes per cycle, and Zen 5, which computes two.
ZEN_4, ZEN_5 = (64, 16, 160), (8, 12, 96)
UNKNOWN = {"model": "GenuineIntel-6-143-avx512", "isa": "avx512", "vector_issue": 2.0}
AMD = UNKNOWN | {"model": "AuthenticAMD-26-1-avx512"}


@pytest.fixture
def processor() -> Iterator:
    """Replaces the description of this processor by another one."""
    yield _introspect.set_cpu
    _introspect.set_cpu(None)


def taken(m: int, n: int, k: int, dtype: torch.dtype) -> str:
    fastgemm.matmul(torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype))
    return take_last_gemm_kernel()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=row_id)
@pytest.mark.parametrize("least, issue", [(ZEN_4, 1.0), (ZEN_5, 2.0)], ids=["Zen 4", "Zen 5"])
def test_which_kernel_is_expected_to_be_the_fastest(dtype, least, issue, processor):
    """From a measured number of rows, columns and operations on, an own kernel is chosen."""
    processor(AMD | {"vector_issue": issue})
    rows, columns, edge = least
    assert taken(rows, 512, 512, dtype) == taken(512, columns, 512, dtype) == "pipelined"
    assert taken(rows - 1, 512, 512, dtype) == taken(512, columns - 1, 512, dtype) == "torch"
    assert taken(edge, edge, edge, dtype) == "pipelined"
    assert taken(edge - 1, edge, edge, dtype) == "torch"


def test_other_processors_leave_it_to_mkl(processor):
    processor(UNKNOWN)
    assert taken(512, 512, 512, torch.complex64) == "torch"
