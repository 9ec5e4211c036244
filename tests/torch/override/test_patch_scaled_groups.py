"""Tests fastgemm.patch with torch's grouped products of 8-bit floating point, which torch has only on GPUs."""

from itertools import accumulate

import fastgemm
import pytest
import torch
from patches import needs_library
from torch.nn import functional

E4M3, E5M2, BF16, F32 = torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float32
IS_HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
pytestmark = [needs_library, pytest.mark.skipif(not IS_HOPPER, reason="needs Hopper")]

SIZES, K, N = (40, 0, 130, 6), 304, 272


def operands(sizes=SIZES, k=K, n=N):
    def codes(*shape):
        return torch.randn(shape, device="cuda").to(E4M3)

    rows = sum(sizes)
    scales = torch.rand(rows, device="cuda") + 0.5, torch.rand(len(sizes), n, device="cuda") + 0.5
    ends = torch.tensor(list(accumulate(sizes)), dtype=torch.int32, device="cuda")
    return codes(rows, k), codes(len(sizes), n, k).mT, *scales, ends


def multiply(a, b, scale_a, scale_b, ends, **options):
    return torch._scaled_grouped_mm(a, b, scale_a, scale_b, ends, **{"out_dtype": BF16, **options})


def assert_near(result, a, b, scale_a, scale_b, ends):
    begin = 0
    for i, end in enumerate(ends.tolist()):
        exact = (a[begin:end].double() * scale_a[begin:end, None]) @ (b[i].double() * scale_b[i])
        assert (result[begin:end].double() - exact).norm() <= 4e-3 * exact.norm()
        begin = end


@pytest.mark.parametrize("fast", [False, True])
def test_what_torch_takes(fast):
    given = operands()
    torchs = multiply(*given, use_fast_accum=fast)
    with fastgemm.patch() as routed:
        result = multiply(*given, use_fast_accum=fast)
    assert routed.ops == {"_scaled_grouped_mm": 1} and not routed.passed_on
    assert (result.shape, result.dtype, result.stride()) == (torchs.shape, torchs.dtype, torchs.stride())
    assert_near(result, *given)


def test_the_second_version():
    if not hasattr(functional, "scaled_grouped_mm"):
        pytest.skip("this torch has no scaled_grouped_mm")
    a, b, scale_a, scale_b, ends = given = operands()
    of_rows = functional.ScalingType.RowWise
    with fastgemm.patch() as routed:
        result = functional.scaled_grouped_mm(
            a, b, scale_a, of_rows, scale_b, of_rows, offs=ends, output_dtype=BF16
        )
    assert routed.ops == {"_scaled_grouped_mm_v2": 1}
    assert_near(result, *given)


@pytest.mark.parametrize(("n", "k"), [(264, 304), (272, 300)])
def test_what_torch_refuses(n, k):
    a, b, scale_a, scale_b, ends = operands(n=n, k=k)
    with pytest.raises((RuntimeError, ValueError)), fastgemm.patch():
        multiply(a, b, scale_a, scale_b, ends)
    with fastgemm.patch(extend=True) as routed:
        result = multiply(a, b, scale_a, scale_b, ends, out_dtype=F32)
    assert routed.total == 1 and result.dtype == F32
    assert_near(result, a, b, scale_a, scale_b, ends)


def test_passed_on():
    """torch multiplies groups of k, whose scales belong to each group."""
    ends = torch.tensor([16, 64], dtype=torch.int32, device="cuda")
    a, b = (torch.randn(32, 64, device="cuda").to(E4M3) for _ in range(2))
    scale_a, scale_b = torch.ones(64, device="cuda"), torch.ones(64, device="cuda")
    with fastgemm.patch() as routed:
        multiply(a, b.mT, scale_a, scale_b, ends)
    assert not routed.total
    assert routed.passed_on == {("_scaled_grouped_mm", "groups of other dimensions than rows"): 1}
