"""Fake kernels: shape and dtype of each result, for torch.compile, torch.export and meta tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from ._errors import ARITHMETIC


def _result_dtype(dtype: torch.dtype, out_dtype: torch.dtype | None) -> torch.dtype:
    if out_dtype is not None:
        return out_dtype
    return torch.int32 if dtype == torch.int8 else dtype


def _check_devices(*tensors: Tensor | None) -> None:
    devices = [t.device for t in tensors if t is not None]
    torch._check_value(
        len(set(devices)) == 1,
        lambda: f"fastgemm: all tensors must be on one device, got {', '.join(map(str, devices))}",
    )


def _check_dtypes(a: Tensor, b: Tensor) -> None:
    torch._check_value(a.dtype == b.dtype, lambda: f"fastgemm: dtypes differ: {a.dtype} and {b.dtype}")
    torch._check_type(a.dtype in ARITHMETIC, lambda: f"fastgemm: dtype {a.dtype} is not supported")


def _gemm_shape(a: Tensor, b: Tensor, trans_a: bool, trans_b: bool) -> list[int]:
    torch._check_value(
        a.dim() >= 2 and b.dim() >= 2, lambda: "fastgemm.gemm: a and b must be matrices or batches"
    )
    m, k = (a.shape[-1], a.shape[-2]) if trans_a else (a.shape[-2], a.shape[-1])
    n, k_of_b = (b.shape[-2], b.shape[-1]) if trans_b else (b.shape[-1], b.shape[-2])
    torch._check_value(k == k_of_b, lambda: f"fastgemm.gemm: inner sizes differ: {k} and {k_of_b}")
    return [*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), m, n]


def _gemm(
    a,
    b,
    c=None,
    *,
    alpha=1.0,
    beta=None,
    trans_a=False,
    trans_b=False,
    level=None,
    impl=None,
    precision=None,
    out_dtype=None,
):
    _check_devices(a, b, c)
    _check_dtypes(a, b)
    shape = _gemm_shape(a, b, trans_a, trans_b)
    if c is not None:
        torch._check_value(
            c.dim() <= len(shape), lambda: f"fastgemm.gemm: c of shape {c.shape} does not broadcast"
        )
        torch.broadcast_shapes(c.shape, shape)
    return a.new_empty(shape, dtype=_result_dtype(a.dtype, out_dtype))


def _transpose(a, *, level=None, impl=None):
    torch._check_value(a.dim() >= 2, lambda: "fastgemm.transpose: a must have at least 2 dimensions")
    return a.new_empty([*a.shape[:-2], a.shape[-1], a.shape[-2]])


def _add(a, b, *, alpha=1.0, level=None, impl=None):
    _check_devices(a, b)
    _check_dtypes(a, b)
    return a.new_empty(torch.broadcast_shapes(a.shape, b.shape))


def _in_place(*tensors, out=None, **options):
    """For ops that write into an argument and return ()."""
    _check_devices(*tensors, out)


def register() -> None:
    fakes = {"gemm": _gemm, "transpose": _transpose, "add": _add}
    for name, fake in fakes.items():
        torch.library.register_fake(f"fastgemm::{name}", fake)
        torch.library.register_fake(f"fastgemm::_{name}", fake)
        torch.library.register_fake(f"fastgemm::{name}.out", _in_place)
    torch.library.register_fake("fastgemm::_matmul", _gemm)
    torch.library.register_fake("fastgemm::add_", _in_place)
