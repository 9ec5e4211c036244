"""Layers whose products fastgemm computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, cast

import torch
from torch import Tensor

from ._models.load import load_quantized
from ._models.quantize import QuantizationReport, QuantizedLayer, quantize
from ._nn.experts import are_experts, convert_experts, experts_forward, revert_experts
from ._nn.experts import register_on_import as _register_experts
from ._nn.fuse import Model, Sequential, fuse
from ._nn.layers import CHOICE, Linear, choose, take_apart
from ._nn.linear import conv1d, linear
from ._nn.surgery import Notes, change_class, check_module, has_own_forward, why_left
from ._typing import Precision
from .table import checked_choice

__all__ = [
    "Linear",
    "QuantizationReport",
    "QuantizedLayer",
    "Sequential",
    "conv1d",
    "convert",
    "experts_forward",
    "fuse",
    "linear",
    "load_quantized",
    "quantize",
    "revert",
]

_PUBLIC: tuple[Any, ...] = (Linear, QuantizationReport, QuantizedLayer, Sequential, conv1d, fuse, linear)
for _public in (*_PUBLIC, experts_forward, load_quantized, quantize):
    _public.__module__ = __name__  # the module in which pickles and graphs of torch.fx find them


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    Conv1D: type[torch.nn.Module]
else:

    def __getattr__(name: str) -> Any:
        """Makes ``Conv1D``, a subclass of transformers' class, when it is first used: importing transformers takes
        time, and it may be missing."""
        if name != "Conv1D":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return _conv1d_class()
        except ImportError as error:
            raise AttributeError(f"{__name__}.{name} needs the transformers library") from error


def _conv1d_class() -> type[torch.nn.Module]:
    if "Conv1D" in globals():
        return globals()["Conv1D"]
    from transformers.pytorch_utils import Conv1D as Base

    def forward(self: Any, x: Tensor) -> Tensor:
        return conv1d(
            x, self.weight, self.bias, level=self.level, kernel=self.kernel, precision=self.precision
        )

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
    module: Model,
    *,
    level: int | None = None,
    kernel: str | None = None,
    precision: Precision | None = None,
    invariant: bool = False,
    only: Callable[[str, torch.nn.Module], bool] = lambda name, layer: True,
    **unknown: NoReturn,
) -> Model:
    """Turns each ``torch.nn.Linear`` of a module tree into a :class:`Linear`, in place; and each ``Conv1D`` of
    transformers (as in GPT-2) into a subclass whose product fastgemm computes. Layers of experts of transformers
    (5.0 and later) run by :func:`experts_forward`.

    The layers stay the same objects: parameters (shared ones, too), hooks, buffers and an optimizer's references
    remain valid. Some layers are not converted: those whose ``forward`` was replaced on the instance (accelerate
    does so); subclasses of ``torch.nn.Linear`` with their own forward (parametrized, lazy, quantization-aware,
    fully sharded); and projections that ``torch.nn.MultiheadAttention`` uses without calling them. The logger
    ``fastgemm.nn`` names them and the reasons. The fused path that ``torch.nn.TransformerEncoderLayer`` takes in
    inference calls no layers at all; ``torch.backends.mha.set_fastpath_enabled(False)`` turns it off.

    Args:
        module: a tree; a ``torch.nn.Linear`` itself is converted too.
        level: as for :class:`Linear`; so are ``kernel`` and ``precision``. Layers that were converted earlier
            get these, too.
        invariant: the bits of a row of a layer's output do not depend on the other rows, see
            :func:`fastgemm.matmul`: ``kernel="invariant"``. A UserWarning says if layers are not converted.
        only: a function of qualified name and layer that says whether to convert the layer.

    Returns:
        ``module``.

    Raises:
        TypeError: ``module`` is no module, or there is an unknown argument.
        ValueError: ``level``, ``kernel`` or ``precision`` is unknown, or not possible with ``invariant``.
    """
    if unknown:
        hint = "; layers and activations are joined by fastgemm.nn.fuse(model)" if "fuse" in unknown else ""
        raise TypeError(f"fastgemm.nn.convert: unexpected keyword argument {next(iter(unknown))!r}{hint}")
    check_module("convert", module)
    level, kernel = checked_choice(level, kernel, precision, invariant, "fastgemm.nn.convert")
    notes = Notes("convert")
    for name, layer in module.named_modules():
        if are_experts(layer) and only(name, layer):
            convert_experts(layer)
            choose(layer, level, kernel, precision)
        own = _own_class(layer)
        if own is None or not only(name, layer):
            continue
        kind = type(layer)
        if getattr(kind, "forward", None) is not own.forward:
            why = why_left(layer, kind is own.__base__ or _same_name(kind, own))
            if why is not None:
                notes.add(name, f"left alone: it {why}")
                continue
            change_class(layer, own)
        elif invariant and has_own_forward(layer):
            notes.add(name, "its forward was replaced on the instance, and decides what is computed")
        choose(layer, level, kernel, precision)
    notes.say("rows of layers left to torch may depend on the other rows" if invariant else None)
    return module


def _own_class(layer: torch.nn.Module) -> type[torch.nn.Module] | None:
    """The class of this module into which a layer can be converted, or None."""
    # A layer in TorchScript has another class, and this name.
    if isinstance(layer, torch.nn.Linear) or getattr(layer, "original_name", None) == "Linear":
        return Linear
    return _conv1d_class() if any(map(_is_conv1d, type(layer).__mro__)) else None


def _same_name(a: type, b: type) -> bool:
    """Whether two classes have the same name: if this package is imported again, layers made before have
    classes of the first import."""
    return (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__)


def revert(module: torch.nn.Module) -> torch.nn.Module:
    """Turns each :class:`Linear` of a module tree into a ``torch.nn.Linear``, each ``Conv1D`` and layer of experts
    into that of transformers and each :class:`Sequential` into torch's, in place: undoes :func:`convert` and
    :func:`fuse`.

    It is for tools that look layers up by their exact type, such as ``torch.ao.quantization``, and for processes
    without fastgemm. The layers stay the same objects here, too. A layer that was made with an ``activation``
    becomes a ``torch.nn.Sequential`` of a linear layer and that activation, because torch has no layer that does
    both. Its parameters are then called ``0.weight`` and ``0.bias``. Layers are not changed if they were
    parametrized or fully sharded, or got another ``forward``, after conversion. The logger ``fastgemm.nn`` names
    all of these, with reasons.

    Args:
        module: a tree; a layer itself is reverted too.

    Returns:
        ``module``.

    Raises:
        TypeError: ``module`` is no module.
    """
    check_module("revert", module)
    notes = Notes("revert")
    for name, part in list(module.named_modules()):
        if revert_experts(part):
            for attribute in CHOICE:
                part.__dict__.pop(attribute, None)
        own = next((base for base in type(part).__mro__ if base.__module__ == __name__), None)
        if own is None:
            continue
        why = why_left(part, type(part) is own)
        if why is not None:
            notes.add(name, f"left alone: it {why}")
        elif isinstance(part, torch.nn.Linear) and part.activation is not None:
            notes.add(name, take_apart(cast(Linear, part)))
        else:
            change_class(part, own.__bases__[0])
            for attribute in CHOICE:
                part.__dict__.pop(attribute, None)
    notes.say()
    return module


_register_experts()
