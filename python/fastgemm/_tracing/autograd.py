"""Gradients of the ops under torch.compile and torch.export, by the same functions as in eager mode. Autocast."""

from __future__ import annotations

from .._ops import autocast
from .._ops.add import SUM
from .._ops.gemm import PRODUCT
from .._ops.grouped import GROUPED
from .._ops.linear import LAYER
from .._ops.registration import library
from .._ops.transpose import TRANSPOSE
from .._quantized.gradient import LAYER as QUANTIZED_LAYER

OPS = (PRODUCT, LAYER, QUANTIZED_LAYER, GROUPED, TRANSPOSE, SUM)


def register() -> None:
    """Gives the ops their gradients, and autocast's casts.

    The ops that these functions call have no gradient formula, so code of torch.compile calls them without
    Python: 4 us less a call than with torch.library.register_autograd.
    """
    for op in OPS:
        library.impl(op.names[0], op.differentiable, "Autograd")
        if op.cast is not None:
            autocast.give_kernels(op.names, op.cast)
