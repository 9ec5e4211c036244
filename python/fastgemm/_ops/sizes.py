"""Comparisons of sizes that torch.compile may not know while it records a call: those of ``nonzero``, and of
dimensions that are marked as unbacked. A plain comparison of such sizes ends the compilation."""

from __future__ import annotations

from torch import Tensor, _check
from torch.compiler import is_compiling


def same(shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """Whether two shapes are equal. The graph itself compares sizes that are not known yet, when it runs."""
    if not is_compiling():
        return shape == expected
    from torch.fx.experimental.symbolic_shapes import guard_or_false, guard_or_true  # takes long to import

    if len(shape) != len(expected) or not all(
        guard_or_true(n == m) for n, m in zip(shape, expected, strict=True)
    ):
        return False
    for n, m in zip(shape, expected, strict=True):
        if not guard_or_false(n == m):  # A check of a known size would stay in the graph.
            _check(n == m)
    return True


def surely_same(shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """Whether two shapes are equal, for a choice: sizes that are not known yet count as different."""
    if not is_compiling():
        return shape == expected
    from torch.fx.experimental.symbolic_shapes import guard_or_false  # takes long to import

    return len(shape) == len(expected) and all(
        guard_or_false(n == m) for n, m in zip(shape, expected, strict=True)
    )


def is_one_number(x: Tensor) -> bool:
    """Whether a tensor is known to have one element."""
    return surely_same((x.numel(),), (1,)) if is_compiling() else x.numel() == 1
