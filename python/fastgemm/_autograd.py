"""Gradients of the ops that torch.compile and torch.export see, by the same functions as in eager mode."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ._add import AddFunction
from ._fused_linear import differentiable
from ._gemm import GemmFunction
from ._library import library
from ._transpose import TransposeFunction


def gemm(a: Tensor, b: Tensor, c: Tensor | None = None, **options: Any) -> Tensor:
    return GemmFunction.apply(a, b, c, options)


def transpose(a: Tensor, *, level: int | None = None, impl: str | None = None) -> Tensor:
    return TransposeFunction.apply(a, level, impl)


def add(
    a: Tensor, b: Tensor, *, alpha: float = 1.0, level: int | None = None, impl: str | None = None
) -> Tensor:
    return AddFunction.apply(a, b, alpha, level, impl)


def register() -> None:
    """Gives the ops their gradients.

    What the functions call has no formula of its own, so that the code which torch.compile makes calls it without
    a detour through Python: 4 us less a call than with torch.library.register_autograd.
    """
    for function in (gemm, transpose, add):
        library.impl(function.__name__, function, "Autograd")
    library.impl("linear", differentiable, "Autograd")
