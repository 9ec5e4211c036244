"""Checks that products of unusual numbers have the results of float32 arithmetic, and that int32 is exact."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from fastgemm import ops
from fastgemm.bench.checking import PRODUCT_ERROR, integer_product
from torch import Tensor

from .contenders import Contender
from .data import Draw, Operands, Shape
from .records import IntegerProduct, SpecialValue

SHAPE = (150, 210, 100)  # two tiles of 128 x 192 each way
FLOAT32 = torch.finfo(torch.float32)
UNIT_ROUNDOFF = FLOAT32.eps / 2
SUBNORMAL_UNIT = 2.0**-149


def _normal(draw: Draw) -> Operands:
    m, n, k = SHAPE
    return draw.normal(m, k), draw.normal(k, n)


def not_a_number(draw: Draw) -> Operands:
    a, b = _normal(draw)
    a[3, 7] = b[11, 200] = math.nan
    return a, b


def infinity(draw: Draw) -> Operands:
    """Infinities, also infinity times zero, and infinities of both signs in one sum."""
    a, b = _normal(draw)
    a[2, 5], a[140, 99], b[50, 100] = math.inf, -math.inf, math.inf
    a[7, 1], a[7, 2] = math.inf, -math.inf
    b[5, ::3] = 0
    return a, b


def largest(draw: Draw) -> Operands:
    """3.4e38 rounds to infinity in bf16 and tf32, but the exact results here are finite."""
    a, b = _normal(draw)
    a[4, 9], a[149, 0] = 3.4e38, -FLOAT32.max
    b[9], b[0] = b[9] * 2.0**-20, b[0] * 2.0**-20
    b[20, 5], a[:, 20] = 3.4e38, a[:, 20] * 2.0**-20
    return a, b


def overflow(draw: Draw) -> Operands:
    """Sums outside of float32's range, which become infinity of either sign."""
    a, b = draw.uniform(SHAPE[0], SHAPE[2]) + 0.5, draw.uniform(SHAPE[2], SHAPE[1]) + 0.5
    a[::3] *= 1e25
    b[:, ::2] *= -1e25
    return a, b


def subnormal_operands(draw: Draw) -> Operands:
    """Rows of subnormal numbers around 1e-40, of at most 17 bits, times large columns: sums are in range again."""
    a, b = _normal(draw)
    a[::2] *= 1e-40
    b[:, ::3] *= 1e20
    return a, b


def subnormal_results(draw: Draw) -> Operands:
    a, b = _normal(draw)
    a[::2] *= 1e-20
    b[:, ::3] *= 1e-22
    return a, b


def spike(draw: Draw) -> Operands:
    """Rows with one number of 2^60 that is multiplied by zeros. The other numbers decide the result."""
    a, b = _normal(draw)
    a[:, 30] = 2.0**60
    b[30] = 0
    return a, b


def small_beside_large(draw: Draw) -> Operands:
    """Rows of A hold numbers of 1e-36 and 1e-40 beside numbers of 1 and 1e35, and so do columns of B. The large
    numbers are multiplied by zeros; the small ones give sums of about 1e-6."""
    a, b = _normal(draw)
    of_a, of_b = slice(0, 30), slice(30, 60)  # along k
    a[:, of_a], b[of_a] = a[:, of_a] * 1e-36, b[of_a] * 1e30
    a[::4, of_a], b[of_a, ::2] = a[::4, of_a] * 1e-4, b[of_a, ::2] * 1e4
    a[:, of_b], b[of_b] = a[:, of_b] * 1e30, b[of_b] * 1e-36
    a[::2, of_b], b[of_b, ::4] = a[::2, of_b] * 1e4, b[of_b, ::4] * 1e-4
    a[:, 60:80], b[80:] = 0, 0
    a[5::50, 99], b[79, 7::70] = 1e35, 1e35  # no power of two can scale both ends into the range
    return a, b


def zeros(draw: Draw) -> Operands:
    """Rows and columns of zeros, of either sign."""
    a, b = _normal(draw)
    a[::2], b[:, ::3] = 0, -0.0
    return a, b


CASES: dict[str, Callable[[Draw], Operands]] = {
    "NaN in an operand": not_a_number,
    "infinities; infinity times 0; infinity minus infinity": infinity,
    "numbers of 3.4e38, results in range": largest,
    "sums that overflow": overflow,
    "subnormal operands (1e-40)": subnormal_operands,
    "subnormal results (1e-42)": subnormal_results,
    "a number of 2^60 that meets zeros": spike,
    "numbers of 1e-36 and 1e-40 beside larger ones that meet zeros": small_beside_large,
    "rows and columns of zeros": zeros,
}


def wrong_elements(result: Tensor, a: Tensor, b: Tensor, product_error: float) -> int:
    """The number of elements that exceed the error bound. Exact values that are not finite must be matched."""
    k = a.shape[1]
    value, scale = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    relative = 2 * UNIT_ROUNDOFF * (math.sqrt(k) + 3) + product_error
    tolerance = relative * scale + (k + 1) * SUBNORMAL_UNIT
    got = result.double()
    right = (got - value).abs() <= tolerance
    right |= got.isinf() & (got.sign() == value.sign()) & (value.abs() + tolerance >= FLOAT32.max)
    exactly = (got == value) | (got.isnan() & value.isnan())
    return int((~torch.where(value.isfinite(), right, exactly)).sum())


def run_special(draw: Draw, rivals: Sequence[Contender]) -> list[SpecialValue]:
    found = []
    for name, make in CASES.items():
        a, b = make(draw)
        for contender in (rival for rival in rivals if rival.takes(a, b)):
            result = contender(a, b)
            wrong = wrong_elements(result, a, b, PRODUCT_ERROR[contender.precision])
            found.append(SpecialValue(name, contender.kernel, contender.precision, result.numel(), wrong))
    return found


def run_integers(draw: Draw, kernels: Sequence[str], shapes: Sequence[Shape]) -> list[IntegerProduct]:
    """Checks products of numbers from the whole range, including its ends."""
    found = []
    for m, n, k in shapes:
        a, b = draw.integers(m, k), draw.integers(k, n)
        a[0], b[:, 0] = torch.iinfo(torch.int32).min, -1
        exact = integer_product(a, b)
        for name in kernels:
            wrong = int((ops.matmul(a, b, kernel=name) != exact).sum())
            found.append(IntegerProduct(name, m, n, k, wrong))
    return found
