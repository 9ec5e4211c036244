"""Layers whose products fastgemm computes."""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ._activated import ACTIVATIONS, activate, activated, activation_of
from ._linear import conv1d, linear
from ._words import Activation, Precision
from .table import check_product_choice, invariant_choice

__all__ = ["Linear", "conv1d", "convert", "linear", "revert"]

for _function in (conv1d, linear):
    _function.__module__ = __name__  # where graphs of torch.fx look for them


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
    nested, sparse, quantized, mkldnn and named tensors, int8 and other types that :func:`linear` does not
    list, operands that are not of one dtype (but those that autocast casts to one), other devices than CPU and
    CUDA, and tensor subclasses that override ``__torch_function__`` or ``__torch_dispatch__`` (but ``DTensor``).

    Args:
        in_features: K, the size of the last dimension of the input.
        out_features: N, that of the output.
        bias: whether a vector of N is added.
        device: of the parameters.
        dtype: of the parameters.
        level: see :func:`fastgemm.matmul`, as for ``kernel``; may be changed later, as may ``precision``.
        precision: of float32 and complex64 products, see :func:`fastgemm.matmul`; others are computed without it.
        activation: ``"relu"``, ``"gelu"``, ``"gelu_tanh"`` or ``"silu"`` of the output, by
            :func:`fastgemm.linear`: in the kernel that multiplies, where it can.

    Shapes: ``(..., K)`` to ``(..., N)``. Errors are those of ``torch.nn.Linear``, and those of
    :func:`fastgemm.gemm` where the level or kernel asked for cannot run.
    """

    __constants__ = (
        *torch.nn.Linear.__constants__,
        "level",
        "kernel",
        "precision",
        "activation",
        "is_joined",
    )  # for torch.jit.script
    __jit_unused_properties__ = ("is_joined",)
    level: int | None = None  # also of a module that was pickled as a torch.nn.Linear
    kernel: str | None = None
    precision: str | None = None
    activation: str | None = None
    joint = None  # where convert(fuse=True) gave it its activation
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
        precision: Precision | None = None,
        activation: Activation | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        _choose(self, level, kernel, precision)
        if activation is not None and activation not in ACTIVATIONS:
            accepted = ", ".join(map(repr, ACTIVATIONS))
            raise ValueError(
                f"fastgemm.nn.Linear: unknown activation {activation!r}; accepted: {accepted} or None"
            )
        self.activation = activation

    def forward(self, input: Tensor) -> Tensor:
        if self.activation is not None and self.is_joined:
            return activated(
                input, self.weight, self.bias, self.activation, self.level, self.kernel, self.precision
            )
        return linear(
            input, self.weight, self.bias, level=self.level, kernel=self.kernel, precision=self.precision
        )

    @property
    def is_joined(self) -> bool:
        """Whether it computes its activation: not where a stand-in for that is not behind it any more."""
        return self.joint is None or self.joint.holds()

    def extra_repr(self) -> str:
        text = super().extra_repr()
        for name in ("level", "kernel", "precision", "activation"):
            value = getattr(self, name)
            text += "" if value is None else f", {name}={value!r}"
        return text


class _Joint:
    """A layer and the stand-in for the activation that it computes, as children of one module.

    It holds while both are where they were joined. Where the layer was wrapped or replaced, the stand-in removed
    or another module put between them, the layer computes its product alone, and the stand-in the activation, so
    far as they are still called: the program means the same as without ``fuse``. So does a copy of the layer
    alone, wherever it is put.
    """

    def __init__(self, parent: torch.nn.Module | None, layer: str, stand_in: str) -> None:
        # Weak: a model is no reference cycle, and what was taken out of it does not keep the rest.
        self.parent, self.names = None if parent is None else weakref.ref(parent), (layer, stand_in)

    def holds(self) -> bool:
        parent = None if self.parent is None else self.parent()
        if parent is None:
            return False
        children = [parent._modules.get(name) for name in self.names]
        return all(child is not None and child.__dict__.get("joint") is self for child in children)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Joint:
        parent = None if self.parent is None else self.parent()
        return _Joint(memo.get(id(parent)), *self.names)

    def __reduce__(self) -> tuple[Any, ...]:
        # The parent is state: it holds the joint, which must be there before. A layer that is pickled alone drags
        # it along, and is without it again afterwards.
        return _Joint, (None, *self.names), None if self.parent is None else {"parent": self.parent()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        parent = state["parent"]
        self.parent = None if parent is None else weakref.ref(parent)


class _Joined(torch.nn.Identity):
    """Stands in the place of an activation that the layer before it computes, and keeps it for :func:`revert`.

    It has no parameters, as the activation has none, and the modules after it keep their names in a
    ``state_dict``.
    """

    __constants__ = ("activation", "is_joined")
    __jit_unused_properties__ = ("is_joined",)
    joint = None
    is_joined = Linear.is_joined

    def __init__(self, replaced: torch.nn.Module, activation: str, joint: _Joint) -> None:
        super().__init__()
        self.training = replaced.training
        self.__dict__["replaced"] = replaced  # no child: whoever walks over the tree meets no activation
        self.activation, self.joint = activation, joint

    def forward(self, input: Tensor) -> Tensor:
        return input if self.is_joined else activate(input, self.activation)

    def extra_repr(self) -> str:
        return f"{self.__dict__['replaced']!r}, computed by the layer before"


def _choose(module: Linear, level: int | None, kernel: str | None, precision: str | None) -> None:
    check_product_choice(level, kernel, precision, "fastgemm.nn.Linear")
    module.level, module.kernel, module.precision = level, kernel, precision


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


def _check_module(function: str, module: object) -> None:
    if not isinstance(module, torch.nn.Module):
        raise TypeError(
            f"fastgemm.nn.{function}: module must be a torch.nn.Module, got {type(module).__name__}"
        )


def convert(
    module: torch.nn.Module,
    *,
    level: int | None = None,
    kernel: str | None = None,
    precision: Precision | None = None,
    invariant: bool = False,
    fuse: bool = False,
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
        invariant: each row of a layer's output has the same bits whatever the other rows are and however many, see
            :func:`fastgemm.matmul`: ``kernel="invariant"``.
        fuse: joins a layer and the activation after it (``ReLU``, ``GELU`` and ``SiLU`` of ``torch.nn``) where a
            ``torch.nn.Sequential`` says so: the layer gets its ``activation`` (see :class:`Linear`), and a
            stand-in takes the activation's place, so that parameters keep their names. Layers and
            activations with hooks, and layers that the tree has in several places, are left alone. Where a layer
            is replaced or wrapped later, or something is put behind it, the stand-in computes the activation.
        only: tells by qualified name and layer which ones to convert.

    Returns:
        ``module``.

    Raises:
        TypeError: ``module`` is no module.
    """
    _check_module("convert", module)
    if invariant:
        level, kernel = None, invariant_choice(level, kernel, precision, "fastgemm.nn.convert")
    check_product_choice(level, kernel, precision, "fastgemm.nn.convert")
    converted = set()
    for name, layer in module.named_modules():
        if type(layer) in (torch.nn.Linear, Linear) and only(name, layer):
            layer.__class__ = Linear
            _choose(layer, level, kernel, precision)
            converted.add(layer)
        elif _is_conv1d(type(layer)) and only(name, layer):
            layer.__class__ = _conv1d_class()
            _choose(layer, level, kernel, precision)
    if fuse:
        _join_activations(module, converted)
    return module


def _join_activations(module: torch.nn.Module, layers: set[torch.nn.Module]) -> None:
    places = Counter(child for _, child in module.named_modules(remove_duplicate=False))

    def has_hooks(child: torch.nn.Module) -> bool:
        return bool(
            child._forward_hooks
            or child._forward_pre_hooks
            or child._backward_hooks
            or child._backward_pre_hooks
        )

    for parent in module.modules():
        if type(parent) is not torch.nn.Sequential:
            continue
        children = list(parent._modules.items())  # with those that it has twice
        for (of_layer, layer), (name, after) in pairwise(children):
            activation = activation_of(after)
            if activation is None or layer not in layers or layer.activation is not None:
                continue
            if has_hooks(after) or has_hooks(layer) or places[layer] > 1:
                continue
            layer.activation = activation
            layer.joint = _Joint(parent, of_layer, name)
            setattr(parent, name, _Joined(after, activation, layer.joint))


def revert(module: torch.nn.Module) -> torch.nn.Module:
    """Turns each :class:`Linear` of a module tree into a ``torch.nn.Linear``, and each ``Conv1D`` into that of
    transformers, in place: undoes :func:`convert`.

    It is for tools that look layers up by their exact type, such as ``torch.ao.quantization``, and for processes
    without fastgemm. The layers stay the same objects here, too; those that were parametrized after they were
    converted are of another class and left alone, as are those that were made with an ``activation``.

    Args:
        module: a tree; a layer itself is reverted too.

    Returns:
        ``module``.

    Raises:
        TypeError: ``module`` is no module.
    """
    _check_module("revert", module)
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):
            if type(child) is _Joined:
                setattr(parent, name, child.__dict__["replaced"])
    for layer in module.modules():
        if type(layer) is Linear and layer.joint is not None:
            del layer.joint, layer.activation
    for layer in module.modules():
        kind = type(layer)
        if (kind is Linear and layer.activation is None) or (
            kind.__module__ == __name__ and _is_conv1d(kind)
        ):
            layer.__class__ = kind.__base__
            for name in ("level", "kernel", "precision", "activation"):
                layer.__dict__.pop(name, None)
    return module
