"""Tests a GPU with full memory."""

from __future__ import annotations

import contextlib

import fastgemm
import pytest
import torch
from fastgemm import tuning
from reference import DEVICES, assert_right, check_gemm, expected_gemm

if "cuda" not in DEVICES:
    pytest.skip("no GPU that a CUDA kernel of this build can use", allow_module_level=True)

pytestmark = pytest.mark.parametrize("device", ["cuda"])


@pytest.fixture
def no_memory_left():
    """A function that limits torch's allocator to little more than the memory in use."""
    taken = []  # fills the free parts of torch's cached blocks

    def limit(more: int = 4 << 20) -> None:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
        for size in (1 << 30, 64 << 20, 16 << 20, 4 << 20):
            with contextlib.suppress(torch.OutOfMemoryError):
                while True:
                    taken.append(torch.empty(size, dtype=torch.int8))
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + more) / total)

    yield limit
    taken.clear()
    torch.cuda.set_per_process_memory_fraction(1.0)


def test_out_of_memory_in_a_workspace_raises_and_leaves_the_library_usable(no_memory_left):
    """Level 5 transposes a row-major A of float32 into a workspace, if there is memory for it."""
    a, b = torch.randn(4096, 4096), torch.randn(4096, 4096)
    expected = fastgemm.matmul(a, b, level=5)
    out = torch.empty_like(expected)
    failed = []
    no_memory_left()
    in_use = torch.cuda.memory_allocated()
    for row in fastgemm.kernels("gemm", "cuda", torch.float32):
        if row.level != 5 or not row.available:
            continue
        try:
            fastgemm.matmul(a, b, kernel=row.name, out=out)
        except torch.OutOfMemoryError as error:
            assert f"kernel '{row.name}' needs a workspace of at least" in str(error)
            failed.append(row.name)
    assert failed, "no level-5 kernel asked for a workspace"
    assert torch.cuda.memory_allocated() == in_use
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.equal(fastgemm.matmul(a, b, level=5, out=out), expected)


def test_where_memory_is_short_a_free_choice_takes_a_kernel_that_needs_less(no_memory_left):
    a, b = torch.randn(4096, 4096), torch.randn(4096, 4096)
    out = torch.empty(4096, 4096)
    key = tuning.gemm_key(a, b)
    try:
        tuning._remember(key, "bf16x6", tuning.environment("cuda"))
        assert tuning.chosen_kernel(key) == "bf16x6"
        no_memory_left()
        with pytest.raises(torch.OutOfMemoryError):
            fastgemm.matmul(a, b, kernel="bf16x6", out=out)
        fastgemm.matmul(a, b, out=out)
    finally:
        tuning.clear_cache()
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert_right(out, expected_gemm(a, b))


def test_out_of_memory_for_a_result(no_memory_left):
    a = torch.randn(8192, 64)
    no_memory_left()
    with pytest.raises(RuntimeError, match=r"out of memory"):  # 256 MB
        fastgemm.matmul(a, a.t())
    torch.cuda.set_per_process_memory_fraction(1.0)
    check_gemm(a[:100], a[:100].t())
