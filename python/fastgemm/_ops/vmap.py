"""The common parts of the autograd functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor


def runs(op: Callable[..., Tensor]) -> Any:
    """The ``forward`` of an autograd.Function whose arguments are those of an op, and last its options."""

    def forward(*arguments: Any) -> Tensor:
        *operands, options = arguments
        return op(*operands, **options)

    return staticmethod(forward)


def batch_first(x: Tensor, dim: int | None, rank: int) -> Tensor:
    """Moves vmap's dimension to the front and pads the others to ``rank``, so that batches broadcast."""
    if dim is None:
        return x
    x = x.movedim(dim, 0)
    return x.reshape(x.shape[:1] + (1,) * (rank + 1 - x.dim()) + x.shape[1:])


def rank_of(x: Tensor | None, dim: int | None) -> int:
    return 0 if x is None else x.dim() - (dim is not None)
