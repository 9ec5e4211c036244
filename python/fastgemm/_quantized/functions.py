"""What torch's functions do with a QuantizedWeight.

``__torch_function__`` turns products into calls of product.py, and refuses calls that would ask for a gradient. It
passes all other calls on to torch. They reach ``__torch_dispatch__`` as ops: copies, transposes, and ops that are
refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .._nn.linear import conv1d
from .._nn.linear import linear as layer
from .._ops.linear import linear
from ..ops import matmul
from . import layout, product
from .base import ATTRIBUTES, Packed
from .checks import check_dtype

aten = torch.ops.aten
_set_requires_grad = Tensor.requires_grad.__set__  # type: ignore[attr-defined]
_set_data = Tensor.data.__set__  # type: ignore[attr-defined]


def call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``__torch_function__``. Functions are compared one by one, because torch.compile can follow that."""
    if func is linear:
        return product.called("linear", *args, **kwargs)
    if func is functional.linear:
        return product.functional_linear(*args, **kwargs)
    if func in (torch.mm, Tensor.mm):
        return _mm(*args, **kwargs)
    if func is matmul:
        return product.matmul(*args, **kwargs)
    if func in (torch.matmul, Tensor.matmul, Tensor.__matmul__):
        return _matmul(*args, **kwargs)
    if func is Tensor.__rmatmul__:
        return product.matmul(args[1], args[0])
    if func is layer:
        return product.called("nn.linear", *args, **kwargs)
    if func is conv1d:
        return product.called("nn.conv1d", args[0], args[1].t(), *args[2:], **kwargs)
    if func is Tensor.requires_grad_ or func == _set_requires_grad:
        refuse_gradient(*args[1:], **kwargs)
    if func == _set_data and not isinstance(args[1], Packed):
        raise NotImplementedError(NOT_PACKED)
    with torch._C.DisableTorchFunctionSubclass():
        result = func(*args, **kwargs)
    if func == _set_data:  # torch has taken over the shape and the dtype
        to, q = args
        to.__dict__.update({name: q.__dict__[name] for name in ATTRIBUTES})
    return result


def _matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    return product.matmul(input, other, out=out)


def _mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    if input.dim() != 2 or mat2.dim() != 2:
        raise RuntimeError(f"fastgemm: mm takes matrices, got {tuple(input.shape)} and {tuple(mat2.shape)}")
    return product.matmul(input, mat2, out=out)


def refuse_gradient(requires_grad: bool = True) -> None:
    """Raises RuntimeError if a weight shall require a gradient."""
    if requires_grad:
        raise RuntimeError(
            "fastgemm: no gradient reaches a QuantizedWeight; make parameters of it with requires_grad=False"
        )


def _to_copy(q: Packed, **options: Any) -> Packed:
    device = q.device if options.get("device") is None else torch.device(options["device"])
    return q._on(device, options.get("dtype") or q.dtype, bool(options.get("non_blocking")))


def _empty_like(q: Packed, **options: Any) -> Packed:
    device = q.device if options.get("device") is None else torch.device(options["device"])
    dtype = options.get("dtype") or q.dtype
    check_dtype(dtype)
    units = q._packing.units if device == q.device else q._has_units_on(device)
    packing = q._packing._replace(units=units)
    by, order = (None if x is None else torch.empty_like(x, device=device) for x in (q._global, q._order))
    return q._like(layout.empty(packing, device), by, order, packing=packing, dtype=dtype)


NOT_PACKED = (
    "fastgemm: a tensor cannot be copied into a QuantizedWeight; quantize it by fastgemm.quantize_weight"
)


def _copy(to: Any, q: Any, non_blocking: bool = False) -> Any:
    if not isinstance(q, Packed):
        raise NotImplementedError(NOT_PACKED)
    if not isinstance(to, Packed):
        raise NotImplementedError(
            "fastgemm: a QuantizedWeight cannot be copied into a tensor; copy q.dequantize(), or load the "
            "weight with load_state_dict(..., assign=True)"
        )
    facts = [(x._format, x._packing._replace(units=False), x._transposed, x._activations) for x in (to, q)]
    inner = [[x is not None for x in x._inner()[3:]] for x in (to, q)]
    if facts[0] != facts[1] or inner[0] != inner[1]:
        raise ValueError(f"fastgemm: {q!r} cannot be copied into {to!r}")
    if q._packing.units != to._packing.units:
        q = q._ordered(to._packing.units)
    for x, y in zip(to._inner(), q._inner(), strict=True):
        if x is not None:
            x.copy_(y, non_blocking)
    return to


def _transpose(q: Packed, first: int = 0, second: int = 1) -> Packed:
    for dim in (first, second):
        if not -2 <= dim < 2:
            raise IndexError(f"fastgemm: a QuantizedWeight has dimensions -2 to 1, not {dim}")
    return q._map(lambda x: x) if first % 2 == second % 2 else q._transpose()


def _permute(q: Packed, dims: list[int]) -> Packed:
    if sorted(dim % 2 for dim in dims) != [0, 1] or not all(-2 <= dim < 2 for dim in dims):
        raise RuntimeError(f"fastgemm: a QuantizedWeight has two dimensions to permute, got {list(dims)}")
    return _transpose(q, *dims) if dims[0] % 2 else _transpose(q, 0, 0)


_OPS: dict[Any, Callable[..., Any]] = {
    aten.detach.default: lambda q: q._map(Tensor.detach),
    aten.alias.default: lambda q: q._map(lambda x: x),
    aten.clone.default: lambda q, **_: q._map(torch.clone),
    aten._to_copy.default: _to_copy,
    aten.empty_like.default: _empty_like,
    aten.copy_.default: _copy,
    aten.t.default: _transpose,
    aten.transpose.int: _transpose,
    aten.permute.default: _permute,
    aten._pin_memory.default: lambda q, *_: q._map(Tensor.pin_memory),
    aten.is_pinned.default: lambda q, *_: q._codes.is_pinned(),
}


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``__torch_dispatch__``."""
    known = _OPS.get(func)
    if known is None:
        raise NotImplementedError(
            f"fastgemm: {func} does not take a QuantizedWeight. Products do: fastgemm.linear(x, q), "
            "torch.nn.functional.linear(x, q) and x @ q.mT; for all else take q.dequantize()"
        )
    return known(*args, **kwargs)
