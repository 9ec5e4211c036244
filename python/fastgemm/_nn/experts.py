"""The experts of models of the transformers library (5.0 and later), by an implementation that its configs can
name."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from .._import_hooks import call_after_import
from .._ops.dispatch import options_of
from .._ops.gather import combined
from .._ops.grouped import activated
from .._ops.moe import mixture, routes_of

NAME = "fastgemm"
"""The value of ``experts_implementation``."""
_INTERFACE = "transformers.integrations.moe"
_BEFORE = "_config_before_fastgemm"


def experts_forward(
    experts: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor
) -> Tensor:
    """The forward pass of a layer of experts of the transformers library. Once fastgemm is imported, models with
    ``experts_implementation="fastgemm"`` use it.

    Experts with a gate by silu and without a bias are one :func:`fastgemm.moe`; other experts are two grouped
    products with their biases, and the module's own functions are called between and after these products.

    Args:
        experts: the module, whose class is decorated by transformers' ``use_experts_implementation``.
        hidden_states: ``(T, H)``.
        top_k_index: ``(T, k)``: the experts of each token; ids of experts that the module does not have, for
            example because they are on other devices, add nothing.
        top_k_weights: ``(T, k)``.

    Returns:
        ``(T, H)``, of the dtype of ``hidden_states``.

    Raises:
        AttributeError: ``experts`` is another module.

    Examples:
        >>> import fastgemm, transformers  # doctest: +SKIP
        >>> model.set_experts_implementation("fastgemm")  # or an argument of from_pretrained  # doctest: +SKIP
    """
    first = experts.gate_up_proj if experts.has_gate else experts.up_proj
    last = experts.down_proj
    if experts.is_transposed:
        first, last = first.mT, last.mT
    x = hidden_states.to(first.dtype)
    level, kernel, precision = (getattr(experts, name, None) for name in ("level", "kernel", "precision"))
    options = options_of(x, level, kernel, precision, None, None)
    if _is_swiglu(experts):
        return mixture(x, first, last, top_k_index, top_k_weights, options).to(hidden_states.dtype)
    name = "gate_up_proj_bias" if experts.has_gate else "up_proj_bias"
    biases = (getattr(experts, name), experts.down_proj_bias) if experts.has_bias else (None, None)
    routes = routes_of(top_k_index, first.shape[0])
    inner = activated(x, first.mT, routes.offs, biases[0], None, options, routes.rows, routes.places)
    inner = experts._apply_gate(inner) if experts.has_gate else experts.act_fn(inner)
    result = activated(inner, last.mT, routes.offs, biases[1], None, options)
    if getattr(experts, "has_post_expert_norm", False):  # older versions of transformers do not have it
        result = experts.post_expert_norm(result)
        known = (top_k_index >= 0) & (top_k_index < first.shape[0])
        top_k_weights = torch.where(known, top_k_weights, 0)
    return combined(result, top_k_weights, routes.places, routes.order).to(hidden_states.dtype)


def _is_swiglu(experts: Any) -> bool:
    """Whether a layer is what fastgemm.moe computes: transformers' own gate with silu, and nothing else."""
    gate = getattr(type(experts), "_apply_gate", None)
    is_silu = isinstance(experts.act_fn, torch.nn.SiLU) or type(experts.act_fn).__name__ == "SiLUActivation"
    return (
        experts.has_gate
        and getattr(gate, "__name__", "") == "_default_apply_gate"
        and is_silu
        and not experts.has_bias
        and not getattr(experts, "has_post_expert_norm", False)
    )


def register_on_import() -> None:
    """Tells transformers the name of this implementation, now or when the library is imported."""
    call_after_import(_INTERFACE, _register)


def _register() -> None:
    import sys

    interface = getattr(sys.modules[_INTERFACE], "ALL_EXPERTS_FUNCTIONS", None)
    if interface is not None:
        interface.register(NAME, experts_forward)


def are_experts(module: torch.nn.Module) -> bool:
    """Whether a module is a layer of experts whose config names the implementation."""
    if not hasattr(type(module), "_apply_gate"):
        return False
    return hasattr(getattr(module, "config", None), "_experts_implementation")


def convert_experts(module: Any) -> None:
    """Gives a layer a copy of its config that names this implementation. The model's own config still names the
    implementation of the other layers."""
    if _BEFORE in module.__dict__:
        return
    module.__dict__[_BEFORE] = module.config
    module.config = copy.copy(module.config)
    module.config._experts_implementation = {"": NAME}  # without the configs inside of it


def revert_experts(module: Any) -> bool:
    """Undoes :func:`convert_experts`; returns whether it had been called."""
    if _BEFORE not in module.__dict__:
        return False
    module.config = module.__dict__.pop(_BEFORE)
    return True
