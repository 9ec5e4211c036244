"""What complex products refuse, and how they say it."""

from __future__ import annotations

import fastgemm
import pytest
import torch
from test_complex import random_complex

REFUSED = {
    "real and complex": (
        lambda a: fastgemm.matmul(a, a.real),
        "b has dtype torch.float32, but a has torch.complex64",
    ),
    "inner sizes": (lambda a: fastgemm.matmul(a, a[:2]), r"inner sizes differ: a is \(3, 3\), b is \(2, 3\)"),
    "out_dtype": (lambda a: fastgemm.matmul(a, a, out_dtype=torch.complex128), "accepted: torch.complex64"),
    "type of c": (
        lambda a: fastgemm.gemm(a, a, a.real),
        "c has dtype torch.float32, expected that of the result",
    ),
    "shape of c": (lambda a: fastgemm.gemm(a, a, a[:2]), r"c has shape \(2, 3\), which does not broadcast"),
    "type of out": (lambda a: fastgemm.matmul(a, a, out=a.real.clone()), "out has dtype torch.float32"),
    "shape of out": (lambda a: fastgemm.matmul(a, a, out=a[:2].clone()), r"expected \(3, 3\)"),
    "out overlaps": (lambda a: fastgemm.matmul(a, a.clone(), out=a), "out overlaps a"),
    "out overlaps b": (lambda a: fastgemm.matmul(a.clone(), a, out=a), "out overlaps b"),
    "beta without c": (lambda a: fastgemm.gemm(a, a, beta=2.0), "beta is 2 but there is no c"),
    "precision": (
        lambda a: fastgemm.matmul(a.to(torch.complex128), a.to(torch.complex128), precision="tf32"),
        "is for float32 operands only",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    call, text = REFUSED[name]
    with pytest.raises(ValueError, match=text):
        call(random_complex(3, 3, dtype=torch.complex64))


def test_scales_are_real():
    a = random_complex(3, 3, dtype=torch.complex64)
    with pytest.raises(TypeError, match="alpha must be a float, got complex"):
        fastgemm.gemm(a, a, alpha=1j)
