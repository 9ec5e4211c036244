"""Wrong uses of the Python functions: each message begins with the package, says what came and what is taken."""

from __future__ import annotations

import fastgemm
import pytest
import torch
from fastgemm import nn

A = torch.ones(4, 4)
LAYER = torch.nn.Linear(4, 4)
LEVEL = "level must be an int or None, got bool"
WRONG = {
    "convert": (
        lambda: nn.convert([1]),
        TypeError,
        "fastgemm.nn.convert: module must be a torch.nn.Module, got list",
    ),
    "revert": (
        lambda: nn.revert(None),
        TypeError,
        "fastgemm.nn.revert: module must be a torch.nn.Module, got NoneType",
    ),
    "kernels device": (
        lambda: fastgemm.kernels(device="gpu"),
        ValueError,
        "fastgemm.kernels: device must be 'cpu', 'cuda' or None, got 'gpu'",
    ),
    "kernels number": (
        lambda: fastgemm.kernels(device=3.5),
        ValueError,
        "fastgemm.kernels: device must be 'cpu', 'cuda' or None, got 3.5",
    ),
    "kernels op": (
        lambda: fastgemm.kernels("conv"),
        ValueError,
        "fastgemm.kernels: op must be 'gemm', 'transpose', 'add' or None, got 'conv'",
    ),
    "kernels dtype": (
        lambda: fastgemm.kernels(dtype="float32"),
        TypeError,
        "fastgemm.kernels: dtype must be a torch.dtype or None, got 'float32'",
    ),
    "autotune op": (
        lambda: fastgemm.autotune(A, op="gemm"),
        ValueError,
        "fastgemm.autotune: takes two operands for op='gemm', one for op='transpose'",
    ),
    "matmul level": (lambda: fastgemm.matmul(A, A, level=True), TypeError, LEVEL),
    "gemm level": (lambda: fastgemm.gemm(A, A, level=True), TypeError, LEVEL),
    "transpose level": (lambda: fastgemm.transpose(A, level=True), TypeError, LEVEL),
    "add level": (lambda: fastgemm.add(A, A, level=True), TypeError, LEVEL),
    "convert level": (lambda: nn.convert(LAYER, level=True), TypeError, f"fastgemm.nn.convert: {LEVEL}"),
    "patch level": (lambda: fastgemm.patch(level=True), TypeError, f"fastgemm.patch: {LEVEL}"),
    "patch level 9": (
        lambda: fastgemm.patch(level=9),
        ValueError,
        "fastgemm.patch: level must be 1 to 7 or None, got 9",
    ),
    "enable kernel": (
        lambda: fastgemm.enable(kernel="zz"),
        ValueError,
        "fastgemm.enable: there is no gemm kernel 'zz'; fastgemm.kernels('gemm') has all",
    ),
    "Linear level": (
        lambda: nn.Linear(4, 4, level=True),
        TypeError,
        f"fastgemm.nn.Linear: {LEVEL}",
    ),
    "explain gpu": (
        lambda: fastgemm.explain("gemm", shape=(8, 8, 8), gpu="zz"),
        ValueError,
        "fastgemm.explain: unknown gpu 'zz'; known: A100, H100, H200, L40S, RTX 4090",
    ),
    "explain level": (lambda: fastgemm.explain("gemm", level=True, shape=(8, 8, 8)), TypeError, LEVEL),
    "kernel of another device": (
        lambda: fastgemm.matmul(A, A, kernel="float4_padded65"),
        ValueError,
        "unknown kernel 'float4_padded65' for gemm on cpu; on cuda there is one, which fastgemm.simulate() runs",
    ),
    "kernel, misspelt": (
        lambda: fastgemm.matmul(A, A, kernel="microkernal"),
        ValueError,
        "unknown kernel 'microkernal' for gemm on cpu; the nearest names are 'microkernel'",
    ),
    "kernel, far from any": (
        lambda: fastgemm.transpose(A, kernel="zzzzqqq"),
        ValueError,
        "unknown kernel 'zzzzqqq' for transpose on cpu; fastgemm.kernels lists all",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_refused_in_words(name):
    call, kind, message = WRONG[name]
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert type(caught.value) is kind
    assert text.endswith(message) and text.startswith("fastgemm")
