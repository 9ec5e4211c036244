"""Tests fastgemm.patch with operations that torch delays: conjugation, negation, zeros without memory.

torch must resolve such tensors for ops with adjoints and for composite ops, as without a patch.
"""

import contextlib

import fastgemm
import pytest
import torch
from patches import needs_library
from processes import run_forked
from reference import every_device

pytestmark = [every_device, needs_library]


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.complex128)


# test_op_db.py tests the ops of linear algebra, also with complex types.
TAKE_ADJOINTS = {
    "pinv": lambda: torch.linalg.pinv(draw(5, 3)),
    "lstsq": lambda: torch.linalg.lstsq(draw(5, 3), draw(5, 2), driver="gels")[:2],  # solution and residuals
    "vecdot": lambda: torch.linalg.vecdot(draw(4, 5), draw(4, 5)),
    "vdot": lambda: torch.vdot(draw(5), draw(5)),
    "hfft": lambda: torch.fft.hfft(draw(9)),
    "hfft2": lambda: torch.fft.hfft2(draw(4, 5)),
    "ihfft": lambda: torch.fft.ihfft(draw(9).real),
    "product of a conjugate transpose": lambda: draw(4, 5) @ draw(6, 5).mH,
    "einsum of a conjugate": lambda: torch.einsum("bij,bjk->bik", draw(2, 3, 4).conj(), draw(2, 4, 5)),
    "product of an imaginary part": lambda: draw(4, 5).conj().imag @ draw(5, 6).real,
    "half of an imaginary part": lambda: draw(4, 5).conj().imag.half(),
    "batch of imaginary parts": lambda: draw(2, 3, 4).conj().imag @ draw(4, 5).conj().imag,
}


@pytest.mark.parametrize("inference", [False, True], ids=["", "inference mode"])
@pytest.mark.parametrize("call", TAKE_ADJOINTS)
def test_adjoints(call, inference, device):
    results = []
    for patch in contextlib.nullcontext(), fastgemm.patch():
        with torch.inference_mode(inference), torch.random.fork_rng(), patch:
            results.append(TAKE_ADJOINTS[call]())
    torch.testing.assert_close(*results)


def test_gradients_of_what_takes_adjoints(device):
    a, grads = draw(5, 3).requires_grad_(), []
    for patch in contextlib.nullcontext(), fastgemm.patch():
        with patch:
            grads += torch.autograd.grad(torch.linalg.pinv(a).abs().sum(), a)
    torch.testing.assert_close(*grads)


WRITE = {
    "mm": lambda out, a, b: torch.mm(a, b, out=out),
    "matmul": lambda out, a, b: torch.matmul(a, b, out=out),
    "addmm": lambda out, a, b: torch.addmm(out, a, b, alpha=2, beta=3, out=out),
    "addmm_": lambda out, a, b: out.addmm_(a, b, beta=2),
    "copy_": lambda out, a, b: out.copy_(a),
    "mul_": lambda out, a, b: out.mul_(3),
    "index_copy_": lambda out, a, b: out.index_copy_(0, torch.arange(2), a[:2]),
    "triu_": lambda out, a, b: out.triu_(),
}
LAZY = {
    "negative": lambda x: torch._neg_view(x),
    "imaginary part of a conjugate": lambda x: torch.complex(x, x).conj().imag,
    "conjugate": lambda x: torch.complex(x, 2 * x).conj(),
    "negative conjugate": lambda x: torch._neg_view(torch.complex(x, 2 * x).conj()),
}


@pytest.mark.parametrize("inference", [False, True], ids=["", "inference mode"])
@pytest.mark.parametrize("lazy", LAZY)
@pytest.mark.parametrize("op", WRITE)
def test_what_is_written_is_written_through_the_view(op, lazy, inference, device):
    """The view shows the result. The tensor behind the view holds the result's negative or conjugate."""
    start, a, b = (torch.randn(4, 4, dtype=torch.float64) for _ in range(3))
    shown, memory = [], []
    with torch.inference_mode(inference):
        for patch in contextlib.nullcontext(), fastgemm.patch():
            out = LAZY[lazy](start.clone())
            with patch:
                WRITE[op](out, a.to(out.dtype), b.to(out.dtype))
            assert out.is_neg() or out.is_conj()
            shown.append(out.resolve_conj().resolve_neg())
            base = torch._neg_view(out) if out.is_neg() else out
            memory.append(base.conj() if base.is_conj() else base)
    torch.testing.assert_close(shown[1], shown[0])
    torch.testing.assert_close(memory[1], memory[0])


FORWARD_MODE = """
import torch, fastgemm
from torch.autograd import forward_ad
a, b, c = (torch.randn(4, 4, device="{device}") for _ in range(3))
tangent = torch.randn_like(a)
def product(a):
    return torch.addmm(c, a, b, alpha=2, beta=3)
with fastgemm.patch():
    _, by_func = torch.func.jvp(product, (a,), (tangent,))
    with forward_ad.dual_level():
        by_dual = forward_ad.unpack_dual(product(forward_ad.make_dual(a, tangent))).tangent
for result in (by_func, by_dual):
    torch.testing.assert_close(result, 2 * tangent @ b)
"""


def test_forward_mode_meets_zeros_without_memory(device):
    """The tangent of a constant is such a zero tensor, and beta scales it."""
    done = run_forked(FORWARD_MODE.format(device=device))
    assert done.returncode == 0, done.stderr[-2000:]
