"""What tests of fastgemm.patch ask of the thread that they run in."""

from __future__ import annotations

import torch
from fastgemm import _scope


def entered() -> int:
    """How many patches this thread is in, modes included; in none of them torch's slot holds nothing."""
    depth = _scope.depth()
    assert (_scope.innermost() is None) == (depth == 0)
    return depth + torch._C._len_torch_dispatch_stack()
