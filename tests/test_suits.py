"""Which of its kernels level 6 picks, without a GPU: the simulator has the same rows."""

from __future__ import annotations

import fastgemm
import pytest
import torch
from reference import assert_right, expected_gemm, needs_simulator

pytestmark = needs_simulator

def ran(gpu: str, dtype: torch.dtype = torch.float32, **choice: object) -> str:
    """The kernel that a product of 100 x 100 x 100 runs on a GPU."""
    (launch,) = fastgemm.explain("gemm", shape=(100, 100, 100), dtype=dtype, gpu=gpu, **choice).launches
    return launch.kernel


@pytest.mark.parametrize("gpu", ["L40S", "RTX 4090"])
def test_float32_is_not_computed_in_slow_float64(gpu):
    assert ran("A100", level=6) == ran("H200", level=6) == "direct"
    assert ran(gpu, level=6) != "direct"
    assert ran(gpu, kernel="direct") == "direct"
    assert ran(gpu, torch.float64, level=6) == "direct", "float64 has nothing else"
    a, b = torch.randn(100, 100), torch.randn(100, 100)
    with fastgemm.simulate(gpu):
        assert_right(fastgemm.matmul(a, b), expected_gemm(a, b), gpu)
