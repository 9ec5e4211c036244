"""Finds out by storages and strides which tensors share memory, for tensors without addresses. (For real tensors
the op library compares addresses: csrc/torch/views.cpp.)

If a size or stride is symbolic, the answer is no: the real call checks again.
"""

from __future__ import annotations

from torch import SymInt, Tensor


def _is_static(x: Tensor) -> bool:
    return all(type(n) is int for n in (*x.shape, *x.stride(), x.storage_offset()))


def _same_storage(x: Tensor, y: Tensor) -> bool:
    return x.untyped_storage()._cdata == y.untyped_storage()._cdata and _is_static(x) and _is_static(y)


def shares_elements(x: Tensor) -> bool:
    """Whether two indices may address one element, as in an expanded tensor."""
    if not _is_static(x) or 0 in x.shape:
        return False
    covered = 1  # sorted by stride, each dimension must step over all that the smaller ones cover
    for stride, size in sorted((s, n) for n, s in zip(x.shape, x.stride(), strict=True) if n > 1):
        if stride < covered:
            return True
        covered += stride * (size - 1)
    return False


def same_view(x: Tensor, y: Tensor) -> bool:
    """Whether both are the same elements in the same order."""
    if x is y:
        return True
    facts = [(t.storage_offset(), t.dtype, t.shape, t.stride()) for t in (x, y)]
    return _same_storage(x, y) and facts[0] == facts[1]


def may_overlap(x: Tensor, y: Tensor) -> bool:
    """False only if they certainly share no element."""
    if not _same_storage(x, y) or 0 in x.shape or 0 in y.shape:
        return False
    (x_begin, x_end), (y_begin, y_end) = _bytes_of(x), _bytes_of(y)
    if x_end <= y_begin or y_end <= x_begin:
        return False
    return not _disjoint_columns(x, y) and not _disjoint_columns(y, x)


def _bytes_of(x: Tensor) -> tuple[int | SymInt, int | SymInt]:
    last = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return x.storage_offset() * x.itemsize, (x.storage_offset() + last + 1) * x.itemsize


def _disjoint_columns(x: Tensor, y: Tensor) -> bool:
    """Whether these are two row-major blocks of one larger matrix whose columns do not overlap."""
    if x.dim() != 2 or y.dim() != 2 or x.dtype != y.dtype or x.stride() != y.stride() or x.stride(1) != 1:
        return False
    leading = x.stride(0)
    if leading <= 0:
        return False
    shift = (y.storage_offset() - x.storage_offset()) % leading
    return x.shape[1] <= shift and shift + y.shape[1] <= leading
