"""Complex products by rows that take them as they are: what is refused, shared operands, and short memory."""

from __future__ import annotations

import fastgemm
import pytest
import torch
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


# The processor whose products were measured, as it is and by the variable that leaves instruction sets out.
MODEL = fastgemm.build_info()["cpu_model"]
ZEN_4 = MODEL.startswith("AuthenticAMD-25-") and "avx512" in MODEL


@pytest.mark.parametrize(
    "m, n, k, is_large",
    [
        (64, 512, 512, True),
        (63, 512, 512, False),
        (128, 16, 4096, True),
        (128, 15, 4096, False),
        (160, 160, 160, True),
        (159, 160, 160, False),
    ],
)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=row_id)
def test_which_kernel_is_expected_to_be_the_fastest(dtype, m, n, k, is_large):
    """From some rows, columns and products on this library's where it was measured, and MKL's everywhere else."""
    a, b = torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype)
    fastgemm.matmul(a, b)
    assert take_last_gemm_kernel() == ("pipelined" if ZEN_4 and is_large else "torch")
