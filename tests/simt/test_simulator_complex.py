"""Tests complex products and the pass before them, on the simulator with all its checks."""

import fastgemm
import pytest
import torch
from reference import needs_simulator

pytestmark = [needs_simulator, pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")]

VIEWS = {
    "rows": lambda x: x,
    "columns": lambda x: x.mT.contiguous().mT,
    "conjugated columns": lambda x: x.mT.contiguous().mH,
    "scattered": lambda x: torch.stack([x, x + 1], -1).flatten(-2)[..., ::2],
}
TOLERANCE = {torch.complex32: 0.05, torch.complex64: 1e-5, torch.complex128: 1e-13}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("view", VIEWS)
def test_doubled_rows(dtype, view):
    for k, n in ((33, 40), (5, 70), (1, 1), (64, 32)):
        a = torch.randn(3, k, dtype=torch.complex128).to(dtype)
        b = VIEWS[view](torch.randn(2, k, n, dtype=torch.complex128).to(dtype))
        expected = a.to(torch.complex128) @ b.resolve_conj().to(torch.complex128)
        with fastgemm.simulate():
            found = fastgemm.matmul(a.conj().resolve_conj().conj(), b, level=2)
        assert float((found.to(torch.complex128) - expected).abs().max()) < TOLERANCE[dtype] * k


def test_elements_that_start_at_a_part():
    memory = torch.randn(1 + 2 * 12 * 9, dtype=torch.float64)
    b = torch.frombuffer(memory.numpy(), dtype=torch.complex128, offset=8).view(12, 9)
    a = torch.randn(4, 12, dtype=torch.complex128)
    with fastgemm.simulate():
        found = fastgemm.matmul(a, b, level=2)
    torch.testing.assert_close(found, a @ b)
