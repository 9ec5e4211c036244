"""Tests grouped_bf16x6, float32 groups of rows by the tensor cores, on a GPU or on the simulator."""

import contextlib
import random
from itertools import accumulate

import fastgemm
import pytest
import torch
from reference import needs_simulator

ON_GPU = torch.cuda.is_available()
IS_HOPPER = ON_GPU and torch.cuda.get_device_capability() == (9, 0)
pytestmark = pytest.mark.skipif(not IS_HOPPER, reason="needs Hopper") if ON_GPU else needs_simulator
KERNEL = "grouped_bf16x6"


def grouped(a, b, sizes, bias=None, kernel=KERNEL):
    offs = torch.tensor(list(accumulate(sizes)), dtype=torch.int32)
    given = [x if x is None or not ON_GPU else x.cuda() for x in (a, b, offs, bias)]
    with contextlib.nullcontext() if ON_GPU else fastgemm.simulate():
        return fastgemm.grouped_mm(*given[:3], bias=given[3], kernel=kernel).cpu()


def exact(a, b, sizes, bias=None):
    """In float64; rows beyond the last group are zero."""
    result = torch.zeros(len(a), b.shape[-1], dtype=torch.float64)
    for i, end in enumerate(accumulate(sizes)):
        part = slice(end - sizes[i], end)
        result[part] = a[part].double() @ b[i].double()
        if bias is not None:
            result[part] += (bias if bias.dim() == 1 else bias[i]).double()
    return result


def moduli(a, b, sizes):
    return exact(a.abs(), b.abs(), sizes)


def test_random_products():
    """Odd sizes, any alignment and strides, operands by rows and by columns, a bias, one group and many, and empty
    groups."""
    random.seed(5)
    for i in range(40 if ON_GPU else 12):
        groups, n, k = (
            random.choice((1, 2, 40)),
            random.choice((1, 7, 64, 260)),
            random.choice((1, 9, 70, 200)),
        )
        sizes = [random.choice((0, 0, 1, 2, 30, 90)) for _ in range(groups)]
        a = torch.randn(sum(sizes) + 2, k + 3)[:, 2 : 2 + k]
        b = torch.randn(groups, k, n + 1)[..., 1:] if i % 2 else torch.randn(groups, n, k).mT
        a = a if i % 3 else a.T.contiguous().T
        bias = random.choice((None, torch.randn(n), torch.randn(groups, n)))
        result, expected = grouped(a, b, sizes, bias), exact(a, b, sizes, bias)
        bound = (k + 2) * 2**-24 * (moduli(a, b, sizes) + expected.abs())
        assert (result.double() - expected).abs().le(bound).all()


def test_it_errs_by_less_than_multiply_adds():
    a, b, sizes = torch.randn(90, 3000), torch.randn(2, 3000, 64), (70, 20)
    expected = exact(a, b, sizes)
    own, small = (
        (grouped(a, b, sizes, kernel=kernel).double() - expected).norm() for kernel in (KERNEL, "small")
    )
    assert own < 0.7 * small


def test_results_that_are_not_finite():
    """Infinities, numbers that round to infinity in a plane, and sums that overflow: infinities and NaN must be
    where IEEE arithmetic has them."""
    a, b, sizes = torch.randn(80, 150), torch.randn(3, 150, 40), (5, 70, 5)
    a[3, 7], a[30, 0], a[1, 2], b[1, 9, 20] = torch.inf, torch.nan, 3.4e38, -torch.inf
    a[60], a[77], b[2, :, 5] = 1e36, 1e30, 1e30
    bias = torch.randn(3, 40)
    with torch.no_grad():
        expected = exact(a, b, sizes, bias).float()
    result = grouped(a, b, sizes, bias)
    finite = expected.isfinite()
    assert torch.equal(result.isnan(), expected.isnan())
    assert torch.equal(result[~finite & ~expected.isnan()], expected[~finite & ~expected.isnan()])
    bound = 200 * 2**-24 * (moduli(a, b, sizes) + bias.abs().max())
    assert (result.double() - expected).abs()[finite].le(bound[finite]).all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_other_groups_do_not_leak(value):
    a, b, sizes = torch.randn(81, 64), torch.randn(3, 64, 48), (5, 70, 6)
    plain = grouped(a, b, sizes)
    a[5:75] = value
    spoilt = grouped(a, b, sizes)
    assert torch.equal(spoilt[:5], plain[:5]) and torch.equal(spoilt[75:], plain[75:])
    assert not spoilt[5:75].isfinite().any()


def test_what_it_leaves_to_other_rows():
    with pytest.raises(RuntimeError, match=KERNEL):
        grouped(torch.randn(4, 0), torch.randn(1, 0, 4), (4,))
