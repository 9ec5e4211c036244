"""Tests GEMM rows that may refuse a problem, and their messages."""

import fastgemm
import pytest
import torch
from reference import check_gemm, every_device, is_library, levels, random_tensor, row_id, rows

LIBRARY_ROWS = [row for row in rows("gemm") if is_library("gemm", *row[:2])]
# cuBLASLt's heuristic decides how many candidates there are. For int8 there is one.
PLAIN_ROWS = [row for row in LIBRARY_ROWS if row[2] != torch.int8 or row[1] in ("torch", "cublaslt_1")]


def operands(m, n, k, dtype):
    return random_tensor(m, k, dtype=dtype), random_tensor(k, n, dtype=dtype)


@pytest.mark.parametrize(("device", "kernel", "dtype"), PLAIN_ROWS, ids=row_id)
def test_libraries_take_plain_problems(kernel, dtype):
    """A library may refuse odd problems. If it refused all problems, every other test would still pass."""
    a, b = operands(64, 128, 96, dtype)
    if dtype == torch.int8:
        b = b.t().contiguous().t()  # on a GPU, torch's row takes only a column-major b
    assert check_gemm(a, b, kernel=kernel) is not None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dtype": torch.float16, "out_dtype": torch.float32}, "out_dtype"),
        ({"dtype": torch.int32, "alpha": 2}, "integer alpha"),
    ],
)
def test_a_kernel_that_does_not_take_the_problem_says_so(options, reason):
    a, b = operands(4, 4, 4, options.pop("dtype"))
    with pytest.raises(
        RuntimeError, match=rf"'torch' cannot run here: .*{reason}.*levels that can: 1, 2, 3, 4, 5, 6"
    ):
        fastgemm.gemm(a, b, kernel="torch", **options)
    check_gemm(a, b, **options)  # the default chooses another kernel
    check_gemm(a, b, level=7, **options)


@every_device
def test_rows_that_cannot_run_here_say_why(device):
    for row in fastgemm.kernels("gemm", device):
        if row.available:
            continue
        a, b = operands(4, 4, 4, getattr(torch, row.dtypes[0]))
        with pytest.raises(RuntimeError) as caught:
            fastgemm.matmul(a, b, kernel=row.name)
        assert f"kernel '{row.name}' cannot run here: {row.unavailable}" in str(caught.value)
        known = ", ".join(map(str, levels("gemm", device)))
        assert f"levels that can: {known}" in str(caught.value)
