"""A layer with an activation, by :func:`fastgemm.linear` if it takes operands of these kinds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn import functional
from torch.overrides import has_torch_function_variadic

from .. import _errors
from .._ops.activations import ACTIVATIONS
from .._ops.activations import activate as apply_activation
from .._ops.dispatch import has_precision, out_of_sight, tracing_state
from .._ops.linear import FLOATS
from .._ops.linear import linear as fused_linear
from .._typing import Activation, Precision
from ..table import check_product_choice
from .linear import _takes, exports_to_onnx, linear, raise_torchs

__all__ = ["ACTIVATIONS", "MODULES", "activated", "activation_of"]


MODULES: dict[Activation, Callable[[], torch.nn.Module]] = {
    "relu": torch.nn.ReLU,
    "gelu": torch.nn.GELU,
    "gelu_tanh": lambda: torch.nn.GELU(approximate="tanh"),
    "silu": torch.nn.SiLU,
}
"""The function that creates torch's module for an activation."""

_FORWARDS = {kind: kind.forward for kind in (torch.nn.ReLU, torch.nn.GELU, torch.nn.SiLU)}
"""Their forward methods, unless a program replaces one for the whole class, as profilers do."""
_OF_GELU: dict[str, Activation] = {"none": "gelu", "tanh": "gelu_tanh"}


def activation_of(module: torch.nn.Module | None) -> Activation | None:
    """The name of a module's activation in fastgemm.linear; None if there is none."""
    kind = type(module)
    if kind not in _FORWARDS or kind.forward is not _FORWARDS[kind]:
        return None
    if isinstance(module, torch.nn.GELU):
        return _OF_GELU.get(module.approximate)
    return "relu" if kind is torch.nn.ReLU else "silu"


def activate(x: Tensor, activation: str) -> Tensor:
    """``ACTIVATIONS[activation](x)``, also for torch.jit.script."""
    if activation == "relu":
        return functional.relu(x)
    if activation == "silu":
        return functional.silu(x)
    return functional.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")


def activated(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: Activation,
    level: int | None = None,
    kernel: str | None = None,
    precision: Precision | None = None,
) -> Tensor:
    """``activation(linear(input, weight, bias))``: what :class:`fastgemm.nn.Linear` with an activation calls."""
    watched = not is_compiling() and has_torch_function_variadic(input, weight, bias)
    if watched:
        given = input, weight, bias
        result = out_of_sight(activated, given, *given, activation, level, kernel, precision)
        if result is not NotImplemented:
            return result
    by_itself = (
        watched
        or (not is_compiling() and tracing_state() is not None)
        or not _takes(input, weight, bias)
        or weight.dtype not in FLOATS
        or (bias is not None and bias.shape != weight.shape[:1])
        or _errors.is_sharded(input, weight)
        or (is_compiling() and exports_to_onnx())
    )
    if by_itself:
        out = linear(input, weight, bias, level=level, kernel=kernel, precision=precision)
        # A file for ONNX has torch's ops.
        return apply_activation(
            out, {"activation": activation, "impl": None if exports_to_onnx() else kernel}
        )
    if precision is not None:
        check_product_choice(None, None, precision)
        if not (has_precision(input.dtype, precision) and has_precision(weight.dtype, precision)):
            precision = None
    try:
        return fused_linear(
            input, weight, bias, activation=activation, level=level, kernel=kernel, precision=precision
        )
    except (ValueError, TypeError, NotImplementedError):
        raise_torchs(linear, input, weight, bias)
        raise


def _activated_in_script(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str,
    level: int | None = None,
    kernel: str | None = None,
    precision: str | None = None,
) -> Tensor:
    # TorchScript knows no Literal.
    out = linear(input, weight, bias, level=level, kernel=kernel, precision=precision)  # type: ignore[arg-type]
    return activate(out, activation)


# torch.jit.script compiles this function instead.
activated.__prepare_scriptable__ = lambda: _activated_in_script  # type: ignore[attr-defined]  # of a function
