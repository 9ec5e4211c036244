"""Compares an op's results in a patch with torch's own, and decides whether both may be right.

The allowed difference of two right results depends on the op: a product in float32 is accurate to a few eps, a
gradient of a pseudo-inverse is not. So each call is also made in float64 (complex128). Two values are measured:
torch's error, and the change of the float64 result if each operand and each matrix product inside changes by its
type's unit roundoff u. Changed operands alone do not suffice if a gradient is 0 by cancellation (a covariance of
two observations, by their weights). Both values grow with the length of the sums and with the condition of the
problem. A patched result is right within

    4 (torch's largest error)  +  16 (the largest move)  +  16 u max |reference|

for each tensor. The last term is needed because torch's error may be 0 by chance, and an operand of 0 does
not change. torch's error may also be small by chance if a factorization enlarges it, so it is measured for
changed operands, too. 30 000 comparisons needed about half of these factors. 16-bit results needed 1, 1, 2
and get 2, 2, 2; no op on them is ill-conditioned. Integers must equal torch's.
"""

from __future__ import annotations

import contextlib
import math
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from op_samples import PRODUCTS, Arguments, arguments_of, call, mapped, tensors_of
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# The numbers of random changes of operands and products that are tried before a difference is reported. Each
# change can only raise the bound, so most results need none. Two changes of a few logits may shift all of them
# equally, which does not change a softmax.
DRAWS = (0, 2, 16)


def wide(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def widened(x: Any) -> Any:
    if isinstance(x, torch.dtype):
        return wide(x)
    return x.detach().to(wide(x.dtype)).requires_grad_(x.requires_grad)


def inexact(x: Any) -> bool:
    return isinstance(x, Tensor) and (x.dtype.is_floating_point or x.dtype.is_complex)


class Moves:
    """Changes elements up or down by a type's unit roundoff, or by one unit in the last place of their own type if
    that is more. The ops' random numbers stay the same: a dropout must drop the same elements."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.generator = torch.Generator().manual_seed(random.getrandbits(62))  # seeded by conftest.py

    def factors(self, x: Tensor) -> Tensor:
        signs = torch.empty(x.shape, dtype=torch.float64).bernoulli_(0.5, generator=self.generator) * 2 - 1
        by = max(torch.finfo(self.dtype).eps / 2, torch.finfo(x.dtype).eps)
        return (1 + by * signs).to(device=x.device, dtype=x.dtype)

    def __call__(self, x: Any) -> Any:
        if not inexact(x) or x.layout is not torch.strided:
            return x
        return (x.detach() * self.factors(x)).requires_grad_(x.requires_grad)


class Rounded(TorchDispatchMode):
    """Changes each element of the matrix products inside of torch's ops, as their rounding could."""

    def __init__(self, moves: Moves) -> None:
        super().__init__()
        self.moves = moves

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__.rstrip("_") in PRODUCTS and inexact(result):
            result.mul_(self.moves.factors(result))
        return result


def values_of(result: Any) -> list[Any]:
    leaves = [x.detach() if isinstance(x, Tensor) else x for x in tree_leaves(result)]
    return [x.to_dense() if isinstance(x, Tensor) and x.layout is not torch.strided else x for x in leaves]


def form_of(x: Any) -> Any:
    """Everything about a result except its values."""
    if not isinstance(x, Tensor):
        return type(x)
    return x.dtype, tuple(x.shape), x.device, x.stride() if x.layout is torch.strided else x.layout


def forms_of(result: Any) -> list[Any]:
    return [form_of(x) for x in tree_leaves(result)]


def same(x: Any, y: Any) -> bool:
    """Whether two values are equal bit for bit; all NaN count as equal."""
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        return type(x) is type(y) and x == y
    return x.shape == y.shape and torch.equal(x.isnan(), y.isnan()) and torch.equal(filled(x), filled(y))


def filled(x: Tensor) -> Tensor:
    return x.masked_fill(x.isnan(), 0) if inexact(x) else x


def largest(x: Tensor) -> float:
    return x.abs().nan_to_num(math.inf, math.inf).max().item() if x.numel() else 0.0


@dataclass
class Expected:
    """torch's results for a call: in its own type, in float64, and in both types with slightly changed
    operands."""

    torchs: list[Any]
    exact: list[Any]
    moved: list[list[Any]]
    torchs_moved: list[list[Any]]
    dtype: torch.dtype

    def difference(self, values: list[Any]) -> str | None:
        for at, (value, torchs) in enumerate(zip(values, self.torchs, strict=True)):
            if inexact(value) and inexact(torchs):
                why = self._too_far(value, at)
            else:
                why = None if same(value, torchs) else f"{value}, by torch {torchs}"
            if why is not None:
                return f"value {at}: {why}"
        return None

    def _too_far(self, value: Tensor, at: int) -> str | None:
        torchs, exact = self.torchs[at], self.exact[at]
        types = [x for x in (self.dtype, torchs.dtype) if x.is_floating_point or x.is_complex]
        u = max(torch.finfo(x).eps / 2 for x in types)
        narrow = torchs.dtype in (torch.float16, torch.bfloat16)
        value, torchs = value.to(exact.dtype), torchs.to(exact.dtype)
        finite = torchs.isfinite() & exact.isfinite()
        if not same(value[~finite], torchs[~finite]):
            return f"other infinities or NaN: {value}, by torch {torchs}"

        def off(x: Tensor) -> float:
            return largest((x - exact)[finite])

        error, moves = off(value), [off(draw[at]) for draw in self.moved]
        torchs_error = max(off(torchs), *(off(draw[at]) for draw in self.torchs_moved), 0.0)
        of_torch, of_move, of_u = (2, 2, 2) if narrow else (4, 16, 16)
        bound = (
            of_torch * torchs_error + of_move * max(moves, default=0.0) + of_u * u * largest(exact[finite])
        )
        if error <= bound:
            return None
        return f"off by {error:.3g} > {bound:.3g}; torch by {torchs_error:.3g}; {u:.3g} moves {moves}"


Compute = Callable[[Arguments], list[Any]]


def difference(
    compute: Compute, arguments: Arguments, torchs: list[Any], patched: list[Any], dtype: torch.dtype
) -> str | None:
    why = None
    for draws in DRAWS:
        why = expected(compute, arguments, torchs, dtype, draws).difference(patched)
        if why is None:
            break
    return why


def expected(
    compute: Compute, arguments: Arguments, torchs: list[Any], dtype: torch.dtype, draws: int
) -> Expected:
    if not (dtype.is_floating_point or dtype.is_complex):
        return Expected(torchs, torchs, [], [], dtype)
    narrow = dtype in (torch.float16, torch.bfloat16)  # the change is as large as an error
    wide_moved, torchs_moved, moves = [], [], Moves(dtype)
    for _ in range(draws):
        operands = mapped(arguments, lambda x: moves(widened(x)))
        with Rounded(moves):
            wide_moved.append(compute(operands))
        if not narrow:
            torchs_moved.append(compute(mapped(arguments, moves)))
    return Expected(torchs, compute(mapped(arguments, widened)), wide_moved, torchs_moved, dtype)


Difference = Callable[
    [Any, Any, torch.dtype, Any], "str | None"
]  # function of an OpInfo and a sample that runs in a patch


def forward_difference(op: Any, sample: Any, dtype: torch.dtype, patch: Any) -> str | None:
    """The error in the patched result of a sample."""
    arguments = arguments_of(sample)
    torchs = call(op, arguments)
    with patch:
        patched = call(op, arguments)
    if forms_of(patched) != forms_of(torchs):
        return f"{forms_of(patched)}, by torch {forms_of(torchs)}"
    return value_difference(op, sample, dtype, patched, torchs)


def value_difference(op: Any, sample: Any, dtype: torch.dtype, patched: Any, torchs: Any) -> str | None:
    def determined(result: Any) -> list[Any]:
        return values_of(
            sample.output_process_fn_grad(result)
        )  # removes arbitrary signs, for example of singular vectors

    arguments = arguments_of(sample)
    return difference(
        lambda changed: determined(call(op, changed)),
        arguments,
        determined(torchs),
        determined(patched),
        dtype,
    )


def gradients(op: Any, sample: Any, arguments: Arguments, of_roots: list[Tensor]) -> list[Any]:
    """The gradients of all operands. ``of_roots`` are the gradients of the results. An empty list is filled with
    new ones."""
    result = sample.output_process_fn_grad(call(op, arguments))
    roots = [x for x in tensors_of(result) if x.requires_grad]
    operands = [*{id(x): x for x in tensors_of(arguments) if x.requires_grad}.values()]
    if not roots or not operands:
        return []
    of_roots += [torch.randn_like(root) for root in roots[len(of_roots) :]]
    directions = [x.to(root.dtype) for x, root in zip(of_roots, roots, strict=True)]
    return list(torch.autograd.grad(roots, operands, directions, allow_unused=True))


def gradient_difference(op: Any, sample: Any, dtype: torch.dtype, patch: Any) -> str | None:
    """The error in a sample's gradients, with forward and backward pass in a patch."""
    arguments, of_roots = arguments_of(sample), []
    torchs = gradients(op, sample, arguments, of_roots)
    with patch:
        patched = gradients(op, sample, arguments, of_roots)
    if forms_of(patched) != forms_of(torchs):
        return f"{forms_of(patched)}, by torch {forms_of(torchs)}"

    def compute(changed: Arguments) -> list[Any]:
        return values_of(gradients(op, sample, changed, of_roots))

    return difference(compute, arguments, values_of(torchs), values_of(patched), dtype)


@dataclass
class Outcome:
    """The result or exception of a call, and its warnings."""

    result: Any
    error: tuple[type[Exception], str] | None
    warnings: list[str]

    def difference(self, torchs: Outcome) -> str | None:
        """Everything except values."""
        mine, torch_s = ((x.error, x.warnings, forms_of(x.result)) for x in (self, torchs))
        return None if mine == torch_s else f"{mine}, by torch {torch_s}"


def outcome(function: Callable[[], Any], inside: Any) -> Outcome:
    with warnings.catch_warnings(record=True) as said, contextlib.ExitStack() as stack:
        warnings.simplefilter("always")
        stack.callback(torch.set_warn_always, torch.is_warn_always_enabled())
        torch.set_warn_always(True)
        result = error = None
        try:
            with inside:
                result = function()
        except Exception as raised:
            error = type(raised), str(raised)
    return Outcome(result, error, [str(warning.message) for warning in said])
