"""The product of a layer, by :func:`fastgemm.gemm` if fastgemm multiplies operands of these kinds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn import functional
from torch.overrides import has_torch_function_variadic

from .. import _errors
from .._ops import autocast
from .._ops.dispatch import (
    DENSE,
    PLAIN,
    SAME_TYPE,
    compiled_override,
    has_precision,
    in_shape,
    linear_at_once,
    linear_bare,
    only_override,
    options_of,
    overridden,
    tracing_state,
)
from .._ops.gemm import gemm
from .._ops.torch_flags import has_names
from .._typing import Precision
from ..table import check_product_choice

Choice = tuple[int | None, str | None, Precision | None]  # level, kernel, precision
_IGNORED = torch._C._disabled_torch_function_impl
# Subclasses that have rules for fastgemm's ops, or pass the ops on to the tensors inside.
_KNOW_THE_OPS = frozenset(
    {
        "torch._subclasses.fake_tensor.FakeTensor",
        "torch._subclasses.functional_tensor.FunctionalTensor",
        "torch.distributed._functional_collectives.AsyncCollectiveTensor",
        "torch.distributed.tensor.DTensor",
    }
)


def linear(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    level: int | None = None,
    kernel: str | None = None,
    precision: Precision | None = None,
) -> Tensor:
    """``torch.nn.functional.linear`` by :func:`fastgemm.gemm`: what :class:`Linear` calls.

    ``torch.fx.symbolic_trace`` of a layer keeps this call; ``torch.jit.trace`` and ``torch.jit.script`` keep the
    op, ``torch.ops.fastgemm.gemm``.

    Args:
        input: ``(..., K)``; float64, float32, float16, bfloat16, complex128, complex64, int32 or int64. See
            :class:`Linear` for other types.
        weight: ``(N, K)``, of the same dtype and device.
        bias: ``(N,)``, of the same dtype and device, or None.
        level: as for :func:`fastgemm.matmul`; so is ``kernel``.
        precision: of float32 and complex64 products, see :func:`fastgemm.matmul`; others are computed without it.

    Returns:
        ``(..., N)``, of the dtype that ``torch.nn.functional.linear`` returns.

    Raises:
        RuntimeError: the level or kernel asked for cannot run here. Shapes, dtypes and devices that do not go
            together raise torch's own errors.
        ValueError: unknown ``level``, ``kernel`` or ``precision``.
    """
    try:
        return _layer(linear, input, weight, bias, (level, kernel, precision))
    except (RuntimeError, ValueError, TypeError) as error:
        _errors.attribute(error, "nn.linear")
        raise


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    level: int | None = None,
    kernel: str | None = None,
    precision: Precision | None = None,
) -> Tensor:
    """:func:`linear` with a ``weight`` of ``(K, N)``, as ``transformers.pytorch_utils.Conv1D`` stores it.

    Its other arguments, its result and its errors are those of :func:`linear`.
    """
    try:
        return _layer(conv1d, input, weight, bias, (level, kernel, precision))
    except (RuntimeError, ValueError, TypeError) as error:
        _errors.attribute(error, "nn.conv1d")
        raise


def _by_torch(function: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return functional.linear(input, weight if function is linear else weight.t(), bias)


def exports_to_onnx() -> bool:
    """Whether the call is being recorded for ONNX, which knows torch's ops."""
    return "torch.onnx" in sys.modules and torch.onnx.is_in_onnx_export()


exports_to_onnx._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as torch_fp32_precision


def raise_torchs(function: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """For operands that fastgemm refuses: lets torch raise its own error if torch refuses them, too."""
    # With a meta weight and an input with data, torch would read memory that does not exist.
    if input.is_meta or not weight.is_meta:
        _by_torch(function, input, weight, bias)


def _layer(
    function: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None, choice: Choice
) -> Tensor:
    """The common part of :func:`linear` and :func:`conv1d`."""
    level, kernel, precision = choice
    compiling, tracing = is_compiling(), tracing_state() is not None
    if (compiling or tracing) and exports_to_onnx():
        return _by_torch(function, input, weight, bias)
    if level is None and kernel is None and precision is None and not compiling:
        result = linear_at_once(input, weight, bias, function is linear)  # which checks its arguments itself
        if result is not NotImplemented:
            return result
    override = compiled_override(weight) or only_override(weight, input, bias)
    if override:
        return override(
            function, (input, weight, bias), {"level": level, "kernel": kernel, "precision": precision}
        )
    if has_torch_function_variadic(input, weight, bias):
        return _overridden(function, input, weight, bias, level=level, kernel=kernel, precision=precision)
    if tracing:
        return _traced(function, input, weight, bias, choice)
    if not all(isinstance(x, Tensor) for x in (input, weight, *([] if bias is None else [bias]))):
        return _by_torch(function, input, weight, bias)  # which raises the error
    if linear_bare is not None and type(input) is Tensor and type(weight) in PLAIN and not compiling:
        check_product_choice(*choice)
        return linear_bare(input, weight, bias, function is linear, *choice)
    if not _takes(input, weight, bias):
        check_product_choice(*choice)
        return _by_torch(function, input, weight, bias)
    if precision is not None:
        check_product_choice(None, None, precision)
        if not (has_precision(input.dtype, precision) and has_precision(weight.dtype, precision)):
            precision = None
    rank = input.dim()
    # One matrix product: otherwise the weight's gradient would be a sum over a batch of products. A DTensor
    # keeps its dimensions, which torch cannot always flatten; its gradient is one product where it can.
    as_it_is = rank == 2 or (rank > 2 and _errors.is_sharded(input))
    rows = input if as_it_is else input.unsqueeze(0) if rank == 1 else input.flatten(0, -2)
    try:
        out = gemm(
            rows, weight, bias, trans_b=function is linear, level=level, kernel=kernel, precision=precision
        )
    except (ValueError, TypeError, NotImplementedError):
        raise_torchs(function, input, weight, bias)
        raise
    columns = weight.shape[0 if function is linear else 1]
    return out if as_it_is else in_shape(out, (*input.shape[:-1], columns))


def _takes(input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether fastgemm multiplies operands of these kinds. The op checks whether their sizes fit together."""
    dtype = weight.dtype
    alike = isinstance(input, Tensor) and input.dtype is dtype and (bias is None or bias.dtype is dtype)
    return (
        (alike or _cast_alike(input, weight, bias))
        and dtype in SAME_TYPE
        and input.layout is DENSE
        and weight.layout is DENSE
        and not input.is_nested
        and (input.is_cpu or input.is_cuda or (input.is_meta and weight.is_meta))
        and input.dim() > 0
        and weight.dim() == 2
        and (bias is None or bias.dim() == 1)
        and (type(input) is Tensor or _knows_the_ops(type(input)))
        and (type(weight) in PLAIN or _knows_the_ops(type(weight)))
        and not _is_named(input, weight, bias)
    )


def _is_named(*tensors: Tensor | None) -> bool:
    """Whether dimensions have names, which torch.compile does not know."""
    return not is_compiling() and any(x is not None and has_names(x) for x in tensors)


def _cast_alike(*operands: Any) -> bool:
    """Whether autocast casts operands of several dtypes to one: it does not change float64 and integers."""
    device_type = operands[1].device.type
    return (
        device_type in ("cpu", "cuda")
        and torch.is_autocast_enabled(device_type)
        and all(
            x is None
            or (
                isinstance(x, Tensor)
                and x.device.type == device_type
                and x.is_floating_point()
                and x.dtype is not torch.float64
            )
            for x in operands
        )
    )


def _knows_the_ops(kind: type[Tensor]) -> bool:
    """Whether tensors of a subclass have memory to read, or pass fastgemm's ops on to tensors that have."""
    if kind.__torch_dispatch__ is Tensor.__torch_dispatch__:
        return True
    return any(f"{base.__module__}.{base.__qualname__}" in _KNOW_THE_OPS for base in kind.__mro__)


def _overridden(function: Callable[..., Tensor], input: Any, weight: Any, bias: Any, **choice: Any) -> Any:
    """A call that a mode, an fx proxy or a subclass can override.

    A subclass with its own ``__torch_function__`` knows torch's functions, so torch's function is called.
    """
    if any(_overrides(type(x)) for x in (input, weight, bias)):
        return _by_torch(function, input, weight, bias)
    return overridden(function, (input, weight, bias), input, weight, bias, **choice)


def _overrides(kind: type) -> bool:
    function = getattr(kind, "__torch_function__", _IGNORED)
    inherited = getattr(function, "__func__", None) is Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
    return not (function is _IGNORED or inherited or _knows_layers(kind) or issubclass(kind, torch.fx.Proxy))


def _knows_layers(kind: type) -> bool:
    """Whether a class has a rule for the functions of this module."""
    return (kind.__module__, kind.__name__) == ("fastgemm.quantized", "QuantizedWeight")


def _linear_in_script(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    level: int | None = None,
    kernel: str | None = None,
    precision: str | None = None,
) -> Tensor:
    """:func:`linear` in TorchScript, for inputs of any rank. torch computes calls that need a cast by autocast."""
    dtype, dense = weight.dtype, input.layout == torch.strided and weight.layout == torch.strided
    known = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64]
    alike = input.dtype == dtype and (bias is None or (bias.dtype == dtype and bias.dim() == 1))
    placed = (input.is_cpu or input.is_cuda) and input.dim() > 0 and weight.dim() == 2
    if not dense or input.is_nested or not alike or not placed or dtype not in known:
        return functional.linear(input, weight, bias)
    if precision is not None and dtype != (torch.float64 if precision.startswith("crt") else torch.float32):
        precision = None
    rows = input.unsqueeze(0) if input.dim() == 1 else input.flatten(0, -2)
    out = torch.ops.fastgemm.gemm(
        rows, weight, bias, trans_b=True, level=level, impl=kernel, precision=precision
    )
    return out.reshape(input.shape[:-1] + weight.shape[:1])


# torch.jit.script compiles this function instead.
linear.__prepare_scriptable__ = lambda: _linear_in_script  # type: ignore[attr-defined]  # of a function


@cache
def _scripted() -> Callable[..., Tensor]:
    """The scripted form: a trace keeps its call with all branches, and so takes inputs of any rank."""
    return torch.jit.script(_linear_in_script)


def _traced(
    function: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None, choice: Choice
) -> Tensor:
    """The call that torch.jit.trace records, with the present values of torch's flags and of autocast."""
    options = options_of(input, *choice, None, None)
    input, weight, bias = autocast.operands(input, weight, bias, options=options)
    weight = weight if function is linear else weight.t()
    return _scripted()(input, weight, bias, *choice[:2], options.get("precision"))
