"""Tests complex products in fastgemm.patch, also of conjugated views: scales, results and gradients."""

from collections.abc import Callable

import fastgemm
import pytest
import torch
from patches import needs_library
from reference import every_device
from torch import Tensor
from torch.nn import functional

pytestmark = [every_device, needs_library]

every_type = pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda x: x,
    "conjugated": lambda x: x.conj(),
    "conjugate transpose": lambda x: x.mT.contiguous().mH,
    "negative": lambda x: torch._neg_view(x),
}


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert (found.dtype, found.shape, found.is_conj()) == (expected.dtype, expected.shape, expected.is_conj())
    tolerance = 1e-4 if expected.dtype == torch.complex64 else 1e-12
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


CALLS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "mm": lambda a, b, c: torch.mm(a, b),
    "bmm": lambda a, b, c: torch.bmm(a.expand(3, *a.shape), b.expand(3, *b.shape)),
    "addmm": lambda a, b, c: torch.addmm(c, a, b, alpha=-2, beta=0.5),
    "baddbmm": lambda a, b, c: torch.baddbmm(c, a.unsqueeze(0), b.unsqueeze(0)),
    "complex scales": lambda a, b, c: torch.addmm(c, a, b, alpha=2 + 0j, beta=-1 + 0j),
    "addmm_": lambda a, b, c: c.clone().addmm_(a, b, beta=3),
    "addmm_ of a conjugated view": lambda a, b, c: c.clone().conj().addmm_(a, b),
    "mm out": lambda a, b, c: torch.mm(a, b, out=torch.empty_like(c)),
    "mm conjugated out": lambda a, b, c: torch.mm(a, b, out=torch.zeros_like(c).conj()),
}


@pytest.mark.parametrize(("level", "dtype"), [(None, torch.complex64), (5, torch.complex128)], ids=str)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("call", CALLS)
def test_products(call, view, level, dtype, device):
    a, b = VIEWS[view](torch.randn(6, 9, dtype=dtype)), VIEWS[view](torch.randn(9, 5, dtype=dtype))
    c = torch.randn(6, 5, dtype=dtype)
    expected = CALLS[call](a, b, c)
    with fastgemm.patch(level=level) as routed:
        found = CALLS[call](a, b, c)
    assert_close(found, expected)
    assert routed.total == 1 and not routed.passed_on
    if level is not None:
        assert "torch" not in routed.kernels


def test_an_imaginary_scale_is_torchs(device):
    a, c = torch.randn(4, 4, dtype=torch.complex64), torch.randn(4, 4, dtype=torch.complex64)
    expected = torch.addmm(c, a, a, alpha=2j)
    with fastgemm.patch() as routed:
        assert torch.equal(torch.addmm(c, a, a, alpha=2j), expected)
    assert routed.passed_on == {("addmm", "scales that complex64 does not hold"): 1}


@every_type
@pytest.mark.parametrize("bias", [False, True])
def test_layers(bias, dtype, device):
    x, weight = torch.randn(2, 3, 8, dtype=dtype), torch.randn(5, 8, dtype=dtype)
    offset = torch.randn(5, dtype=dtype) if bias else None
    conjugated = [None if t is None else t.conj() for t in (x, weight, offset)]
    expected = functional.linear(x, weight, offset)
    for choice in ({}, {"level": 5}, {"level": 5, "precision": "ieee"}):
        assert_close(fastgemm.nn.linear(x, weight, offset, **choice), expected)
        found = fastgemm.nn.linear(*conjugated, **choice)
        assert_close(found.conj().resolve_conj(), expected)
