"""Products with few columns read contiguous rows of a in place: the same bits as from packed rows."""

import fastgemm
import pytest
import torch

KERNELS = {
    "pipelined": (torch.float32, torch.float64, torch.int32, torch.int64),
    "dot_bf16": (torch.bfloat16,),
    "dot_int8": (torch.int8,),
}
CASES = [(kernel, dtype) for kernel, dtypes in KERNELS.items() for dtype in dtypes]


def drawn(rows: int, cols: int, dtype: torch.dtype) -> torch.Tensor:
    if not dtype.is_floating_point:
        return torch.randint(-128, 128, (rows, cols), dtype=dtype)
    return torch.randn(rows, cols).to(dtype)


@pytest.mark.parametrize(("kernel", "dtype"), CASES, ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_bits_of_packed_rows(kernel, dtype, threads):
    if kernel not in {row.name for row in fastgemm.kernels("gemm", "cpu", dtype)}:
        pytest.skip(f"this processor has no {kernel}")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for m, n, k in [
            *((40, 33, k) for k in (1, 2, 3, 4, 5, 6, 7, 8, 63, 64, 65)),
            (13, 1, 5000),
            (600, 130, 701),
            (300, 256, 130),
            (300, 257, 130),
            (500, 70, 9001),
            (600, 100, 4095),  # rows almost at multiples of 4 KiB
        ]:
            # What lies beside a must not be read into the result, and 1 + k makes rows begin anywhere.
            beside = torch.nan if dtype.is_floating_point else torch.iinfo(dtype).max
            around = torch.full((m, k + 2), beside, dtype=dtype)
            a = around[:, 1 : 1 + k].copy_(drawn(m, k, dtype))
            b = drawn(k, n, dtype)
            packed = fastgemm.matmul(a.mT.contiguous().mT, b, kernel=kernel)
            assert torch.equal(fastgemm.matmul(a, b, kernel=kernel), packed), (m, n, k)
            assert torch.equal(fastgemm.matmul(a.contiguous(), b, kernel=kernel), packed), (m, n, k)
    finally:
        torch.set_num_threads(before)
