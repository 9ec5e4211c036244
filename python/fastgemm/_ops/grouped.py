"""Products of groups of uneven size: the public function, the path of its calls, and its gradient.

As in _ops/gemm.py the three are one module. The gradients of a grouped product are grouped products with the same
offs. The gradient of an operand with groups has the same groups. The gradient of an operand with one matrix for
each group is a product whose k is grouped."""

from __future__ import annotations

from functools import cache, reduce
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.overrides import has_torch_function_variadic

from .. import _errors
from .._typing import GatedActivation, Precision
from ..table import INVARIANT, invariant_choice, kernels
from . import autocast
from .activations import ACTIVATIONS, check_activation
from .dispatch import CHOICE, PLAIN, Op, needs_function, ops, options_of, overridden, public
from .gated import SWIGLU, swiglu
from .gather import gathered, runs_passes
from .gemm import gemm
from .tangents import tangent
from .vmap import batch_first, rank_of, runs

ON_HOPPER = "grouped_wgmma"
"""The row that gathers rows, and joins a gate and up."""
MOST_GROUPS = 512
MOST_GATHERED = 256
"""Rows of a group in the mean up to which the kernel gathers them."""


def grouped_mm(
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    activation: GatedActivation | None = None,
    rows: Tensor | None = None,
    level: int | None = None,
    kernel: str | None = None,
    precision: Precision | None = None,
    invariant: bool = False,
) -> Tensor:
    """Products of groups of uneven size, as in a mixture of experts: :func:`torch.nn.functional.grouped_mm`
    without its limits on types, alignments and strides.

    ``offs`` holds the ends of G groups: group ``i`` covers ``offs[i - 1]`` (0 for the first) up to ``offs[i]`` of
    the dimension that is grouped. The dimensions of the operands say which one this is:

    =============== =============== =============== =====================================
    ``a``           ``b``           result          groups divide
    =============== =============== =============== =====================================
    ``(M, K)``      ``(G, K, N)``   ``(M, N)``      the rows of ``a`` and of the result
    ``(G, M, K)``   ``(K, N)``      ``(M, N)``      the columns of ``b`` and of the result
    ``(M, K)``      ``(K, N)``      ``(G, M, N)``   K, as in the gradient of the weights
    ``(G, M, K)``   ``(G, K, N)``   ``(G, M, N)``   nothing: a batch, without ``offs``
    =============== =============== =============== =====================================

    Args:
        a: dtypes, strides and storage offsets as for :func:`matmul`.
        b: of the same dtype and device; int8, uint8 and bool mix.
        offs: int32 ``(G,)`` on the same device, ascending; groups may be empty. Rows or columns of the result
            beyond the last end are zero, and those of the operands are not read. On a CPU other ends raise. On a
            GPU the ends are not checked: with ends that descend or exceed the dimension, the results have no
            meaning, but no access is outside of the operands.
        bias: ``(N,)``, added to each group, or ``(G, N)``, a row for each group (not where columns are grouped);
            of the dtype of ``a`` or of the result. Rows beyond the last end get none.
        out_dtype: ``torch.float32`` for float16 and bfloat16 operands, ``torch.int32`` for int16; otherwise the
            usual one.
        activation: applied after the bias: ``"relu"``, ``"gelu"``, ``"gelu_tanh"``, ``"silu"`` or None, as for
            :func:`linear`; or ``"swiglu"`` for an even N: ``silu(gate) * up``, where the first half of a row is
            the gate. The result then has N / 2 columns. On Hopper, in 16 bits and without a gradient, the kernel
            computes it from unrounded sums; elsewhere it is a pass after the product.
        rows: int32 or int64 ``(R,)``, each 0 to the rows of ``a`` minus 1; the product is that of ``a[rows]``.
            ``a`` has 2 dimensions and ``b`` 3; ``offs`` counts R rows. On a CPU other indices raise. On a GPU they
            are not checked before the kernels run: one on Hopper that gathers rows takes them for rows of zeros,
            and torch's copy of the rows, in other cases, fails in its kernel.
        level: 1 to 7, a rung of the ladder, or ``None`` for the fastest kernel known; see :func:`matmul`.
        kernel: the name of one kernel, instead of a level.
        precision: for float32 and float64; see :func:`matmul`.
        invariant: the bits of a row do not depend on the other rows of its group, nor on the other groups; see
            :func:`matmul`.

    Returns:
        The shape of the table, of the dtype that :func:`matmul` returns.

    Raises:
        TypeError: an operand is no tensor, or its dtype is not supported.
        NotImplementedError: an operand is sparse or quantized, or its device has no kernels.
        IndexError: on a CPU, an index of ``rows`` is outside of ``a``.
        ValueError: shapes, dtypes or devices do not fit together; ``offs`` of another dtype, missing or given for
            a batch; on a CPU, ends that descend or exceed the dimension; an activation of integers or complex
            numbers; unknown ``activation``, ``kernel``, ``level`` or ``precision``.
        RuntimeError: the requested level or kernel cannot run here.

    Examples:
        >>> import torch, fastgemm
        >>> tokens, experts = torch.randn(10, 16), torch.randn(4, 16, 8)
        >>> ends = torch.tensor([3, 3, 9, 10], dtype=torch.int32)  # the second expert has no token
        >>> fastgemm.grouped_mm(tokens, experts, ends).shape
        torch.Size([10, 8])
        >>> fastgemm.grouped_mm(tokens.T, torch.randn(10, 8), ends).shape  # K in groups
        torch.Size([4, 16, 8])
    """
    tensors = a, b, offs, bias, rows
    if has_torch_function_variadic(*tensors):
        given: dict[str, Any] = {"bias": bias, "activation": activation, "rows": rows}
        given["invariant"] = invariant or None
        given.update(zip(CHOICE, (level, kernel, precision, out_dtype), strict=True))
        return overridden(grouped_mm, tensors, a, b, offs, **given)
    if invariant:
        level, kernel = None, invariant_choice(level, kernel, precision, "fastgemm.grouped_mm")
    try:
        if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
            raise _errors.not_a_tensor(a=a, b=b)
        if activation != SWIGLU:
            check_activation(activation)
        if rows is not None:
            _check_rows(a, b, rows)
        options = options_of(a, level, kernel, precision, None, out_dtype)
        return activated(a, b, offs, bias, activation, options, rows)
    except IndexError as error:
        if rows is None:
            raise
        raise IndexError(
            f"fastgemm.grouped_mm: rows has an index outside of 0 to {a.shape[0] - 1}, the rows of a"
        ) from error
    except (AttributeError, RuntimeError, ValueError, TypeError) as error:
        _errors.diagnose(error, "grouped_mm", a=a, b=b, offs=offs, bias=bias)
        raise


def activated(
    a: Tensor,
    b: Tensor,
    offs: Tensor | None,
    bias: Tensor | None,
    activation: str | None,
    options: dict[str, Any],
    rows: Tensor | None = None,
    places: Tensor | None = None,
) -> Tensor:
    """The product and its activation, of checked arguments. ``places``: as for :func:`gathered`."""
    kernel = _runs_on_hopper(a, b, offs, bias, options)
    if rows is not None:
        if kernel and _gathers(a, b, rows, activation):
            if activation is not None:
                options = {**options, "activation": activation}
            return ops._gathered_mm.default(a, b, offs, bias, rows.int(), **options)
        a = gathered(a, rows, places)
    if activation == SWIGLU:
        if kernel and b.shape[-1] % 2 == 0:
            return GROUPED.call((a, b, offs, bias), {**options, "activation": SWIGLU})
        return swiglu(GROUPED.call((a, b, offs, bias), options))
    if activation is not None:
        options = {**options, "activation": activation}
    return GROUPED.call((a, b, offs, bias), options)


@cache
def _has_kernel() -> bool:
    return any(row.available for row in kernels("gemm", "cuda") if row.name == ON_HOPPER)


@cache
def _is_hopper(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) == (9, 0)


def _runs_on_hopper(
    a: Tensor, b: Tensor, offs: Tensor | None, bias: Tensor | None, options: dict[str, Any]
) -> bool:
    """Whether the row :data:`ON_HOPPER` computes the call: it gathers rows, and joins gate and up before it stores
    them. It does neither if there is a gradient, which needs the gathered rows, gate and up."""
    return (
        a.is_cuda
        and not is_compiling()
        and _is_hopper(a.device)
        and a.dtype in (torch.bfloat16, torch.float16)
        and (a.dim(), b.dim(), b.dtype) == (2, 3, a.dtype)
        and offs is not None
        and 0 < offs.numel() <= MOST_GROUPS
        and a.shape[1] > 0
        and options.get("level") in (None, 6)
        and options.get("impl") in (None, ON_HOPPER, *INVARIANT)
        and not needs_function(a, b, bias)
        and _has_kernel()
    )


def _gathers(a: Tensor, b: Tensor, rows: Tensor, activation: str | None) -> bool:
    """Whether the kernel gathers rows of ``a`` for this call: rows of ``a`` and of the result begin at multiples
    of 16 bytes, as is usual. A copy before the product takes less time for groups of many rows, which the tensor
    memory accelerator loads faster than threads; not with swiglu, whose tiles have half as many rows."""
    columns = b.shape[-1] // 2 if activation == SWIGLU else b.shape[-1]
    return (
        type(a) in PLAIN
        and not torch.is_autocast_enabled("cuda")
        and columns % 8 == 0
        and (activation == SWIGLU or rows.shape[0] <= MOST_GATHERED * b.shape[0])
        and a.shape[0] > 0
        and a.stride(1) == 1
        and a.stride(0) % 8 == 0
        and a.data_ptr() % 16 == 0
    )


def _check_rows(a: Tensor, b: Tensor, rows: Tensor) -> None:
    if not isinstance(rows, Tensor):
        raise TypeError(f"fastgemm: rows must be a torch.Tensor, got {type(rows).__name__}")
    if a.dim() != 2 or b.dim() != 3:
        raise ValueError(
            f"fastgemm: rows are those of a matrix a with groups of rows, got a with {a.dim()} and b with "
            f"{b.dim()} dimensions"
        )
    if rows.dim() != 1 or rows.dtype not in (torch.int32, torch.int64):
        raise ValueError(
            f"fastgemm: rows must be int32 or int64 with 1 dimension, got {rows.dtype} of shape "
            f"{tuple(rows.shape)}"
        )
    if rows.device != a.device:
        raise ValueError(f"fastgemm: rows is on {rows.device}, but a is on {a.device}")
    if a.is_cpu and runs_passes(a, rows) and not a.numel() and ((rows < 0) | (rows >= a.shape[0])).any():
        raise IndexError  # torch raises it only where there are numbers to copy


class GroupedFunction(torch.autograd.Function):
    """grouped_mm for gradients, torch.func transforms and forward-mode AD, without an activation."""

    forward = runs(ops._grouped_mm.default)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        a, b, offs, bias, options = inputs
        needs_a, needs_b = ctx.needs_input_grad[:2]
        # As in torch, only tensors that a gradient needs are saved: not the input of a frozen layer.
        ctx.save_for_backward(a if needs_b else None, b if needs_a else None, offs)
        ctx.save_for_forward(a, b, offs)
        ctx.dims, ctx.dtype = (a.dim(), b.dim()), a.dtype
        ctx.bias = None if bias is None else (bias.dim(), bias.dtype)
        ctx.out_shape, ctx.options = output.shape, options

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, b, offs = ctx.saved_tensors
        how = {name: ctx.options[name] for name in ("level", "impl", "precision") if name in ctx.options}
        if grad.dtype != ctx.dtype:  # of out_dtype: the operands are widened, so that nothing overflows
            a, b = (None if x is None else x.to(grad.dtype) for x in (a, b))
            if how.get("impl") not in INVARIANT:  # a kernel of the narrow type need not take the wide one
                how.pop("impl", None)

        def product(x: Tensor, y: Tensor) -> Tensor:
            return GROUPED.call((x, y, offs, None), how).to(ctx.dtype)

        needs_a, needs_b, _, needs_bias, _ = ctx.needs_input_grad
        # torch's convention for complex numbers; of real ones conj() is the tensor itself.
        grad_a = product(grad, b.mT.conj()) if needs_a else None
        grad_b = product(a.mT.conj(), grad) if needs_b else None
        grad_bias = None
        if needs_bias:
            dim, dtype = ctx.bias
            grad_bias = _gradient_of_bias(grad, offs, ctx.dims, dim == 2).to(dtype)
        return grad_a, grad_b, None, grad_bias, None

    @tangent
    def jvp(ctx: Any, saved: Any, *tangents: Tensor | None) -> Tensor:
        a_t, b_t, _, bias_t, _ = tangents
        a, b, offs = saved
        terms = []
        if a_t is not None:
            terms.append(GROUPED.call((a_t, b, offs, None), ctx.options))
        if b_t is not None:
            terms.append(GROUPED.call((a, b_t, offs, None), ctx.options))
        if bias_t is not None:
            terms.append(_spread_bias(bias_t, a, b, offs, ctx.out_shape, ctx.options))
        return reduce(torch.add, terms)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
        a, b, offs, bias, options = arguments
        size = info.batch_size
        if offs is None:  # a batch of batches
            out = gemm(batch_first(a, in_dims[0], 3), batch_first(b, in_dims[1], 3), **public(options))
            if bias is not None:
                of_groups = rank_of(bias, in_dims[3]) == 2
                row = batch_first(bias, in_dims[3], 2)
                out = out + (row.unsqueeze(-2) if of_groups or in_dims[3] is not None else row)
            return out.expand(size, *out.shape[-3:]), 0

        # Each member may have other groups, so each is a product of its own.
        def member(x: Tensor | None, dim: int | None, i: int) -> Tensor | None:
            if x is None or dim is None:
                return x
            return x.select(dim, i) if size else x.new_zeros((*x.shape[:dim], *x.shape[dim + 1 :]))

        # Of no member, the shape is that of a product of zeros.
        members: list[Any] = [
            tuple(map(member, arguments[:4], in_dims[:4], (i,) * 4)) for i in range(max(size, 1))
        ]
        results = [GROUPED.call(each, options) for each in members]
        return torch.stack(results)[:size], 0


def _gradient_of_bias(grad: Tensor, offs: Tensor | None, dims: tuple[int, int], of_groups: bool) -> Tensor:
    """The sums of the gradient over rows, without those beyond the last end: a product with ones."""
    if dims[0] == dims[1]:
        return grad.sum(-2) if of_groups else grad.sum((0, 1))
    assert offs is not None  # dimensions differ only if there are groups
    if dims == (3, 2):  # groups of columns
        ones = grad.new_ones(offs.shape[0], 1, grad.shape[0])
        return GROUPED.call((ones, grad, offs, None), {}).squeeze(0)
    ends = offs if of_groups else offs[-1:]  # if all groups share the bias, they count as one group
    if not of_groups and offs.shape[0] == 0:
        return grad.new_zeros(grad.shape[1])
    sums = GROUPED.call((grad.new_ones(1, grad.shape[0]), grad, ends, None), {}).squeeze(1)
    return sums if of_groups else sums.squeeze(0)


def _spread_bias(
    bias: Tensor, a: Tensor, b: Tensor, offs: Tensor | None, shape: torch.Size, options: dict[str, Any]
) -> Tensor:
    """The bias where the product adds it: a product of an empty K."""
    if a.dim() == b.dim():
        return (bias if bias.dim() == 1 else bias.unsqueeze(-2)).expand(shape)
    return GROUPED.call((a[..., :0], b[..., :0, :], offs, bias), options)


def operands(
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    options: dict[str, Any],
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """The operands in the types that autocast gives them."""
    a, b, _ = autocast.operands(a, b, options=options)
    return a, b, offs, autocast.of_bias(bias, a, options)


def differentiable(
    a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, **options: Any
) -> Tensor:
    """The op with its gradient, also where torch.compile, torch.export or a transform of torch.func sees it.

    A kernel with an epilogue cannot store the input of an activation. If the gradient needs it, the product is
    stored, and torch's function follows, as in torch's layers.
    """
    a, b, offs, bias = operands(a, b, offs, bias, options=options)  # here, so that autograd sees the casts
    activation = options.pop("activation", None)
    if activation is None:
        return GroupedFunction.apply(a, b, offs, bias, options)
    is_right = activation in ACTIVATIONS and a.is_floating_point()
    if not is_right or not needs_function(a, b, bias):  # the op also says what is wrong
        return ops._grouped_mm.default(a, b, offs, bias, activation=activation, **options)
    return ACTIVATIONS[activation](GroupedFunction.apply(a, b, offs, bias, options))


GROUPED = Op("grouped_mm", ("_grouped_mm",), ops._grouped_mm.default._op, differentiable, operands)
