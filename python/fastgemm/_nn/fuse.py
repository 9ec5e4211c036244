"""A layer and the activation after it as one call: :class:`fastgemm.nn.Sequential`, which ``fuse`` makes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from .._typing import Activation, Precision
from ..table import check_product_choice
from .activated_linear import activated, activation_of
from .layers import Linear, choose
from .surgery import Notes, change_class, check_module, has_hooks, has_own_forward, is_compiled, why_left

Model = TypeVar("Model", bound=nn.Module)
_FORWARD = Linear.forward  # what a layer computes, unless a program replaces it for the whole class


class Sequential(nn.Sequential):
    """``torch.nn.Sequential`` that computes a :class:`Linear` and the activation after it in one call.

    The activations are ``ReLU``, ``GELU`` and ``SiLU`` of ``torch.nn``, and the call is :func:`fastgemm.linear`.
    ``repr`` shows such pairs as ``fused``. The layer and the activation stay ordinary modules: each works as in
    torch if it is used by itself, in another container, sliced, copied or pickled. Every call of the container
    checks them again. If one of the two has another class (wrapped, replaced, parametrized), hooks or its own
    ``forward``, or while global module hooks are registered, both are called one after the other.

    Shapes, dtypes and errors are those of ``torch.nn.Sequential`` of the same modules.
    """

    def forward(self, input: Tensor) -> Tensor:
        # TorchScript does not compile the other branch, and takes no other word behind `type: ignore`.
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            for module in self:
                input = module(input)
            return input
        elif isinstance(input, torch.fx.Proxy):  # whose graph shows modules
            return super().forward(input)
        else:
            return self._in_pairs(input)

    def _in_pairs(self, input: Tensor) -> Tensor:
        computed = False  # by the layer before
        modules = list(self)
        for module, after in zip(modules, [*modules[1:], None], strict=False):
            activation = None if computed else fused_activation(module, after)
            if activation is not None:
                layer: Any = module  # a Linear
                choice = layer.level, layer.kernel, layer.precision
                input = activated(input, layer.weight, layer.bias, activation, *choice)
            elif not computed:
                input = module(input)
            computed = activation is not None
        return input

    def extra_repr(self) -> str:
        pairs = pairwise(self._modules.items())
        fused = [f"{name} and {of}" for (name, layer), (of, after) in pairs if fused_activation(layer, after)]
        return f"fused: {', '.join(fused)}" if fused else ""


def fused_activation(layer: nn.Module | None, after: nn.Module | None) -> Activation | None:
    """The activation that one call computes together with the layer; None if both must be called."""
    if type(layer) is not Linear or Linear.forward is not _FORWARD or layer.activation is not None:
        return None
    activation = activation_of(after)
    if activation is None or after is None or _has_any_global_hook():
        return None
    return activation if _is_plain(layer) and _is_plain(after) else None


def _is_plain(module: nn.Module) -> bool:
    """Whether a call of the module runs only the forward of its class."""
    return not (has_hooks(module) or has_own_forward(module) or is_compiled(module))


def fuse(
    model: Model,
    *,
    level: int | None = None,
    kernel: str | None = None,
    precision: Precision | None = None,
) -> Model:
    """Computes each layer and the activation after it in one call, in every ``torch.nn.Sequential`` of a model.

    In place: the ``torch.nn.Sequential`` becomes a :class:`Sequential`, which computes pairs, and their layers
    become :class:`Linear`, as by :func:`convert`. All modules stay the same objects in their places, and their
    parameters keep their names. Hooks, adapters and uses of a part that come later work as they do in torch.
    :func:`revert` undoes it.

    A layer is a ``torch.nn.Linear`` or a :class:`Linear` without an activation, an activation ``ReLU``, ``GELU``
    or ``SiLU`` of ``torch.nn``; subclasses are neither. A pair is not changed if one of the two has hooks or its
    own ``forward``, if the layer is parametrized, lazy or sharded, or if the container is a subclass of
    ``torch.nn.Sequential``. The logger ``fastgemm.nn`` names such pairs and the reasons.

    Args:
        model: a tree of modules.
        level: as for :class:`Linear`; so are ``kernel`` and ``precision``. If none of the three is given, layers
            that :func:`convert` converted keep their settings.

    Returns:
        ``model``.

    Raises:
        TypeError: ``model`` is no module.
        ValueError: unknown ``level``, ``kernel`` or ``precision``.
    """
    check_module("fuse", model)
    check_product_choice(level, kernel, precision, "fastgemm.nn.fuse")
    asked = (level, kernel, precision) != (None, None, None)
    notes = Notes("fuse")
    for path, parent in model.named_modules():
        if not isinstance(parent, nn.Sequential):
            continue
        for (name, layer), (_, after) in pairwise(parent._modules.items()):
            if not isinstance(layer, nn.Linear) or after is None or activation_of(after) is None:
                continue
            why = _why_apart(parent, layer, after)
            if why is not None:
                notes.add(f"{path}.{name}".lstrip("."), f"left alone: {why}")
                continue
            if type(layer) is not Linear or asked:
                change_class(layer, Linear)
                choose(layer, level, kernel, precision)
            change_class(parent, Sequential)
    notes.say()
    return model


def _why_apart(parent: nn.Sequential, layer: nn.Linear, after: nn.Module) -> str | None:
    if type(layer) is Linear and layer.activation is not None:
        return "it has an activation of its own"
    parts = {
        "its container": (parent, (nn.Sequential, Sequential)),
        "it": (layer, (nn.Linear, Linear)),
        "the activation after it": (after, (type(after),)),
    }
    for name, (module, kinds) in parts.items():
        why = why_left(module, type(module) in kinds)
        if why is None and module is not parent and not _is_plain(module):
            why = "has hooks" if has_hooks(module) else "is compiled by itself"
        if why is not None:
            return f"{name} {why}"
    return None
