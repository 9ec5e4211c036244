"""Layers whose products fastgemm computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .ops import gemm
from .table import check_product_choice

__all__ = ["Linear", "convert"]


class Linear(torch.nn.Linear):
    """``torch.nn.Linear`` with the product of :func:`fastgemm.gemm`, in the forward pass and in the backward one.

    Parameters, initialization and ``state_dict`` are those of ``torch.nn.Linear``, which it is a kind of.

    Args:
        in_features: K, the size of the last dimension of the input.
        out_features: N, that of the output.
        bias: whether a vector of N is added.
        device: of the parameters.
        dtype: of the parameters.
        level: see :func:`fastgemm.matmul`, as for ``kernel`` and ``precision``; may be changed later.

    Shapes: ``(..., K)`` to ``(..., N)``; dtypes and errors of :func:`fastgemm.gemm`, but where sizes, dtypes or
    devices do not go together torch's own error is raised.
    """

    level: int | None = None  # also of a module that was pickled as a torch.nn.Linear
    kernel: str | None = None
    precision: str | None = None

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
        precision: str | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        _choose(self, level, kernel, precision)

    def forward(self, input: Tensor) -> Tensor:
        return linear(
            input, self.weight, self.bias, level=self.level, kernel=self.kernel, precision=self.precision
        )

    def extra_repr(self) -> str:
        text = super().extra_repr()
        for name in ("level", "kernel", "precision"):
            value = getattr(self, name)
            text += "" if value is None else f", {name}={value!r}"
        return text


def _choose(module: Linear, level: int | None, kernel: str | None, precision: str | None) -> None:
    check_product_choice(level, kernel, precision)
    module.level, module.kernel, module.precision = level, kernel, precision


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, **choice: Any) -> Tensor:
    """``torch.nn.functional.linear`` by :func:`fastgemm.gemm`: ``(..., K) @ (N, K).T + (N,)``."""
    if not _go_together(input, weight):
        functional.linear(input, weight, bias)  # says what is wrong; where it does not, gemm will
    # One matrix product, also for gradients: that of the weight would else be a sum over a batch of products.
    rows = input
    if input.dim() != 2:
        rows = input.unsqueeze(0) if input.dim() == 1 else input.flatten(0, -2)
    out = gemm(rows, weight, bias, trans_b=True, **choice)
    return out if input.dim() == 2 else out.reshape(*input.shape[:-1], weight.shape[0])


def _go_together(input: Tensor, weight: Tensor) -> bool:
    return (
        isinstance(input, Tensor)
        and input.dim() > 0
        and input.shape[-1] == weight.shape[1]
        and input.device == weight.device
        and (input.dtype == weight.dtype or torch.is_autocast_enabled(input.device.type))
    )


def convert(
    module: torch.nn.Module,
    *,
    level: int | None = None,
    kernel: str | None = None,
    precision: str | None = None,
    only: Callable[[str, torch.nn.Module], bool] = lambda name, layer: True,
) -> torch.nn.Module:
    """Turns each ``torch.nn.Linear`` of a module tree into a :class:`Linear`, in place.

    The layers stay the same objects: parameters (shared ones, too), hooks, buffers and an optimizer's references
    hold. Subclasses of ``torch.nn.Linear``, which have a forward of their own (parametrized and quantization-aware
    ones), and the projections that ``torch.nn.MultiheadAttention`` uses without calling them are left alone. The
    fused path that ``torch.nn.TransformerEncoderLayer`` takes in inference calls no layers at all;
    ``torch.backends.mha.set_fastpath_enabled(False)`` turns it off.

    Args:
        module: a tree; a ``torch.nn.Linear`` itself is converted too.
        level: see :class:`Linear`, as for ``kernel`` and ``precision``. Layers converted before get these.
        only: tells by qualified name and layer which ones to convert.

    Returns:
        ``module``.
    """
    check_product_choice(level, kernel, precision)
    for name, layer in module.named_modules():
        if type(layer) in (torch.nn.Linear, Linear) and only(name, layer):
            layer.__class__ = Linear
            _choose(layer, level, kernel, precision)
    return module
