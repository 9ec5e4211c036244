"""The experts of models of the transformers library (5.0 and later), as an implementation that its configs can
name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._ops.dispatch import options_of
from .._ops.gather import gathered
from .._ops.grouped import activated
from .._ops.moe import mixture, routes_of, weighted_sum


def experts_forward(
    experts: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor
) -> Tensor:
    """The forward pass of a layer of experts of the transformers library, for its ``ExpertsInterface``.

    Experts with a gate by silu and without a bias are one :func:`fastgemm.moe`; for all others the two products
    are grouped, with their biases, and the module's own functions are called between and after them.

    Args:
        experts: the module, whose class is decorated by transformers' ``use_experts_implementation``.
        hidden_states: ``(T, H)``.
        top_k_index: ``(T, k)``: the experts of each token; ids that the module has not, as those of other devices,
            add nothing.
        top_k_weights: ``(T, k)``.

    Returns:
        ``(T, H)``, of the dtype of ``hidden_states``.

    Raises:
        AttributeError: ``experts`` is another module.

    Examples:
        >>> from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS  # doctest: +SKIP
        >>> ALL_EXPERTS_FUNCTIONS.register("fastgemm", fastgemm.nn.experts_forward)  # doctest: +SKIP
        >>> model.set_experts_implementation("fastgemm")  # doctest: +SKIP
    """
    first = experts.gate_up_proj if experts.has_gate else experts.up_proj
    last = experts.down_proj
    if experts.is_transposed:
        first, last = first.mT, last.mT
    x = hidden_states.to(first.dtype)
    options = options_of(x, None, None, None, None, None)
    if _is_swiglu(experts):
        return mixture(x, first, last, top_k_index, top_k_weights, options).to(hidden_states.dtype)
    name = "gate_up_proj_bias" if experts.has_gate else "up_proj_bias"
    biases = (getattr(experts, name), experts.down_proj_bias) if experts.has_bias else (None, None)
    routes = routes_of(top_k_index, first.shape[0])
    inner = activated(
        gathered(x, routes.rows, routes.places), first.mT, routes.offs, biases[0], None, options
    )
    inner = experts._apply_gate(inner) if experts.has_gate else experts.act_fn(inner)
    result = activated(inner, last.mT, routes.offs, biases[1], None, options)
    if experts.has_post_expert_norm:
        result = experts.post_expert_norm(result)
        known = (top_k_index >= 0) & (top_k_index < first.shape[0])
        top_k_weights = torch.where(known, top_k_weights, 0)
    return weighted_sum(result, top_k_weights, routes).to(hidden_states.dtype)


def _is_swiglu(experts: Any) -> bool:
    """Whether a layer is what fastgemm.moe computes: transformers' own gate with silu, and nothing else."""
    gate = getattr(type(experts), "_apply_gate", None)
    is_silu = isinstance(experts.act_fn, torch.nn.SiLU) or type(experts.act_fn).__name__ == "SiLUActivation"
    return (
        experts.has_gate
        and getattr(gate, "__name__", "") == "_default_apply_gate"
        and is_silu
        and not experts.has_bias
        and not experts.has_post_expert_norm
    )
