"""Checking a result before its kernel is timed.

The reference is computed on the CPU in float64, for integers exactly; transposes are compared in place. Each
component of a product must obey

    |C - ref| <= (2 u (sqrt(K) + 3) + e min(1, 16 / sqrt(K))) (|A| |B|)  +  u_out |ref|

with u the unit roundoff of the accumulator, e the relative error of a product of float32 operands that are rounded
to fewer bits (0 elsewhere) and u_out the unit roundoff of a narrower result. Any order of summation stays within
K u; since rounding errors behave like random numbers, correct kernels stay within a few times sqrt(K) u, and
wrong ones do not. Errors of the operands do not add up from product to product: this is why the bound has 16 /
sqrt(K). For tf32 this is twice the worst error of 2**22 results if operands are truncated, and six times if they
are rounded to nearest. NaN fails. The result is poisoned before the call, so that unwritten elements are found."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch
from torch import Tensor

from .._errors import result_dtype
from .problems import Call, Instance

# Above this many products (about 5 s of float64 work on two cores), only a sample of rows is checked.
MAX_PRODUCTS = 2**37
SAMPLED_ROWS = 96

# The largest error of one product a * b, relative to |a b|, without float32's own rounding. It has two sources:
# the part of each operand that is lost when it becomes planes or is rounded to tf32, and the products of planes
# that are left out.
#   tf32    2^-11 of each operand
#   bf16x3  2^-17 of each operand, and p1 q1, up to 2^-8 of each
#   fp16x3  2^-23 of each operand, and p1 q1, up to 2^-11 of each (within its range: 2^-28 of the row's largest)
#   tf32x3  2^-22 of each operand, and p1 q1, up to 2^-11 of each; twice that where planes are truncated
#   bf16x6  nothing of the operands; p1 q2, p2 q1 and p2 q2: 2^-24, as much as a rounding of the result
#   bf16x9  nothing
PRODUCT_ERROR = {
    "ieee": 2**-24,
    "tf32": 2**-10,
    "bf16x3": 2**-15,
    "tf32x3": 2**-19,
    "fp16x3": 2**-21,
    "bf16x6": 2**-24,
    "bf16x9": 2**-24,
}


RAISED = "raised "  # the beginning of the message if a call raised


def raised(error: Exception) -> str:
    return f"{RAISED}{type(error).__name__}: {error}"


@dataclass(frozen=True)
class Check:
    """The outcome: the largest error in units of its bound (0 for exact operations), and its position."""

    right: bool
    worst: float
    rows_checked: int
    rows: int
    seconds: float  # of the checked call, which is also the first one
    message: str = ""


def unit_roundoff(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps / 2


def poison(out: Tensor) -> None:
    out.fill_(math.nan if out.dtype.is_floating_point or out.dtype.is_complex else 0x5A)


def integer_product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in the type of its result, wrapping. torch's int64 product is slow; float64 products of 16-bit
    digits are exact, and int64 wraps modulo 2**64."""
    if a.shape[-1] > 2**20:
        raise ValueError("integer_product is exact up to K = 2**20")
    product: Tensor | int = 0
    for (i, x), (j, y) in itertools.product(enumerate(_digits(a)), enumerate(_digits(b))):
        if i + j < 4:
            product = product + ((x @ y).long() << 16 * (i + j))
    return cast(Tensor, product).to(result_dtype(a.dtype))


def _digits(x: Tensor) -> list[Tensor]:
    """The digits in base 2**16, as float64, the lowest first; the last one has the sign."""
    rest, digits = x.long(), []
    for _ in range(x.itemsize // 2 - 1):
        digits.append((rest & 0xFFFF).double())
        rest = rest >> 16
    return [*digits, rest.double()]


def in_float64(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """a @ b and |a| @ |b|, by blocks of columns: a float64 copy of a large B, and its magnitudes, need not fit."""
    a, magnitudes = a.double(), a.double().abs()
    pairs = [(a @ block, magnitudes @ block.abs()) for block in (x.double() for x in b.split(2048, dim=-1))]
    value, bound = (torch.cat(parts, dim=-1) for parts in zip(*pairs, strict=True))
    return value, bound


def error_bound(value: Tensor, magnitudes: Tensor, k: int, out: torch.dtype, precision: str | None) -> Tensor:
    """The bound of the error of each element of a product of ``k`` terms, given in float64; overwrites
    ``magnitudes``, |A| |B|."""
    accumulator = torch.float32 if out.itemsize == 2 else out
    relative = 2 * unit_roundoff(accumulator) * (math.sqrt(k) + 3)
    relative += PRODUCT_ERROR.get(precision or "", 0.0) * min(1.0, 16 / math.sqrt(max(k, 1)))
    bound = magnitudes.mul_(relative)
    if out != accumulator:
        bound += unit_roundoff(out) * value.abs()
    return bound.add_(torch.finfo(out).smallest_normal * unit_roundoff(out))


def sampled_rows(rows: int, count: int) -> Tensor:
    """Indices of ``count`` rows in order: the first, the last and random ones between."""
    inner = torch.randperm(rows - 2)[: count - 2] + 1
    return torch.cat([torch.tensor([0, rows - 1]), inner]).sort().values


class Reference:
    """The expected result of an instance, computed once and used for every kernel."""

    def __init__(self, instance: Instance):
        self.instance = instance
        problem = instance.problem
        self.rows: int = instance.out.shape[-2]
        self.index: Tensor | None = None
        if problem.op == "gemm" and problem.work / 2 > MAX_PRODUCTS and self.rows > SAMPLED_ROWS:
            self.index = sampled_rows(self.rows, SAMPLED_ROWS)

    def _pick(self, x: Tensor) -> Tensor:
        """The rows that are checked, on the CPU."""
        return (x if self.index is None else x.index_select(-2, self.index.to(x.device))).cpu()

    @cached_property
    def expected(self) -> tuple[Tensor, Tensor | None]:
        """The expected value, and the bound of the error; a bound of None means that the result must be
        exact."""
        problem, operands = self.instance.problem, self.instance.operands
        if problem.op == "add":
            a, b = (x.cpu() for x in operands)
            if not problem.dtype.is_floating_point:
                return a + b, None
            value = a.double() + b.double()
            return value, unit_roundoff(problem.dtype) * value.abs() * 1.001 + 1e-300
        assert problem.op == "gemm"  # the result of a transpose is compared with its operand
        a, b = self._pick(operands[0]), operands[1].cpu()
        if not problem.dtype.is_floating_point:
            return integer_product(a, b), None
        value, magnitudes = in_float64(a, b)
        return value, error_bound(value, magnitudes, problem.k, self.instance.out.dtype, problem.precision)

    def _compare_transpose(self, out: Tensor) -> Tensor:
        (a,) = self.instance.operands
        if a.dtype.is_complex:
            a, out = torch.view_as_real(a), torch.view_as_real(out)
            return (out != a.transpose(-3, -2)).any(-1)
        return out != a.mT

    def compare(self, out: Tensor) -> tuple[Tensor, Tensor]:
        """Which elements are wrong, and the errors in units of their bounds (0 where exact)."""
        if self.instance.problem.op == "transpose":
            wrong = self._compare_transpose(out)
            return wrong, torch.zeros(())
        value, bound = self.expected
        out = self._pick(out)
        if bound is None:
            return out != value, torch.zeros(())
        excess = (out.double() - value).abs_().div_(bound)
        return ~(excess <= 1), excess


def check(call: Call, reference: Reference) -> Check:
    """Runs ``call`` once into poisoned memory and compares its result."""
    synchronize = torch.cuda.synchronize if reference.instance.device == "cuda" else lambda: None
    poison(reference.instance.out)
    synchronize()
    start = time.perf_counter()
    result = call()
    synchronize()
    seconds = time.perf_counter() - start
    wrong, excess = reference.compare(result)
    checked = reference.rows if reference.index is None else len(reference.index)
    worst = float(excess.nan_to_num(nan=math.inf).max()) if excess.numel() else 0.0
    count = int(wrong.sum())
    if not count:
        return Check(True, worst, checked, reference.rows, seconds)
    at = tuple(int(i) for i in wrong.nonzero()[0])
    row = at if reference.index is None else (*at[:-2], int(reference.index[at[-2]]), at[-1])
    got = result[row].item()
    message = f"{count} of {wrong.numel()} elements wrong, first at {row}: got {got!r}"
    return Check(False, worst, checked, reference.rows, seconds, message)
