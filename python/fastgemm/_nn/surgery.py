"""Layers that ``convert``, ``fuse`` and ``revert`` do not change: the reasons, and the warnings."""

from __future__ import annotations

import logging
import warnings
from inspect import ismethod

import torch
from torch import nn
from torch.nn.utils import parametrize

log = logging.getLogger("fastgemm.nn")


class Notes:
    """Collects notes about parts of a model, by qualified names, for a function of fastgemm.nn."""

    def __init__(self, function: str) -> None:
        self.function, self.names = function, dict[str, list[str]]()

    def add(self, name: str, note: str) -> None:
        self.names.setdefault(note, []).append(name or "the module itself")

    def say(self, so: str | None = None) -> None:
        """Logs one warning for each different note: a model has dozens of layers of one kind.

        ``so``: the consequence for what the caller has requested, as a UserWarning.
        """
        for note, names in self.names.items():
            log.warning("fastgemm.nn.%s: %s: %s", self.function, ", ".join(names), note)
        if self.names and so is not None:
            first, *others = (name for names in self.names.values() for name in names)
            warnings.warn(
                f"fastgemm.nn.{self.function}: {so}: {first}{' and others' if others else ''}; the logger "
                "fastgemm.nn says why",
                stacklevel=3,
            )


def check_module(function: str, module: object) -> None:
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"fastgemm.nn.{function}: module must be a torch.nn.Module, got {type(module).__name__}"
        )


def has_hooks(module: nn.Module) -> bool:
    """Whether a call of the module runs hooks of any kind."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


def has_own_forward(module: nn.Module) -> bool:
    """Whether ``forward`` was replaced on the instance.

    A bound method of the class does not count: accelerate leaves one when its hooks are removed. The attribute is
    read instead of ``__dict__``, since torch.compile guards only attributes."""
    forward = module.forward
    of_class = ismethod(forward) and forward.__func__ == type(module).forward and forward.__self__ is module
    return not of_class


def is_compiled(module: nn.Module) -> bool:
    """Whether ``module.compile()`` has replaced the function that a call runs."""
    return module.__dict__.get("_compiled_call_impl") is not None


def why_left(module: nn.Module, exact: bool) -> str | None:
    """The reason why a module cannot change its class, or None. ``exact``: its class is one that may be
    changed."""
    kind = type(module)
    if exact:
        return "had its forward replaced on the instance" if has_own_forward(module) else None
    if isinstance(module, nn.modules.lazy.LazyModuleMixin):
        return "is lazy until its first call"
    if any(base.__name__ == "FSDPModule" for base in kind.__mro__):
        return "is of a class that fully_shard made"
    if parametrize.is_parametrized(module):
        return "is parametrized"
    if kind is nn.modules.linear.NonDynamicallyQuantizableLinear:
        return "is not called by torch.nn.MultiheadAttention, which reads its weight"
    if isinstance(module, torch.jit.ScriptModule):
        return "is compiled by TorchScript"
    return f"is a {kind.__module__}.{kind.__qualname__}, which may have a forward of its own"


def change_class(module: nn.Module, kind: type) -> None:
    module.__dict__.pop("forward", None)  # a bound method of the class that it had
    module.__class__ = kind
