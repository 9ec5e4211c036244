"""Layers whose products fastgemm computes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn import functional
from torch.overrides import has_torch_function_variadic

from . import _autocast
from ._calls import (
    DENSE,
    PLAIN,
    SAME_TYPE,
    linear_at_once,
    linear_bare,
    options_of,
    overridden,
    tracing_state,
)
from ._flags import has_names
from ._gemm import product
from .table import check_product_choice

__all__ = ["Linear", "conv1d", "convert", "linear", "revert"]

_IGNORED = torch._C._disabled_torch_function_impl
# Subclasses that hand fastgemm's ops on to their own rules, or to the tensors inside.
_KNOW_THE_OPS = frozenset(
    {
        "torch._subclasses.fake_tensor.FakeTensor",
        "torch._subclasses.functional_tensor.FunctionalTensor",
        "torch.distributed._functional_collectives.AsyncCollectiveTensor",
        "torch.distributed.tensor.DTensor",
    }
)


class _LeftUnquantized:
    """The ``qconfig`` that torch.ao.quantization assigns to a layer, and a warning that nothing comes of it."""

    def __get__(self, layer: Linear | None, owner: type) -> Any:
        if layer is None or "qconfig" not in layer.__dict__:
            raise AttributeError("qconfig")
        return layer.__dict__["qconfig"]

    def __set__(self, layer: Linear, value: Any) -> None:
        # None, too, which is what it assigns to layers of types that it does not know.
        warnings.warn(
            "torch.ao.quantization goes by the exact type of a layer and leaves a fastgemm.nn.Linear in its type; "
            "call fastgemm.nn.revert(model) before",
            stacklevel=3,
        )
        layer.__dict__["qconfig"] = value

    def __delete__(self, layer: Linear) -> None:
        del layer.__dict__["qconfig"]


class Linear(torch.nn.Linear):
    """``torch.nn.Linear`` with the product of :func:`fastgemm.gemm`, in the forward pass and in the backward one.

    Parameters, initialization and ``state_dict`` are those of ``torch.nn.Linear``, which it is a kind of.

    What fastgemm does not take is multiplied by ``torch.nn.functional.linear``, with its result or its error:
    nested, sparse, quantized, mkldnn, named and complex tensors, int8 and other types that :func:`linear` does not
    list, operands that are not of one dtype (but those that autocast casts to one), other devices than CPU and
    CUDA, and tensor subclasses that override ``__torch_function__`` or ``__torch_dispatch__`` (but ``DTensor``).

    Args:
        in_features: K, the size of the last dimension of the input.
        out_features: N, that of the output.
        bias: whether a vector of N is added.
        device: of the parameters.
        dtype: of the parameters.
        level: see :func:`fastgemm.matmul`, as for ``kernel``; may be changed later, as may ``precision``.
        precision: of float32 products, see :func:`fastgemm.matmul`; others are computed without it.

    Shapes: ``(..., K)`` to ``(..., N)``. Errors are those of ``torch.nn.Linear``, and those of
    :func:`fastgemm.gemm` where the level or kernel asked for cannot run.
    """

    __constants__ = (*torch.nn.Linear.__constants__, "level", "kernel", "precision")  # for torch.jit.script
    level: int | None = None  # also of a module that was pickled as a torch.nn.Linear
    kernel: str | None = None
    precision: str | None = None
    qconfig = _LeftUnquantized()

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        level: int | None = None,
        kernel: str | None = None,
        precision: str | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        _choose(self, level, kernel, precision)

    def forward(self, input: Tensor) -> Tensor:
        return linear(
            input, self.weight, self.bias, level=self.level, kernel=self.kernel, precision=self.precision
        )

    def extra_repr(self) -> str:
        text = super().extra_repr()
        for name in ("level", "kernel", "precision"):
            value = getattr(self, name)
            text += "" if value is None else f", {name}={value!r}"
        return text


def _choose(module: Linear, level: int | None, kernel: str | None, precision: str | None) -> None:
    check_product_choice(level, kernel, precision)
    module.level, module.kernel, module.precision = level, kernel, precision


def linear(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    level: int | None = None,
    kernel: str | None = None,
    precision: str | None = None,
) -> Tensor:
    """``torch.nn.functional.linear`` by :func:`fastgemm.gemm`: what :class:`Linear` calls.

    ``torch.fx.symbolic_trace`` of a layer keeps this call; ``torch.jit.trace`` and ``torch.jit.script`` keep the
    op, ``torch.ops.fastgemm.gemm``.

    Args:
        input: ``(..., K)``; float64, float32, float16, bfloat16 or int32. What becomes of others says
            :class:`Linear`.
        weight: ``(N, K)``, of the same dtype and device.
        bias: ``(N,)``, of the same dtype and device, or None.
        level: see :func:`fastgemm.matmul`, as for ``kernel``.
        precision: of float32 products, see :func:`fastgemm.matmul`; others are computed without it.

    Returns:
        ``(..., N)``, of the dtype that ``torch.nn.functional.linear`` returns.

    Raises:
        RuntimeError: the level or kernel asked for cannot run here. Shapes, dtypes and devices that do not go
            together raise torch's own errors.
        ValueError: unknown ``level``, ``kernel`` or ``precision``.
    """
    return _layer(linear, input, weight, bias, level, kernel, precision)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    level: int | None = None,
    kernel: str | None = None,
    precision: str | None = None,
) -> Tensor:
    """:func:`linear` with a ``weight`` of ``(K, N)``, as ``transformers.pytorch_utils.Conv1D`` stores it.

    Args:
        input: as for :func:`linear`.
        weight: ``(K, N)``, of the same dtype and device.
        bias: ``(N,)``, of the same dtype and device, or None.
        level: see :func:`fastgemm.matmul`, as for ``kernel``.
        precision: of float32 products, see :func:`fastgemm.matmul`; others are computed without it.

    Returns:
        ``(..., N)``, of the dtype that torch's product has.

    Raises:
        RuntimeError: as for :func:`linear`.
        ValueError: as for :func:`linear`.
    """
    return _layer(conv1d, input, weight, bias, level, kernel, precision)


def _by_torch(function: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return functional.linear(input, weight if function is linear else weight.t(), bias)


def _layer(
    function: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    level: int | None,
    kernel: str | None,
    precision: str | None,
) -> Tensor:
    """What :func:`linear` and :func:`conv1d` have in common."""
    compiling = is_compiling()
    if level is None and kernel is None and precision is None and not compiling:
        result = linear_at_once(input, weight, bias, function is linear)  # looks itself at what it is given
        if result is not NotImplemented:
            return result
    if has_torch_function_variadic(input, weight, bias):
        return _overridden(function, input, weight, bias, level=level, kernel=kernel, precision=precision)
    if tracing_state() is not None:
        return _traced(function, input, weight, bias, level, kernel, precision)
    if not all(isinstance(x, Tensor) for x in (input, weight, *([] if bias is None else [bias]))):
        return _by_torch(function, input, weight, bias)  # which says what is wrong
    if linear_bare is not None and type(input) is Tensor and type(weight) in PLAIN and not compiling:
        check_product_choice(level, kernel, precision)
        return linear_bare(input, weight, bias, function is linear, level, kernel, precision)
    if not _takes(input, weight, bias):
        check_product_choice(level, kernel, precision)
        return _by_torch(function, input, weight, bias)
    if precision is not None and (input.dtype is not torch.float32 or weight.dtype is not torch.float32):
        check_product_choice(None, None, precision)
        precision = None
    options = options_of(input, level, kernel, precision, None, None)
    if function is linear:
        options["trans_b"] = True
    rank = input.dim()
    # One matrix product, also for gradients: that of the weight would else be a sum over a batch of products.
    rows = input if rank == 2 else input.unsqueeze(0) if rank == 1 else input.flatten(0, -2)
    try:
        out = product(rows, weight, bias, None, options)
    except (ValueError, TypeError, NotImplementedError):
        # torch says what is wrong; but beside an input with data it reads memory that a meta weight does not have.
        if input.is_meta or not weight.is_meta:
            _by_torch(function, input, weight, bias)
        raise
    return out if rank == 2 else out.reshape(*input.shape[:-1], weight.shape[0 if function is linear else 1])


def _takes(input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether operands are of kinds that fastgemm multiplies. Whether their sizes go together, the op says."""
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
    """Whether dimensions have names, of which torch.compile knows nothing."""
    return not is_compiling() and any(x is not None and has_names(x) for x in tensors)


def _cast_alike(*operands: Any) -> bool:
    """Whether autocast gives operands of several dtypes one: it leaves float64 and integers as they are."""
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


def _knows_the_ops(kind: type) -> bool:
    """Whether tensors of a subclass have memory to read, or hand fastgemm's ops on to what has."""
    if kind.__torch_dispatch__ is Tensor.__torch_dispatch__:
        return True
    return any(f"{base.__module__}.{base.__qualname__}" in _KNOW_THE_OPS for base in kind.__mro__)


def _overridden(function: Callable[..., Tensor], input: Any, weight: Any, bias: Any, **choice: Any) -> Any:
    """A call that a mode, an fx proxy or a subclass gets to see.

    A subclass with a ``__torch_function__`` of its own knows torch's functions, and is asked for torch's.
    """
    if any(_overrides(type(x)) for x in (input, weight, bias)):
        return _by_torch(function, input, weight, bias)
    return overridden(function, (input, weight, bias), input, weight, bias, **choice)


def _overrides(kind: type) -> bool:
    function = getattr(kind, "__torch_function__", _IGNORED)
    inherited = getattr(function, "__func__", None) is Tensor.__torch_function__.__func__
    return not (function is _IGNORED or inherited or issubclass(kind, torch.fx.Proxy))


def _linear_in_script(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    level: int | None = None,
    kernel: str | None = None,
    precision: str | None = None,
) -> Tensor:
    """:func:`linear` in TorchScript, for inputs of any rank. What needs a cast by autocast is left to torch."""
    dtype, dense = weight.dtype, input.layout == torch.strided and weight.layout == torch.strided
    known = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32]
    alike = input.dtype == dtype and (bias is None or (bias.dtype == dtype and bias.dim() == 1))
    placed = (input.is_cpu or input.is_cuda) and input.dim() > 0 and weight.dim() == 2
    if not dense or input.is_nested or not alike or not placed or dtype not in known:
        return functional.linear(input, weight, bias)
    if dtype != torch.float32:
        precision = None
    rows = input.unsqueeze(0) if input.dim() == 1 else input.flatten(0, -2)
    out = torch.ops.fastgemm.gemm(
        rows, weight, bias, trans_b=True, level=level, impl=kernel, precision=precision
    )
    return out.reshape(input.shape[:-1] + weight.shape[:1])


linear.__prepare_scriptable__ = lambda: _linear_in_script  # what torch.jit.script compiles in its place


@cache
def _scripted() -> Callable[..., Tensor]:
    """A trace keeps the call of a scripted function with its branches, so that it takes inputs of any rank."""
    return torch.jit.script(_linear_in_script)


def _traced(
    function: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    level: int | None,
    kernel: str | None,
    precision: str | None,
) -> Tensor:
    """What torch.jit.trace records: with torch's flags and the casts of autocast as they are now."""
    options = options_of(input, level, kernel, precision, None, None)
    operands = _autocast.operands(input, weight, bias, options)
    input, weight, bias = operands
    weight = weight if function is linear else weight.t()
    return _scripted()(input, weight, bias, level, kernel, options.get("precision"))


def __getattr__(name: str) -> Any:
    """``Conv1D``, a kind of that of transformers: importing it takes a while, and not everybody has it."""
    if name != "Conv1D":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return _conv1d_class()
    except ImportError as error:
        raise AttributeError(f"{__name__}.{name} needs the transformers library") from error


def _conv1d_class() -> type:
    if "Conv1D" in globals():
        return globals()["Conv1D"]
    from transformers.pytorch_utils import Conv1D as Base

    def forward(self: Any, x: Tensor) -> Tensor:
        choice = self.level, self.kernel, self.precision
        return _layer(conv1d, x, self.weight, self.bias, *choice)

    body = {
        "__module__": __name__,
        "__doc__": "A Conv1D of transformers by :func:`conv1d`.",
        "forward": forward,
    }
    made = type("Conv1D", (Base,), {**body, "level": None, "kernel": None, "precision": None})
    return globals().setdefault("Conv1D", made)


def _is_conv1d(kind: type) -> bool:
    return (kind.__module__, kind.__qualname__) in (
        ("transformers.pytorch_utils", "Conv1D"),
        (__name__, "Conv1D"),
    )


def convert(
    module: torch.nn.Module,
    *,
    level: int | None = None,
    kernel: str | None = None,
    precision: str | None = None,
    only: Callable[[str, torch.nn.Module], bool] = lambda name, layer: True,
) -> torch.nn.Module:
    """Turns each ``torch.nn.Linear`` of a module tree into a :class:`Linear`, in place; and each ``Conv1D`` of
    transformers, which GPT-2 is made of, into a kind of it that fastgemm multiplies.

    The layers stay the same objects: parameters (shared ones, too), hooks, buffers and an optimizer's references
    hold. Subclasses of ``torch.nn.Linear``, which have a forward of their own (parametrized and quantization-aware
    ones), and the projections that ``torch.nn.MultiheadAttention`` uses without calling them are left alone. The
    fused path that ``torch.nn.TransformerEncoderLayer`` takes in inference calls no layers at all;
    ``torch.backends.mha.set_fastpath_enabled(False)`` turns it off.

    Args:
        module: a tree; a ``torch.nn.Linear`` itself is converted too.
        level: see :class:`Linear`, as for ``kernel`` and ``precision``. Layers converted before get these.
        only: tells by qualified name and layer which ones to convert.

    Returns:
        ``module``.
    """
    check_product_choice(level, kernel, precision)
    for name, layer in module.named_modules():
        if type(layer) in (torch.nn.Linear, Linear) and only(name, layer):
            layer.__class__ = Linear
            _choose(layer, level, kernel, precision)
        elif _is_conv1d(type(layer)) and only(name, layer):
            layer.__class__ = _conv1d_class()
            _choose(layer, level, kernel, precision)
    return module


def revert(module: torch.nn.Module) -> torch.nn.Module:
    """Turns each :class:`Linear` of a module tree into a ``torch.nn.Linear``, and each ``Conv1D`` into that of
    transformers, in place: undoes :func:`convert`.

    It is for tools that look layers up by their exact type, such as ``torch.ao.quantization``, and for processes
    without fastgemm. The layers stay the same objects here, too; those that were parametrized after they were
    converted are of another class and left alone.

    Args:
        module: a tree; a layer itself is reverted too.

    Returns:
        ``module``.
    """
    for layer in module.modules():
        kind = type(layer)
        if kind is Linear or (kind.__module__ == __name__ and _is_conv1d(kind)):
            layer.__class__ = kind.__base__
            for name in ("level", "kernel", "precision"):
                layer.__dict__.pop(name, None)
    return module
