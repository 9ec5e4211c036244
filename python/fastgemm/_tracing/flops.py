"""The number of operations of a product, for ``torch.utils.flop_counter.FlopCounterMode``.

It counts the ops that reach it: fastgemm's own, forward and backward, and torch's products that a patch inside it
routes. As for torch's products, additions are not counted."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from .._import_hooks import call_after_import

_COUNTER = "torch.utils.flop_counter"
_OPS = ("gemm", "_gemm", "_matmul")  # each with its out variant


def _product(
    a_shape: Sequence[int],
    b_shape: Sequence[int],
    *_: Any,
    trans_a: bool = False,
    trans_b: bool = False,
    **__: Any,
) -> int:
    """2 M N K for each product of the batch."""
    m, k = a_shape[-2:] if not trans_a else (a_shape[-1], a_shape[-2])
    n = b_shape[-2] if trans_b else b_shape[-1]
    return 2 * math.prod(torch.broadcast_shapes(a_shape[:-2], b_shape[:-2])) * m * n * k


def _layer(x_shape: Sequence[int], weight_shape: Sequence[int], *_: Any, **__: Any) -> int:
    """The product of a layer; its epilogue is not counted."""
    return 2 * math.prod(x_shape) * weight_shape[0]


def _quantized_layer(x_shape: Sequence[int], *_: Any, n: int, **__: Any) -> int:
    return 2 * math.prod(x_shape) * n


def _grouped(a_shape: Sequence[int], b_shape: Sequence[int], *_: Any, **__: Any) -> int:
    """Counts the whole dimension that groups divide: their ends are not known here."""
    members = a_shape[0] if len(a_shape) == len(b_shape) == 3 else 1
    return 2 * members * a_shape[-2] * a_shape[-1] * b_shape[-1]


def _gathered(
    _: object, b_shape: Sequence[int], _o: object, _b: object, rows_shape: Sequence[int], **__: Any
) -> int:
    return 2 * rows_shape[0] * b_shape[-2] * b_shape[-1]


def _register() -> None:
    """Warns if this torch counts in another way, so that the import of its counter does not fail."""
    try:
        from torch.utils.flop_counter import register_flop_formula

        register_flop_formula([getattr(torch.ops.fastgemm, name) for name in _OPS])(_product)
        register_flop_formula(torch.ops.fastgemm.scaled_mm)(_product)
        register_flop_formula([torch.ops.fastgemm.linear, torch.ops.fastgemm._fused_linear])(_layer)
        quantized = [torch.ops.fastgemm.quantized_linear, torch.ops.fastgemm._quantized_linear]
        register_flop_formula(quantized)(_quantized_layer)
        grouped = ("grouped_mm", "_grouped_mm", "scaled_grouped_mm")
        register_flop_formula([getattr(torch.ops.fastgemm, name) for name in grouped])(_grouped)
        register_flop_formula(torch.ops.fastgemm._gathered_mm)(_gathered)
    except (ImportError, TypeError, ValueError, RuntimeError) as error:
        message = f"fastgemm: its products are not counted by torch {torch.__version__}: {error!r}"
        warnings.warn(message, stacklevel=2)


def register() -> None:
    """Adds the formulas as soon as torch's counter is imported, which with Triton takes up to a second."""
    call_after_import(_COUNTER, _register)
