"""swiglu, the activation that halves its rows: ``silu(gate) * up``. The first half of a row is the gate, the
second half up.

It is a pass after the product, by torch's functions, which also give its gradient."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

SWIGLU = "swiglu"


def swiglu(x: Tensor) -> Tensor:
    """``(..., N)`` to ``(..., N / 2)``. Raises ValueError if N is odd."""
    if x.shape[-1] % 2:
        raise ValueError(f"fastgemm: activation='swiglu' halves the result, whose size {x.shape[-1]} is odd")
    gate, up = x.chunk(2, dim=-1)
    return functional.silu(gate) * up
