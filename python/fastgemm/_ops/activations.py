"""Activations: what `activation=` accepts, torch's function for each, and its gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..table import INVARIANT
from .gated import SWIGLU

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}
"""The values of ``activation=``, and torch's function for each."""


def check_activation(activation: object) -> None:
    if activation is None or (isinstance(activation, str) and activation in ACTIVATIONS):
        return
    accepted = f"accepted: {', '.join(map(repr, (*ACTIVATIONS, SWIGLU)))} or None"
    if not isinstance(activation, str):
        raise TypeError(
            f"fastgemm: activation must be a str or None, got {type(activation).__name__}; {accepted}"
        )
    raise ValueError(f"fastgemm: unknown activation {activation!r}; {accepted}")


def for_torch(x: Tensor, options: dict[str, Any]) -> Tensor:
    """The input of an elementwise function of torch.

    On a CPU torch computes vectors, and the elements left over one by one, with other bits. For rows that do not
    depend on each other, the elements do not lie side by side: then torch computes all of them one by one."""
    invariant = options.get("invariant") or options.get("impl") in INVARIANT
    on_a_cpu = not isinstance(x, Tensor) or x.is_cpu  # torch.fx's proxies are no tensors
    return torch.stack((x, x), -1)[..., 0] if invariant and on_a_cpu else x


def activate(inner: Tensor, options: dict[str, Any]) -> Tensor:
    """The activation by torch's function."""
    activation = options["activation"]
    return ACTIVATIONS[activation](inner if activation == "relu" else for_torch(inner, options))


def through_activation(grad: Tensor, inner: Tensor, options: dict[str, Any]) -> Tensor:
    """The gradient before the activation, by torch's own formulas."""
    aten = torch.ops.aten
    activation = options["activation"]
    if activation == "relu":
        return aten.threshold_backward(grad, inner, 0)
    inner = for_torch(inner, options)
    if activation == "silu":
        if not torch.is_grad_enabled():
            return aten.silu_backward(grad, inner)
        share = inner.sigmoid()  # as torch does where the gradient is differentiated again
        return grad * share * (1 + inner * (1 - share))
    return aten.gelu_backward(grad, inner, approximate="tanh" if activation == "gelu_tanh" else "none")
