"""A layer of experts: the tokens sorted by expert, two grouped products, and the weighted sum of each token.

Nothing here waits for a GPU: how many tokens an expert has is never read on the host. All of it is made of
differentiable functions, and each sum has a fixed order, so results and gradients are reproducible."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import has_torch_function_variadic

from .. import _errors
from .._typing import Precision
from ..table import invariant_choice
from .dispatch import ops, options_of, overridden
from .gated import SWIGLU
from .gather import combined, runs_passes
from .grouped import activated
from .sizes import same

MOST_EXPERTS = 8191
"""What _route_tokens takes (csrc/core/experts.h)."""


class Routes(NamedTuple):
    """T tokens with k experts each: the pairs of a token and an expert, sorted by expert."""

    rows: Tensor
    """``(T k,)``: the token of each pair."""
    offs: Tensor
    """``(E,)``, int32: where the pairs of each expert end. Pairs of unknown experts lie beyond the last end."""
    order: Tensor
    """``(T k, 1)``: the place of each pair among those in the order of the tokens."""
    places: Tensor
    """``(T, k)``: where the pairs of each token are."""


def routes_of(ids: Tensor, experts: int) -> Routes:
    """Sorts the pairs of token and expert by expert. ids outside of 0 .. experts - 1 are those of no expert."""
    if runs_passes(ids) and experts <= MOST_EXPERTS:
        order, rows, offs, places = ops._route_tokens(ids, experts)
        return Routes(rows, offs, order.unsqueeze(1), places)
    flat = ids.flatten()
    flat = torch.where(flat < 0, torch.iinfo(ids.dtype).max, flat)
    ordered, order = flat.sort(stable=True)
    offs = torch.searchsorted(
        ordered, torch.arange(experts, device=ids.device, dtype=ordered.dtype), right=True, out_int32=True
    )
    places = torch.empty_like(order).scatter(0, order, torch.arange(order.shape[0], device=ids.device))
    return Routes(order // ids.shape[1], offs, order.unsqueeze(1), places.view(ids.shape))


def moe(
    x: Tensor,
    gate_up: Tensor,
    down: Tensor,
    ids: Tensor,
    weights: Tensor,
    *,
    level: int | None = None,
    kernel: str | None = None,
    precision: Precision | None = None,
    invariant: bool = False,
) -> Tensor:
    """A layer of experts: for each token, the weighted sum of its k experts, each of which computes
    ``down @ (silu(gate @ x) * (up @ x))``.

    There are two grouped products, as of :func:`grouped_mm`. The sum of a token is computed in the order of its
    experts in ``ids``, in float32 (for float64: in float64), and rounded once. Nothing waits for a GPU. Gradients
    flow into ``x``, both weights of the experts, and ``weights``; they and the result are the same in every run.

    Args:
        x: ``(T, H)``, a row for each token; float64, float32, float16 or bfloat16.
        gate_up: ``(E, 2 I, H)``: for each expert the rows of the gate, then those of up. Any strides.
        down: ``(E, H, I)``.
        ids: ``(T, k)``, int64 or int32: the experts of each token. A pair with an id outside of 0 to E - 1 adds
            nothing if its weight is finite, as for an expert on another device.
        weights: ``(T, k)``, of a floating-point type: the share of each expert.
        level: 1 to 7, a rung of the ladder, or ``None`` for the fastest kernel known; see :func:`matmul`.
        kernel: the name of one kernel, instead of a level.
        precision: for float32; see :func:`matmul`.
        invariant: the bits of a token's result do not depend on the other tokens or on their experts; see
            :func:`matmul`.

    Returns:
        ``(T, H)``, of the dtype of ``x``; under autocast, of its dtype.

    Raises:
        TypeError: an operand is no tensor.
        NotImplementedError: an operand is sparse, quantized or a DTensor, or its device has no kernels.
        ValueError: shapes, dtypes or devices do not fit together; unknown ``kernel``, ``level`` or ``precision``.
        RuntimeError: the requested level or kernel cannot run here.

    Examples:
        >>> import torch, fastgemm
        >>> x, gate_up, down = torch.randn(5, 16), torch.randn(4, 2 * 24, 16), torch.randn(4, 16, 24)
        >>> weights, ids = torch.randn(5, 4).softmax(-1).topk(2)
        >>> fastgemm.moe(x, gate_up, down, ids, weights).shape
        torch.Size([5, 16])
    """
    tensors = x, gate_up, down, ids, weights
    if has_torch_function_variadic(*tensors):
        choice = {"level": level, "kernel": kernel, "precision": precision, "invariant": invariant or None}
        return overridden(moe, tensors, *tensors, **choice)
    if invariant:
        level, kernel = None, invariant_choice(level, kernel, precision, "fastgemm.moe")
    try:
        _check(x, gate_up, down, ids, weights)
        options = options_of(x, level, kernel, precision, None, None)
        return mixture(x, gate_up, down, ids, weights, options)
    except (AttributeError, RuntimeError, ValueError, TypeError) as error:
        _errors.refuse_sharded("moe", x=x, gate_up=gate_up, down=down, ids=ids, weights=weights)
        _errors.diagnose(error, "moe", x=x, gate_up=gate_up, down=down, ids=ids, weights=weights)
        raise


def mixture(
    x: Tensor, gate_up: Tensor, down: Tensor, ids: Tensor, weights: Tensor, options: dict[str, Any]
) -> Tensor:
    """The layer, of checked arguments."""
    routes = routes_of(ids, gate_up.shape[0])
    hidden = activated(x, gate_up.mT, routes.offs, None, SWIGLU, options, routes.rows, routes.places)
    y = activated(hidden, down.mT, routes.offs, None, None, options)
    return combined(y, weights, routes.places, routes.order)


@lru_cache(maxsize=1024)
def _fit(x: torch.Size, gate_up: torch.Size, down: torch.Size, ids: torch.Size, weights: torch.Size) -> bool:
    if (len(x), len(gate_up), len(down), len(ids)) != (2, 3, 3, 2):
        return False
    experts, hidden, inner = down
    is_pair = ids == weights and ids[0] == x[0]
    return is_pair and x[1] == hidden and gate_up == (experts, 2 * inner, hidden)


def _check(x: Tensor, gate_up: Tensor, down: Tensor, ids: Tensor, weights: Tensor) -> None:
    tensors = {"x": x, "gate_up": gate_up, "down": down, "ids": ids, "weights": weights}
    if not all(isinstance(t, Tensor) for t in tensors.values()):
        raise _errors.not_a_tensor(**tensors)
    plain = runs_passes(x, gate_up, down, ids, weights)  # other shapes may be symbols, which have no hash
    if not (plain and _fit(x.shape, gate_up.shape, down.shape, ids.shape, weights.shape)):
        _check_shapes(**tensors)
    if ids.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"fastgemm: ids must be int32 or int64, got {ids.dtype}")
    if not (x.dtype.is_floating_point and weights.dtype.is_floating_point):
        raise ValueError(
            f"fastgemm: x and weights must be of floating-point types, got {x.dtype} and {weights.dtype}"
        )


def _check_shapes(**tensors: Tensor) -> None:
    x, gate_up, down, ids = (tensors[name] for name in ("x", "gate_up", "down", "ids"))
    for name, dims in {"x": 2, "gate_up": 3, "down": 3, "ids": 2, "weights": 2}.items():
        if tensors[name].dim() != dims:
            raise ValueError(
                f"fastgemm: {name} must have {dims} dimensions, got shape {tuple(tensors[name].shape)}"
            )
    experts, hidden, inner = gate_up.shape[0], gate_up.shape[2], down.shape[2]
    expected = {
        "x": (x.shape[0], hidden),
        "gate_up": (experts, 2 * inner, hidden),
        "down": (experts, hidden, inner),
    }
    expected["ids"] = expected["weights"] = (x.shape[0], ids.shape[1])
    for name, shape in expected.items():
        if not same(tensors[name].shape, shape):
            raise ValueError(f"fastgemm: {name} has shape {tuple(tensors[name].shape)}, expected {shape}")
