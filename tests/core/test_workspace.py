"""If scratch memory is short, level=None takes a kernel that needs less, and a named kernel raises."""

import re
from collections.abc import Iterator

import fastgemm
import pytest
import torch
from fastgemm import tuning
from reference import (
    DTYPES,
    by_name,
    check_gemm,
    needs_simulator,
    random_tensor,
    result_dtype,
    row_id,
    simulated_rows,
)

CPU_ROWS = [
    (row.name, dtype)
    for row in fastgemm.kernels("gemm", "cpu")
    for dtype in DTYPES
    if row.available and row.takes(dtype) and row.name != "torch" and row.role != "shortcut"
]


@pytest.fixture(autouse=True)
def no_limit_afterwards() -> Iterator[None]:
    yield
    tuning.limit_workspace(None)


def operands(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Problems with copied operands or split sums: odd leading dimensions, a long sum, few rows and columns."""
    return (
        random_tensor(67, 301, dtype=dtype),
        random_tensor(301, 35, dtype=dtype),
        random_tensor(67, 35, dtype=result_dtype(dtype)),
    )


def bytes_needed(kernel: str, call) -> int:
    """The bytes that a kernel requests in total. Each refused call on the way must leave the result unchanged."""
    limit = 0
    while True:
        tuning.limit_workspace(limit)
        try:
            call()
        except torch.OutOfMemoryError as error:
            found = re.search(r"kernel '(\w+)' needs a workspace of at least (\d+) bytes", str(error))
            assert found and found[1] == kernel and int(found[2]) > limit, error
            limit = int(found[2])
        else:
            return limit


def check_row(kernel: str, dtype: torch.dtype) -> None:
    a, b, c = operands(dtype)
    out, before = c.clone(), c.clone()
    choice = by_name(kernel, dtype)

    def call():
        assert torch.equal(out, before)
        fastgemm.gemm(a, b, out, beta=1, out=out, **choice)

    needed = bytes_needed(kernel, call)
    tuning.limit_workspace(None)
    expected = fastgemm.gemm(a, b, c, beta=1, **choice)
    assert torch.equal(out, expected)
    if needed:
        tuning.limit_workspace(needed - 1)
        with pytest.raises(torch.OutOfMemoryError, match=rf"kernel '{kernel}' .* at least {needed} bytes"):
            fastgemm.gemm(a, b, c, beta=1, **choice)


@pytest.mark.parametrize(("kernel", "dtype"), CPU_ROWS, ids=row_id)
def test_a_kernel_asks_for_its_workspace_before_it_writes(kernel, dtype):
    check_row(kernel, dtype)


CUDA_ROWS = simulated_rows("gemm")
# Only the first and the last type of each kernel, because it requests bytes for any type.
CUDA_ROWS = {(kernel, last) for kernel, last in dict(CUDA_ROWS).items()} | {
    (kernel, first) for kernel, first in dict(reversed(CUDA_ROWS)).items()
}


@needs_simulator
@pytest.mark.parametrize(("kernel", "dtype"), sorted(CUDA_ROWS, key=str), ids=row_id)
def test_a_cuda_kernel_asks_for_its_workspace_before_it_writes(kernel, dtype):
    with fastgemm.simulate():
        check_row(kernel, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=row_id)
def test_a_free_choice_goes_on_to_kernels_that_need_less(dtype):
    a, b, c = operands(dtype)
    for level in (None, 7):
        for limit in (0, 1000, 100_000):
            tuning.limit_workspace(limit)
            check_gemm(a, b, level=level)
            check_gemm(a, b, c, alpha=2, beta=3, out=c.clone(), level=level)
            check_gemm(a.expand(2, 67, 301), b, level=level)


@needs_simulator
@pytest.mark.parametrize("dtype", DTYPES, ids=row_id)
def test_a_free_choice_on_a_gpu_goes_on_to_kernels_that_need_less(dtype):
    a, b, c = operands(dtype)
    with fastgemm.simulate():
        for limit in (0, 1000, 100_000):
            tuning.limit_workspace(limit)
            check_gemm(a, b)
            check_gemm(a, b, c, alpha=2, beta=3, out=c.clone())


def test_a_level_raises(dtype=torch.float32):
    a, b, _ = operands(dtype)
    tuning.limit_workspace(0)
    with pytest.raises(
        torch.OutOfMemoryError, match=r"kernel 'microkernel' .* no more than 0 bytes are allowed"
    ):
        fastgemm.matmul(a, b, level=5)
    tuning.limit_workspace(None)
    check_gemm(a, b, level=5)
