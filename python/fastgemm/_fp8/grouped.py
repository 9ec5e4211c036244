"""The public product of groups of scaled 8-bit floating-point numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import has_torch_function_variadic

from .. import _errors
from .._ops.dispatch import choice_of, ops, overridden
from .._ops.grouped import GROUPED
from .._ops.sizes import is_one_number, same
from ..table import invariant_choice
from .product import WIDE, check_codes, refuse_gradient, scaled_mm
from .recipes import CODES, Recipe, as_arguments, recipe_named, scales_of

NAME = "scaled_grouped_mm"


def scaled_grouped_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    offs: Tensor | None = None,
    *,
    out_dtype: torch.dtype = torch.bfloat16,
    recipe_a: Recipe | object | None = None,
    recipe_b: Recipe | object | None = None,
    level: int | None = None,
    kernel: str | None = None,
    invariant: bool = False,
) -> Tensor:
    """:func:`grouped_mm` of 8-bit floating-point numbers, in which each scale multiplies the codes of its block:
    mixtures of experts whose weights and tokens are fp8.

    ``offs`` holds the ends of G groups, as for :func:`grouped_mm`; the host does not wait for them. Scales are
    those of :func:`scaled_mm` for each matrix, for example scales of rows and columns:

    =============== =============== ================ ================ =============== ====================
    ``a``           ``b``           ``scale_a``      ``scale_b``      result          groups divide
    =============== =============== ================ ================ =============== ====================
    ``(M, K)``      ``(G, K, N)``   ``(M, 1)``       ``(G, 1, N)``    ``(M, N)``      the rows of ``a``
    ``(G, M, K)``   ``(K, N)``      ``(G, M, 1)``    ``(1, N)``       ``(M, N)``      the columns of ``b``
    ``(M, K)``      ``(K, N)``      ``(G, M, 1)``    ``(G, 1, N)``    ``(G, M, N)``   K
    ``(G, M, K)``   ``(G, K, N)``   ``(G, M, 1)``    ``(G, 1, N)``    ``(G, M, N)``   nothing: a batch
    =============== =============== ================ ================ =============== ====================

    On Hopper, one kernel multiplies the codes of all groups of rows (or columns) if they are
    ``torch.float8_e4m3fn`` with such scales, or with one scale for all of an operand. For other types and recipes,
    and on other GPUs, the numbers are multiplied in float32. With groups of K the codes are multiplied in
    bfloat16, which is exact.

    Args:
        a: ``torch.float8_e4m3fn`` or ``torch.float8_e5m2``. Any strides.
        b: of either type.
        scale_a: float32 or e8m0. If the rows of ``a`` are grouped, its recipe is ``"row"``, ``"1x128"``,
            ``"1x32"`` or ``"tensor"``. If K is grouped, both operands have float32 scales of rows and columns.
        scale_b: the same if the columns of ``b`` are grouped.
        offs: int32 ``(G,)``; None for a batch. As for :func:`grouped_mm`, also for wrong ends.
        out_dtype: ``torch.bfloat16``, ``torch.float16`` or ``torch.float32``.
        recipe_a: names the recipe instead of the shape of the scales; see :func:`scaled_mm`.
        recipe_b: the same for ``scale_b``.
        level: 1 to 7, a rung of the ladder, or ``None`` for the fastest kernel known; see :func:`matmul`.
        kernel: the name of one kernel, instead of a level.
        invariant: the bits of a row do not depend on the other rows; see :func:`matmul`.

    Returns:
        The shape of the table, of ``out_dtype``. Rows (columns) beyond the last end are zero.

    Raises:
        TypeError: an operand is no tensor, or has no 8-bit codes.
        ValueError: shapes, dtypes, scales or devices do not fit together; on a CPU, ends that descend or exceed
            the dimension; unknown ``kernel``, ``level`` or recipe.
        RuntimeError: a gradient would be needed (there is none), or the requested level or kernel cannot run here.

    Examples:
        >>> import torch, fastgemm
        >>> tokens, experts = torch.randn(10, 64), torch.randn(4, 32, 64)
        >>> ends = torch.tensor([3, 3, 9, 10], dtype=torch.int32)  # the second expert has no token
        >>> (a, scale_a), (b, scale_b) = (fastgemm.quantize_fp8(x, "row") for x in (tokens, experts))
        >>> fastgemm.scaled_grouped_mm(a, b.mT, scale_a, scale_b.mT, ends).shape
        torch.Size([10, 32])
    """
    tensors = a, b, scale_a, scale_b, offs
    if has_torch_function_variadic(*tensors):
        given: dict[str, Any] = {"out_dtype": out_dtype, "recipe_a": recipe_a, "recipe_b": recipe_b}
        given |= {"level": level, "kernel": kernel, "invariant": invariant or None}
        return overridden(scaled_grouped_mm, tensors, *tensors, **given)
    check_codes(NAME, a=a, b=b, scale_a=scale_a, scale_b=scale_b)
    if offs is not None and not isinstance(offs, Tensor):
        raise TypeError(f"fastgemm.{NAME}: offs must be a torch.Tensor, got {type(offs).__name__}")
    if offs is not None and offs.dim() != 1:
        raise ValueError(f"fastgemm.{NAME}: offs has shape {tuple(offs.shape)}, expected 1 dimension")
    refuse_gradient(NAME, *tensors)
    if out_dtype not in WIDE:
        raise ValueError(f"fastgemm.{NAME}: out_dtype must be {', '.join(map(str, WIDE))}, got {out_dtype}")
    try:
        _check_groups(a, b, offs)
        if offs is None:
            batch: dict[str, Any] = {"recipe_a": recipe_a, "recipe_b": recipe_b, "out_dtype": out_dtype}
            batch |= {"level": level, "kernel": kernel, "invariant": invariant}
            return scaled_mm(a, b, scale_a, scale_b, **batch)
        if invariant:
            level, kernel = None, invariant_choice(level, kernel, None, f"fastgemm.{NAME}")
        options = choice_of(level, kernel)
        if a.dim() == b.dim():
            for name, recipe in (("recipe_a", recipe_a), ("recipe_b", recipe_b)):
                if recipe is not None and recipe_named(name, recipe) not in ("row", "tensor"):
                    raise ValueError(f"fastgemm: {name} of groups of K is 'row' or 'tensor', got {recipe!r}")
            return _groups_of_k(a, b, scale_a, scale_b, offs, options).to(out_dtype)
        options["out_dtype"] = out_dtype
        if a.dim() == 2:
            return _groups_of_rows(a, b, scale_a, scale_b, offs, (recipe_a, recipe_b), options)
        of_b, of_a = (x.mT if x.dim() > 1 else x for x in (scale_b, scale_a))
        turned = _groups_of_rows(b.mT, a.mT, of_b, of_a, offs, (recipe_b, recipe_a), options)
        return turned.mT.contiguous()
    except (AttributeError, RuntimeError, ValueError, TypeError) as error:
        named = zip(("a", "b", "scale_a", "scale_b", "offs"), tensors, strict=True)
        _errors.diagnose(error, NAME, accepted=CODES, **dict(named))
        raise


def _check_groups(a: Tensor, b: Tensor, offs: Tensor | None) -> None:
    for name, x in (("a", a), ("b", b)):
        if x.dim() not in (2, 3):
            raise ValueError(f"fastgemm: {name} must have 2 or 3 dimensions, got shape {tuple(x.shape)}")
    if (offs is None) != (a.dim() == 3 and b.dim() == 3):
        raise ValueError(
            "fastgemm: offs, the ends of the groups, must be given unless a and b have 3 dimensions each"
        )


def _groups_of_rows(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    offs: Tensor,
    recipes: tuple[object, object],
    options: dict[str, Any],
) -> Tensor:
    scale_a, blocks_a = scales_of("a", a, scale_a, recipes[0])
    scale_b, blocks_b = scales_of("b", b, scale_b, recipes[1])
    blocks = as_arguments(blocks_a, blocks_b)
    return ops.scaled_grouped_mm(a, b, scale_a, scale_b, offs, **blocks, **options)


def _groups_of_k(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, offs: Tensor, options: dict[str, Any]
) -> Tensor:
    """Codes are exact in bfloat16, and scales of rows and columns are those of the sums, in float32."""
    for name, scale, shape in (
        ("a", scale_a, (offs.shape[0], a.shape[0], 1)),
        ("b", scale_b, (offs.shape[0], 1, b.shape[1])),
    ):
        if scale.dtype != torch.float32 or not (is_one_number(scale) or same(scale.shape, shape)):
            raise ValueError(
                f"fastgemm: scale_{name} of groups of K is float32, one number or of shape {shape}; got "
                f"{scale.dtype} of shape {tuple(scale.shape)}"
            )
        if scale.device != a.device:
            raise ValueError(f"fastgemm: scale_{name} is on {scale.device}, but a is on {a.device}")
    scale_a, scale_b = (x.reshape(()) if is_one_number(x) else x for x in (scale_a, scale_b))
    wide = a.to(torch.bfloat16), b.to(torch.bfloat16), offs, None
    sums = GROUPED.call(wide, {**options, "out_dtype": torch.float32})
    return sums.mul_(scale_a).mul_(scale_b)
