"""What ``convert``, ``fuse`` and ``revert`` leave as it is: why, and how they say so."""

from __future__ import annotations

import logging
import warnings

import torch
from torch import nn
from torch.nn.utils import parametrize

OWN_FORWARD = "its forward was replaced on the instance, as by accelerate's hooks"

_log = logging.getLogger("fastgemm.nn")


class Left:
    """The qualified names of what a function of fastgemm.nn leaves as it is, by reason."""

    def __init__(self, function: str) -> None:
        self.function, self.names = function, dict[str, list[str]]()

    def add(self, name: str, reason: str) -> None:
        self.names.setdefault(reason, []).append(name or "the module itself")

    def say(self, so: str | None = None) -> None:
        """One warning of the logger for each reason: a model has dozens of layers of one kind.

        ``so``: what follows from it that the caller has asked not to be; a UserWarning says that.
        """
        for reason, names in self.names.items():
            _log.warning("fastgemm.nn.%s left as it was: %s (%s)", self.function, ", ".join(names), reason)
        if self.names and so is not None:
            first = next(iter(self.names.values()))[0]
            count = sum(map(len, self.names.values()))
            warnings.warn(
                f"fastgemm.nn.{self.function}: {so}: {count} of the layers, such as {first}; the logger "
                "fastgemm.nn names all and says why",
                stacklevel=3,
            )


def check_module(function: str, module: object) -> None:
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"fastgemm.nn.{function}: module must be a torch.nn.Module, got {type(module).__name__}"
        )


def has_hooks(module: nn.Module) -> bool:
    """Whether a call of the module runs hooks; those that see keywords or run always are among these, too."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


def has_own_forward(module: nn.Module) -> bool:
    """Whether ``forward`` was replaced on the instance: what the class computes is then called by it, or not."""
    return "forward" in module.__dict__


def why_left(layer: nn.Module, exact: bool) -> str | None:
    """Why a layer cannot change its class; None where it can. ``exact``: it is of a class that could."""
    kind = type(layer)
    if exact:
        return OWN_FORWARD if has_own_forward(layer) else None
    if isinstance(layer, nn.modules.lazy.LazyModuleMixin):
        return "it is lazy until its first call"
    if any(base.__name__ == "FSDPModule" for base in kind.__mro__):
        return "it is of a class that fully_shard made"
    if parametrize.is_parametrized(layer):
        return "it is parametrized"
    if kind is nn.modules.linear.NonDynamicallyQuantizableLinear:
        return "torch.nn.MultiheadAttention reads its weight and does not call it"
    if isinstance(layer, torch.jit.ScriptModule):
        return "it is compiled by TorchScript"
    return f"it is of class {kind.__module__}.{kind.__qualname__}, which may have a forward of its own"
