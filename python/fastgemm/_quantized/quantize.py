"""Codes and scales of a weight in floating point."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .. import _errors
from .activations import Activations, check_recipe, check_weight
from .checks import LOGICAL, check_format, check_int
from .formats import (
    CODES,
    FORMATS,
    SCALES,
    Format,
    Granularity,
    Packing,
    Parts,
    ZeroKind,
    blocks,
    of_rows,
    row_chunks,
)
from .rounding import INTEGERS, LARGEST_E4M3, grouped, rounded
from .weight import QuantizedWeight

GRANULARITIES = ("tensor", "channel", "group", "128x128")


class _Plan(NamedTuple):
    format: str
    made: Format
    packing: Packing

    @property
    def symmetric(self) -> bool:
        return self.packing.zero == "none"


def quantize_weight(
    w: Tensor,
    format: str,
    *,
    granularity: Granularity | None = None,
    group_size: int | None = None,
    zero_points: bool = False,
    activations: Activations | None = None,
) -> QuantizedWeight:
    """Rounds a weight to 4 or 8 bits.

    Every scale is ``max|w| / c`` of its weights, where the largest code c is 7 for int4, 127 for int8, 448 for
    fp8 and 1 for nf4. Then each weight is divided by its scale, as it was stored, and rounded to the nearest code.
    Ties go to even, except in nf4. mxfp4 has scales ``2 ** (floor(log2(max|w|)) - 2)``, and larger numbers become
    6, as the OCP standard says. nvfp4 has one global scale, ``max|w| / (6 * 448)``, and scales
    ``max|w| / 6 / global``.

    If all weights of a block are 0, its scale is 0 (or the smallest scale), and they are 0 again. A NaN or an
    infinity makes the scale of its block NaN, in nvfp4 every scale. So no result hides it, and other blocks
    keep their numbers.

    Args:
        w: ``(N, K)``; bfloat16, float16 or float32. Any strides.
        format: ``"int4"``, ``"int8"``, ``"fp8"`` (e4m3), ``"nf4"``, ``"mxfp4"`` or ``"nvfp4"``.
        granularity: which weights share a scale: ``"tensor"``, all; ``"channel"``, a row; ``"group"``,
            ``group_size`` columns of a row; ``"128x128"``, such blocks. None is ``"channel"`` for int8 and fp8,
            else ``"group"``. mxfp4 and nvfp4 have groups only.
        group_size: of ``"group"``: None means 128, but 64 for nf4. mxfp4 has 32 only, and nvfp4 has 16 only.
            Kernels of a GPU take multiples of 16.
        zero_points: int4 and int8 may have them: the codes are distributed over the range of the weights of a
            block, which is extended to include 0.
        activations: the recipe of :func:`fastgemm.quantize_fp8` by which products round their inputs to 8 bits,
            for fp8: ``"tensor"``, ``"row"`` or ``"1x128"``. With ``"1x128"``, ``granularity=None`` means
            ``"128x128"``. None: inputs are not rounded. Weights with groups have no such products.

    Returns:
        A :class:`QuantizedWeight` with the dtype and device of ``w``. Scales of groups are bfloat16 (mxfp4:
        e8m0,
        nvfp4: e4m3), others are float32.

    Raises:
        TypeError: ``w`` is no tensor, or has another dtype.
        ValueError: unknown ``format``, ``granularity`` or ``activations``, or one that the format does not have;
            ``w`` has not 2 dimensions; a ``group_size`` that is not positive, without groups, or for which the
            device has no kernels.

    Examples:
        >>> import torch, fastgemm
        >>> w, x = torch.randn(256, 512, dtype=torch.bfloat16), torch.randn(4, 512, dtype=torch.bfloat16)
        >>> q = fastgemm.quantize_weight(w, "int4")
        >>> q.shape, q.nbytes / w.nbytes < 0.26
        (torch.Size([256, 512]), True)
    """
    try:
        check_recipe(activations, format)
        if activations == "1x128" and granularity is None and group_size is None:
            granularity = "128x128"
        plan = _plan(w, format, granularity, group_size, zero_points)
        check_weight(activations, format, plan.packing, None)
        return _made(w, plan, activations)
    except (RuntimeError, TypeError, ValueError) as error:
        _errors.diagnose(error, "quantize_weight", w=w)
        raise


@torch.no_grad()
def _made(w: Tensor, plan: _Plan, activations: Activations | None) -> QuantizedWeight:
    w = w.detach()
    by = _global_scale(w) if plan.format == "nvfp4" else None
    codes, scales, zeros = _quantized(w, plan, by)
    assert scales is not None
    return QuantizedWeight(
        codes,
        scales,
        zeros,
        format=plan.format,
        block_size=(plan.packing.group_n, plan.packing.group_k),
        columns=w.shape[1],
        global_scale=by,
        dtype=w.dtype,
        activations=activations,
    )


def _plan(
    w: Tensor, format: str, granularity: str | None, group_size: int | None, zero_points: bool
) -> _Plan:
    """The plan that the arguments of :func:`quantize_weight` ask for."""
    if not isinstance(w, Tensor):
        raise _errors.not_a_tensor(w=w)
    if w.dtype not in LOGICAL:
        raise TypeError(f"fastgemm: w must be bfloat16, float16 or float32, got {w.dtype}")
    if isinstance(w, QuantizedWeight) or w.dim() != 2:
        raise ValueError(f"fastgemm: w must be an ordinary (N, K), got shape {tuple(w.shape)}")
    check_format(format)
    made = FORMATS[format]
    if group_size is not None:
        check_int("group_size", group_size)
    if granularity is None:
        granularity = made.granularity if group_size is None else "group"
    if granularity not in GRANULARITIES:
        accepted = ", ".join(GRANULARITIES)
        raise ValueError(f"fastgemm: unknown granularity {granularity!r}; accepted: {accepted}")
    if made.code == "e2m1" and (granularity != "group" or group_size not in (None, made.group_size)):
        raise ValueError(f"fastgemm: {format} has groups of {made.group_size}, and no other scales")
    if group_size is not None and (granularity != "group" or group_size < 1):
        raise ValueError(f"fastgemm: group_size={group_size} is not for granularity {granularity!r}")
    if zero_points and not made.zero_points:
        raise ValueError(f"fastgemm: {format} has no zero points; int4 and int8 may have them")
    n, k = w.shape
    rows, columns = max(n, 1), max(k, 1)
    block = {"tensor": (rows, columns), "channel": (1, columns), "128x128": (128, 128)}.get(
        granularity, (1, group_size or made.group_size)
    )
    zero: ZeroKind = "subtracted" if zero_points else "none"
    scale = made.group_scale if granularity == "group" else "f32"
    return _Plan(format, made, Packing(n, k, made.code, scale, zero, *block))


def _quantized(w: Tensor, plan: _Plan, by: Tensor | None) -> Parts:
    packing = plan.packing
    zero, device = packing.zero_dtype, w.device
    codes = torch.empty(packing.code_shape, dtype=CODES[packing.code].dtype, device=device)
    scales = torch.empty(packing.groups, dtype=SCALES[packing.scale], device=device)
    zeros = None if zero is None else torch.empty(packing.groups, dtype=zero, device=device)
    if packing.group_n == 1:  # one pass
        for begin, end in row_chunks(packing.n, packing.k):
            x = w[begin:end]
            scale, zero_point = _scales(*_extremes(x, packing.group_k, plan), plan, by)
            scales[begin:end] = scale
            if zeros is not None and zero_point is not None:
                zeros[begin:end] = zero_point
            codes[begin:end] = rounded(x, scales[begin:end], zero_point, packing, by)
        return Parts(codes, scales, zeros)
    extremes = _extremes_of_blocks(w, plan)
    scale, zero_point = _scales(*extremes, plan, by)
    scales.copy_(scale)
    if zeros is not None and zero_point is not None:
        zeros.copy_(zero_point)
    for begin, end in row_chunks(packing.n, packing.k):
        of = (begin, end, packing.group_n)
        zero_point = None if zeros is None else of_rows(zeros, *of)
        codes[begin:end] = rounded(w[begin:end], of_rows(scales, *of), zero_point, packing, by)
    return Parts(codes, scales, zeros)


def _extremes(x: Tensor, size: int, plan: _Plan) -> tuple[Tensor, Tensor]:
    """The smallest and the largest weight of each group. For symmetric codes, the second number is the largest
    modulus."""
    groups = grouped(x, size)
    if not groups:
        empty = torch.zeros((x.shape[0], blocks(x.shape[1], size)), dtype=torch.float32, device=x.device)
        return empty, empty
    found = [torch.aminmax(group, dim=2) for group in groups]
    low, high = (torch.cat([pair[i] for pair in found], 1).float() for i in (0, 1))
    return (low, torch.maximum(-low, high)) if plan.symmetric else (low.clamp(max=0), high.clamp(min=0))


def _extremes_of_blocks(w: Tensor, plan: _Plan) -> tuple[Tensor, Tensor]:
    """The same for blocks of more than one row."""
    packing = plan.packing
    low, high = (torch.zeros(packing.groups, dtype=torch.float32, device=w.device) for _ in range(2))
    size = packing.group_n
    for begin, end in row_chunks(packing.n, packing.k):
        small, large = _extremes(w[begin:end], packing.group_k, plan)
        rows = torch.arange(begin, end, device=w.device).div_(size, rounding_mode="floor")
        index = rows[:, None].expand_as(small).contiguous()  # inductor misreads an expanded one
        low.scatter_reduce_(0, index, small, "amin")
        high.scatter_reduce_(0, index, large, "amax")
    return low, high


def _global_scale(w: Tensor) -> Tensor:
    """max|w| / (6 * 448); 1 for zeros."""
    largest = torch.zeros((), dtype=torch.float32, device=w.device)
    for begin, end in row_chunks(*w.shape):
        if w.shape[1]:
            largest = torch.maximum(largest, torch.stack(torch.aminmax(w[begin:end])).float().abs().amax())
    by = largest / (6 * LARGEST_E4M3)
    return torch.where(by == 0, 1.0, by)


def _scales(low: Tensor, high: Tensor, plan: _Plan, by: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The scales, in their dtype, and the zero points of blocks with these extremes."""
    packing = plan.packing
    dtype = SCALES[packing.scale]
    high = torch.where(high.isfinite() & low.isfinite(), high, torch.nan)
    if packing.scale == "e8m0":
        exponent = torch.frexp(high).exponent - 1 - 2  # 6 is 1.5 * 2**2
        bits = torch.where(high > 0, (exponent + 127).clamp(0, 254), 0)
        return torch.where(high.isnan(), 255, bits).to(torch.uint8).view(dtype), None
    if packing.scale == "e4m3":
        assert by is not None
        return (high / 6 / by).to(dtype), None
    if plan.symmetric:
        return (high / plan.made.largest).to(dtype), None
    lowest, highest = INTEGERS[packing.code]
    extent, steps = high - low, highest - lowest
    scale = torch.where(extent.isinf(), high / steps - low / steps, extent / steps).to(dtype)
    divisor = scale.float()
    zero = torch.round(lowest - low / torch.where(divisor > 0, divisor, torch.inf))
    return scale, zero.nan_to_num_(0).clamp_(lowest, highest).to(torch.int8)
