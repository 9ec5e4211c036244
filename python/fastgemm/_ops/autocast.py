"""torch.autocast: products run in its lower precision, like torch.matmul, addmm and baddbmm.

As in torch, out= variants are not cast. transpose and add are not cast either: they compute in the type of their
operands: https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from .. import _override_library
from .registration import library

_KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}

is_enabled = torch.is_autocast_enabled


def _lower(x: Tensor, device_type: str, dtype: torch.dtype) -> Tensor:
    """An operand after autocast: float64, integers and tensors of another device keep their type."""
    if x.device.type != device_type or not x.dtype.is_floating_point or x.dtype is torch.float64:
        return x
    return x.to(dtype)


def operands(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, options: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The operands of a product in the types that autocast, if it is enabled for their device, gives them.

    If a ``precision`` is given, it says how float32 operands are multiplied, so they stay float32. c takes the
    type of the result."""
    device_type = a.device.type
    if device_type not in _KEYS or options.get("precision") is not None or not is_enabled(device_type):
        return a, b, c
    dtype = torch.get_autocast_dtype(device_type)
    a, b = _lower(a, device_type, dtype), _lower(b, device_type, dtype)
    if c is not None:
        c = _lower(c, device_type, options.get("out_dtype") or dtype)
    return a, b, c


def of_bias(bias: Tensor | None, x: Tensor, options: dict[str, Any]) -> Tensor | None:
    """A bias that is added to products of ``x``, which has been cast."""
    if bias is None or bias.dtype == x.dtype:
        return bias
    return operands(bias, bias, options={**options, "out_dtype": None})[0]


def _kernel(
    op: torch._ops.OpOverload, cast: Callable[..., tuple[Tensor | None, ...]]
) -> Callable[..., Tensor]:
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    keys = keys | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)

    def run(*given: Tensor | None, **options: Any) -> Tensor:
        tensors = cast(*given, options=options)
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return op(*tensors[: len(given)], **options)

    return run


def give_kernels(names: Iterable[str], cast: Callable[..., tuple[Tensor | None, ...]]) -> None:
    """Registers autocast kernels of ops, except those of C++: for torch.compile, and for eager calls without a
    gradient."""
    in_c = ("_gemm", "_matmul", "_fused_linear") if _override_library.use_in_eager_mode() else ()
    for name in names:
        for key in _KEYS.values() if name not in in_c else ():
            library.impl(name, _kernel(getattr(torch.ops.fastgemm, name).default, cast), key)
