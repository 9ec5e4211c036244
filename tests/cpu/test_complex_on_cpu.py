"""Complex products by rows that take them as they are: what is refused, shared operands, and short memory."""

from __future__ import annotations

import fastgemm
import pytest
import torch
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
    """A batch whose long sums are split among threads, added to where it is stored."""
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
