"""Quantizes the layers of a model, one after the other."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .. import _errors
from .._nn.layers import Linear
from .._nn.surgery import Notes, check_module, why_left
from .._ops.linear import linear
from .._quantized.activations import Activations
from .._quantized.checks import LOGICAL
from .._quantized.formats import Granularity, row_chunks
from .._quantized.quantize import quantize_weight
from .._quantized.weight import QuantizedWeight


@dataclass(frozen=True)
class QuantizedLayer:
    """A layer that :func:`quantize` has given a quantized weight.

    Attributes:
        name: of the layer in the model.
        shape: of its weight, ``(N, K)``.
        format: of the weight.
        bytes_before: the bytes of the weight before.
        bytes_after: the bytes of the weight now: codes, scales and zero points.
        error: of the weight, ``|q - w| / |w|`` by Frobenius norms, where q is rounded to the dtype of w; NaN
            without data (meta device), or if a weight is not finite.
        shared: names of other layers that have the same weight.
        activations: the recipe by which inputs are rounded; None if they are not rounded.
        product_error: with ``activations``, the error of the layer's product with 16 rows of normal numbers,
            without bias: ``|y - x w^T| / |x w^T|``. NaN as ``error``; None if inputs are not rounded.
    """

    name: str
    shape: tuple[int, int]
    format: str
    bytes_before: int
    bytes_after: int
    error: float
    shared: tuple[str, ...] = ()
    activations: Activations | None = None
    product_error: float | None = None


class QuantizationReport(list[QuantizedLayer]):
    """What :func:`quantize` has done: a :class:`QuantizedLayer` for each weight. ``str`` gives a table."""

    @property
    def bytes_before(self) -> int:
        """The bytes of the weights before."""
        return sum(layer.bytes_before for layer in self)

    @property
    def bytes_after(self) -> int:
        """The bytes of the weights now."""
        return sum(layer.bytes_after for layer in self)

    @property
    def error(self) -> float:
        """The largest error of a layer; NaN if one is NaN, 0 without layers."""
        errors = [layer.error for layer in self]
        return math.nan if any(map(math.isnan, errors)) else max(errors, default=0.0)

    def __str__(self) -> str:
        rounds = any(layer.activations is not None for layer in self)
        lines = [("layer", "shape", "format", "MB before", "MB after", "error", *["of products"] * rounds)]
        for layer in self:
            names, (n, k) = ", ".join((layer.name or "(the model)", *layer.shared)), layer.shape
            sizes = f"{layer.bytes_before / 1e6:.2f}", f"{layer.bytes_after / 1e6:.2f}"
            format, errors = layer.format, [f"{layer.error:.4f}"]
            if layer.product_error is not None:
                format, errors = f"{format} by {layer.activations}", [*errors, f"{layer.product_error:.4f}"]
            lines.append((names, f"{n} x {k}", format, *sizes, *errors))
        totals = f"{self.bytes_before / 1e6:.2f}", f"{self.bytes_after / 1e6:.2f}"
        lines.append((f"{len(self)} weights", "", "", *totals, f"{self.error:.4f} at most", *[""] * rounds))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        left = 3  # columns of text; numbers are at the right
        return "\n".join(
            "  ".join(
                cell.ljust(width) if i < left else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )


def quantize(
    model: nn.Module,
    format: str = "int4",
    *,
    skip: Collection[str] = ("lm_head",),
    granularity: Granularity | None = None,
    group_size: int | None = None,
    zero_points: bool = False,
    activations: Activations | None = None,
) -> QuantizationReport:
    """Rounds the weights of a model's linear layers to 4 or 8 bits, in place.

    Each weight of a ``torch.nn.Linear`` or :class:`Linear` becomes a parameter that is a
    :class:`fastgemm.QuantizedWeight`, by :func:`fastgemm.quantize_weight`, and requires no gradient. Biases and
    all else remain. Layers are converted one after the other, on the devices of their weights: memory is needed
    for one more weight. A weight that several layers share is rounded once, and they share the result. A weight
    that another module shares, such as an embedding, is not changed.

    Layers are not changed either if their ``forward`` was replaced on the instance, if they compute their weight
    from other parameters (weight_norm, pruning), or if they are of other subclasses, parametrized, lazy, fully
    sharded, or of other dtypes than bfloat16, float16 and float32. The logger ``fastgemm.nn`` names them and the
    reasons.

    ``model.state_dict()`` holds the quantized weights, and ``torch.load(weights_only=True)`` reads them. Load it
    into a model that was quantized in the same way, or into ``model.requires_grad_(False)`` with ``assign=True``.

    Args:
        model: a tree; a linear layer itself is converted too.
        format: ``"int4"``, ``"int8"``, ``"fp8"``, ``"nf4"``, ``"mxfp4"`` or ``"nvfp4"``.
        skip: names of layers or of modules around them: full ones, or parts of them between dots
            (``"lm_head"``, ``"mlp"``, ``"layers.0"``).
        granularity: which weights share a scale, see :func:`fastgemm.quantize_weight`, as for ``group_size``.
        zero_points: int4 and int8 may have them.
        activations: for ``"fp8"``: on each call, layers also round their inputs to 8 bits by this recipe of
            :func:`fastgemm.quantize_fp8`, and multiply codes by codes, as :func:`fastgemm.scaled_mm` does.
            ``"row"``: a scale for each row of the input; ``"1x128"``: a scale for 128 numbers of a row (weights:
            128x128); ``"tensor"``: one scale. These layers have no gradient: call the model under
            ``torch.no_grad()``. None: inputs are not rounded.

    Returns:
        A :class:`QuantizationReport`: a list with an entry for each weight; ``print`` shows a table.

    Raises:
        TypeError: ``model`` is no module, or ``skip`` is a string.
        ValueError: unknown ``format``, ``granularity`` or ``activations``, or one that the format does not have.

    Examples:
        >>> import torch, fastgemm
        >>> model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
        >>> report = fastgemm.nn.quantize(model, "int8", skip=["2"])
        >>> [(layer.name, layer.shape, layer.format) for layer in report]
        [('0', (512, 256), 'int8')]
    """
    check_module("quantize", model)
    if isinstance(skip, str):
        raise TypeError(f"fastgemm.nn.quantize: skip must be names, as skip=({skip!r},)")
    options: dict[str, Any] = {
        "granularity": granularity,
        "group_size": group_size,
        "zero_points": zero_points,
        "activations": activations,
    }
    # The arguments are refused before anything is changed.
    try:
        quantize_weight(torch.empty(1, 1, device="meta"), format, **options)
    except (TypeError, ValueError) as error:
        _errors.attribute(error, "nn.quantize")
        raise
    notes, report = Notes("quantize"), QuantizationReport()
    layers = dict(_layers(model, skip, notes))
    for names in _weights(model, layers, notes):
        report.append(_quantize(names, [layers[name] for name in names], format, options))
    notes.say()
    return report


def _quantize(
    names: list[str], layers: list[nn.Linear], format: str, options: dict[str, Any]
) -> QuantizedLayer:
    """Gives layers that share a weight a quantized one."""
    weight = layers[0].weight.detach()
    q = quantize_weight(weight, format, **options)
    parameter = nn.Parameter(q, requires_grad=False)
    for layer in layers:
        layer.weight = parameter
    first, *shared = names
    n, k = weight.shape
    sizes, errors = (weight.nbytes, q.nbytes), (_error(weight, q), _product_error(weight, q))
    return QuantizedLayer(
        first, (n, k), format, *sizes, errors[0], tuple(shared), options["activations"], errors[1]
    )


def _error(weight: Tensor, q: QuantizedWeight) -> float:
    if weight.is_meta:
        return math.nan
    if weight.numel() == 0:
        return 0.0
    rounded = q.dequantize()
    sums = torch.zeros(2, dtype=torch.float64, device=weight.device)
    for begin, end in row_chunks(*weight.shape):
        exact = weight[begin:end].float()
        sums += torch.stack((exact.square().sum(), (rounded[begin:end].float() - exact).square().sum()))
    norm, difference = sums.sqrt().tolist()
    return difference / norm if norm else difference


def _product_error(weight: Tensor, q: QuantizedWeight) -> float | None:
    if q.activations is None:
        return None
    if weight.is_meta:
        return math.nan
    generator = torch.Generator("cpu").manual_seed(0)
    rows = torch.randn(16, weight.shape[1], generator=generator, device="cpu")
    x = rows.to(weight.device, weight.dtype)
    exact = x.float() @ weight.float().mT
    norm, difference = float(exact.norm()), float((linear(x, q, out_dtype=torch.float32) - exact).norm())
    return difference / norm if norm else difference


def _weights(model: nn.Module, layers: dict[str, nn.Linear], notes: Notes) -> list[list[str]]:
    """For each weight to quantize, the names of the layers that have it."""
    owners = dict[int, list[str]]()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(parameter), []).append(name)
    weights = []
    for names in owners.values():
        prefixes = {name: name.rpartition(".")[0] for name in names if name.endswith("weight")}
        known = [prefix for prefix in prefixes.values() if prefix in layers]
        if len(known) == len(names):
            weights.append(known)
            continue
        others = [name for name in names if prefixes.get(name) not in layers]
        for prefix in known:
            notes.add(prefix, f"left alone: its weight is {others[0]}, too")
    return weights


def _layers(model: nn.Module, skip: Collection[str], notes: Notes) -> Iterator[tuple[str, nn.Linear]]:
    """The linear layers to quantize, under all their names."""
    unused = set(skip) - {"lm_head"}
    for name, layer in model.named_modules(remove_duplicate=False):
        skipped = [part for part in skip if f".{part}." in f".{name}."]
        unused.difference_update(skipped)
        if skipped:
            continue
        if type(layer).__qualname__ == "Conv1D":
            notes.add(name, "left alone: it is a Conv1D, whose weight is (K, N)")
        if not isinstance(layer, nn.Linear):
            continue
        why = _why_left(layer)
        if why is None:
            yield name, layer
        else:
            notes.add(name, f"left alone: it {why}")
    for part in sorted(unused):
        notes.add(part, "no module has this name, which is in skip")


def _why_left(layer: nn.Linear) -> str | None:
    exact = type(layer) in (nn.Linear, Linear)
    why = why_left(layer, exact)
    if why is not None:
        return why
    weight = layer.weight
    if layer._parameters.get("weight") is not weight:
        return "computes its weight from other parameters (weight_norm, spectral_norm, pruning)"
    if isinstance(weight, QuantizedWeight):
        return "is quantized"
    if type(weight) not in (nn.Parameter, Tensor):
        return f"has a weight of the class {type(weight).__name__}"
    return None if weight.dtype in LOGICAL else f"has a weight of {weight.dtype}"
