"""The layer that :func:`fastgemm.nn.convert` makes of a ``torch.nn.Linear``."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from .._typing import Activation, Precision
from ..table import check_product_choice
from .activated_linear import ACTIVATIONS, MODULES, activated
from .linear import linear
from .surgery import change_class

CHOICE = ("level", "kernel", "precision", "activation")
"""What a :class:`Linear` has beside the attributes of torch's."""


class _LeftUnquantized:
    """The ``qconfig`` that torch.ao.quantization assigns to a layer, and a warning that it has no effect."""

    def __get__(self, layer: Linear | None, owner: type) -> Any:
        if layer is None or "qconfig" not in layer.__dict__:
            raise AttributeError("qconfig")
        return layer.__dict__["qconfig"]

    def __set__(self, layer: Linear, value: Any) -> None:
        # Also None, which it assigns to layers of unknown types.
        warnings.warn(
            "torch.ao.quantization looks for the exact type torch.nn.Linear and does not quantize a "
            "fastgemm.nn.Linear; call fastgemm.nn.revert(model) first",
            stacklevel=3,
        )
        layer.__dict__["qconfig"] = value

    def __delete__(self, layer: Linear) -> None:
        del layer.__dict__["qconfig"]


class Linear(torch.nn.Linear):
    """``torch.nn.Linear`` with the product of :func:`fastgemm.gemm`, in the forward pass and in the backward one.

    It is a subclass of ``torch.nn.Linear`` and has the same parameters, initialization and ``state_dict``.

    fastgemm does not take nested, sparse, quantized, mkldnn and named tensors; int8 and other types that
    :func:`linear` does not list; operands of several dtypes, unless autocast casts them to one; other devices than
    CPU and CUDA; and tensor subclasses that override ``__torch_function__`` or ``__torch_dispatch__``, except
    ``DTensor``. ``torch.nn.functional.linear`` computes these products, or raises its own error.

    Args:
        in_features: K, the size of the last dimension of the input.
        out_features: N, that of the output.
        bias: whether a vector of N is added.
        device: of the parameters.
        dtype: of the parameters.
        level: as for :func:`fastgemm.matmul`; so is ``kernel``. These two and ``precision`` may be changed later.
        precision: of float32 and complex64 products, see :func:`fastgemm.matmul`; others are computed without it.
        activation: ``"relu"``, ``"gelu"``, ``"gelu_tanh"`` or ``"silu"`` of the output, by
            :func:`fastgemm.linear`, fused into the product's kernel if possible.

    Shapes: ``(..., K)`` to ``(..., N)``. Errors are those of ``torch.nn.Linear``, and those of
    :func:`fastgemm.gemm` if the requested level or kernel cannot run."""

    # For torch.jit.script.
    __constants__: tuple[str, ...] = (*torch.nn.Linear.__constants__, *CHOICE)  # type: ignore[assignment]
    level: int | None = None  # also for a module that was pickled as a torch.nn.Linear
    kernel: str | None = None
    precision: Precision | None = None
    activation: Activation | None = None
    qconfig: _LeftUnquantized = _LeftUnquantized()

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
        choose(self, level, kernel, precision)
        if activation is not None and not (isinstance(activation, str) and activation in ACTIVATIONS):
            accepted = ", ".join(map(repr, ACTIVATIONS))
            raise ValueError(
                f"fastgemm.nn.Linear: unknown activation {activation!r}; accepted: {accepted} or None"
            )
        self.activation = activation

    def forward(self, input: Tensor) -> Tensor:
        if self.activation is not None:
            return activated(
                input, self.weight, self.bias, self.activation, self.level, self.kernel, self.precision
            )
        return linear(
            input, self.weight, self.bias, level=self.level, kernel=self.kernel, precision=self.precision
        )

    def extra_repr(self) -> str:
        text = super().extra_repr()
        for name in CHOICE:
            value = getattr(self, name)
            text += "" if value is None else f", {name}={value!r}"
        return text


def choose(module: Any, level: int | None, kernel: str | None, precision: Precision | None) -> None:
    """Sets the choice of a :class:`Linear`, or of a ``Conv1D`` of transformers."""
    check_product_choice(level, kernel, precision, "fastgemm.nn.Linear")
    module.level, module.kernel, module.precision = level, kernel, precision


def take_apart(layer: Linear) -> str:
    """Turns a layer with an activation into a ``torch.nn.Sequential`` of both; returns a note about it.

    It stays the same object, so references to it and hooks on its results remain valid.
    """
    if (
        layer._forward_pre_hooks
        or layer._buffers
        or layer._modules
        or layer._parameters.keys() - {"weight", "bias"}
        or layer._state_dict_hooks
        or layer._load_state_dict_pre_hooks
    ):
        return "left alone: it has an activation, and hooks, buffers, parameters or submodules of its own"
    product = torch.nn.Linear(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
    product._parameters, layer._parameters = layer._parameters, {}
    assert layer.activation is not None  # the caller has checked this
    activation = MODULES[layer.activation]()
    for name in ("in_features", "out_features", *CHOICE):
        layer.__dict__.pop(name, None)
    change_class(layer, torch.nn.Sequential)
    for name, part in ("0", product), ("1", activation):
        layer.add_module(name, part.train(layer.training))
    return (
        "made a torch.nn.Sequential of a layer and its activation: its parameters are 0.weight and 0.bias now"
    )
