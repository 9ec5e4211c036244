"""Layers with an epilogue, and the error bounds of their results, for the tests of fastgemm.linear.

The reference is computed in float64. Sums must obey the bounds of the plain product (reference.py). An
activation multiplies their error by at most 1.13, its largest slope, and adds an error of a few units in the
last place of float32 (docs/linear.md). If a library's row is named, its rounding before the pass is added.
"""

import math
from typing import Any

import fastgemm
import torch
from reference import OPERAND_ROUNDING, UNIT_ROUNDOFF
from torch import Tensor
from torch.nn import functional

ACTIVATIONS = {
    None: lambda x: x,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}
SLOPE = 1.13


def layer(
    m: int, n: int, k: int, dtype: torch.dtype, device: str, *, bias: bool = True, residual: bool = False
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Operands whose sums have a standard deviation of 2, so that the whole range of an activation is
    used."""
    x = torch.randn(m, k, dtype=torch.float64)
    w = torch.randn(n, k, dtype=torch.float64) * 2 / math.sqrt(max(k, 1))
    b = torch.randn(n, dtype=torch.float64) if bias else None
    r = torch.randn(m, n, dtype=torch.float64) if residual else None
    return tuple(None if t is None else t.to(dtype).to(device) for t in (x, w, b, r))  # type: ignore[return-value]


def check(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    r: Tensor | None = None,
    activation: str | None = None,
    rounds_twice: bool = False,
    **options: Any,
) -> Tensor:
    """Runs fastgemm.linear, checks its result against the bound, and returns it."""
    result = fastgemm.linear(x, w, b, activation=activation, residual=r, **options)
    wide = [None if t is None else t.detach().cpu().double() for t in (x, w, b, r)]
    x64, w64, b64, r64 = wide
    product = inner = x64 @ w64.mT
    sizes = x64.abs() @ w64.abs().mT
    if b64 is not None:
        inner, sizes = inner + b64, sizes + b64.abs()
    value = ACTIVATIONS[activation](inner)
    expected = value if r64 is None else value + r64
    k = x.shape[-1]
    unit = UNIT_ROUNDOFF[torch.float64 if x.dtype == torch.float64 else torch.float32]
    sums = 2 * unit * (math.sqrt(k) + 3) * sizes
    if (rounding := OPERAND_ROUNDING.get(options.get("precision"))) is not None:
        sums += rounding * min(1, 16 / math.sqrt(max(k, 1))) * sizes
    half = x.dtype in (torch.float16, torch.bfloat16)
    bound = SLOPE * sums + (16 if half else 8) * unit * value.abs() + 8 * unit + 2 * unit * expected.abs()
    if half and rounds_twice:
        bound += SLOPE * UNIT_ROUNDOFF[x.dtype] * product.abs()
    if half and result.dtype == x.dtype:
        bound += UNIT_ROUNDOFF[x.dtype] * expected.abs() + 2**-25
    assert result.shape == expected.shape and result.device == x.device
    error = (result.detach().cpu().double() - expected).abs()
    wrong = ~(error <= bound)
    assert not wrong.any(), (
        f"{int(wrong.sum())} of {wrong.numel()} wrong, the worst by {(error / bound).max():.2f} bounds"
    )
    return result


def check_cancelled(k: int, dtype: torch.dtype, device: str, activation: str, **options: Any) -> None:
    """Checks a 16-bit layer whose residual is the rounded negative activation, so that the result is the
    activation's error.

    The error may be that of float32: 2^-20 of the activation and 2^-24 of the sum (docs/linear.md). The
    rounding errors of K terms, of the bias and of the result are added.
    """
    x, w, b, _ = layer(70, 136, k, dtype, device)
    x64, w64, b64 = (t.cpu().double() for t in (x, w, b))
    inner = x64 @ w64.mT + b64
    value = ACTIVATIONS[activation](inner)
    residual = (-value).to(dtype)
    result = fastgemm.linear(x, w, b, activation=activation, residual=residual.to(device), **options)
    expected = value + residual.double()
    sizes = x64.abs() @ w64.abs().mT + b64.abs()
    unit = UNIT_ROUNDOFF[torch.float32]
    bound = unit * (16 * value.abs() + inner.abs() + 2 * SLOPE * k * sizes + 2 * expected.abs())
    bound += UNIT_ROUNDOFF[dtype] * expected.abs() + 2**-25
    error = (result.cpu().double() - expected).abs()
    assert (error <= bound).all(), f"the worst is wrong by {(error / bound).max():.2f} bounds"
