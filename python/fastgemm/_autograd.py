"""Gradients. Each op's formula is written once, in terms of the public functions, so that it differentiates
again; it serves both the autograd.Function of eager mode and the formula that torch.compile sees.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._library import library

_SCHEMA = {"impl": "kernel"}  # names that differ between the ops and the public functions


def _public(options: dict[str, Any]) -> dict[str, Any]:
    """The op's keyword arguments under the names that fastgemm.gemm takes."""
    return {_SCHEMA.get(name, name): value for name, value in options.items()}


def _gemm_gradients(
    grad: Tensor,
    a: Tensor | None,
    b: Tensor | None,
    shapes: tuple[torch.Size, torch.Size, torch.Size | None],
    narrow: torch.dtype,
    options: dict[str, Any],
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of ``alpha * op(a) @ op(b) + beta * c`` with respect to a, b and c, of these shapes.

    a is None where b needs no gradient, and b where a needs none. With out_dtype=float32 the incoming gradient is
    float32 and the half-precision operands are widened, so that nothing overflows on the way.
    """
    from .ops import gemm

    how = _public(
        {name: options[name] for name in ("alpha", "level", "impl", "precision") if name in options}
    )
    trans_a, trans_b, beta = options.get("trans_a", False), options.get("trans_b", False), options.get("beta")
    a_shape, b_shape, c_shape = shapes
    if grad.dtype != narrow:
        a, b = (None if x is None else x.to(grad.dtype) for x in (a, b))
        how.pop("kernel", None)  # a kernel of the narrow type need not take the wide one
    grad_a = grad_b = grad_c = None
    if needs[0]:
        if trans_a:
            grad_a = gemm(b, grad, trans_a=trans_b, trans_b=True, **how)
        else:
            grad_a = gemm(grad, b, trans_b=not trans_b, **how)
        grad_a = grad_a.sum_to_size(a_shape).to(narrow)
    if needs[1]:
        if trans_b:
            grad_b = gemm(grad, a, trans_a=True, trans_b=trans_a, **how)
        else:
            grad_b = gemm(a, grad, trans_a=not trans_a, **how)
        grad_b = grad_b.sum_to_size(b_shape).to(narrow)
    if needs[2] and c_shape is not None:
        # With beta = 0, c is not read, so not even an infinite gradient reaches it.
        scaled = grad if beta is None else torch.zeros_like(grad) if beta == 0 else beta * grad
        grad_c = scaled.sum_to_size(c_shape)
    return grad_a, grad_b, grad_c


def _save_gemm(ctx: Any, a: Tensor, b: Tensor, c: Tensor | None, options: dict[str, Any]) -> None:
    # As torch does: what no gradient is made of is not kept, such as the input of a frozen layer.
    needs_a, needs_b = ctx.needs_input_grad[:2]
    ctx.save_for_backward(a if needs_b else None, b if needs_a else None)
    ctx.shapes = a.shape, b.shape, None if c is None else c.shape
    ctx.dtype = a.dtype
    ctx.options = options


def _batch_first(x: Tensor, dim: int | None, rank: int) -> Tensor:
    """Moves vmap's dimension to the front and pads the others to ``rank``, so that batches broadcast."""
    if dim is None:
        return x
    x = x.movedim(dim, 0)
    return x.reshape(x.shape[:1] + (1,) * (rank + 1 - x.dim()) + x.shape[1:])


def _rank(x: Tensor | None, dim: int | None) -> int:
    return 0 if x is None else x.dim() - (dim is not None)


class GemmFunction(torch.autograd.Function):
    """gemm for eager gradients, torch.func transforms and forward-mode AD."""

    @staticmethod
    def forward(a, b, c, options):
        if c is None and not options:
            return torch.ops.fastgemm._matmul.default(a, b)
        return torch.ops.fastgemm._gemm.default(a, b, c, **options)

    @staticmethod
    def setup_context(ctx, inputs, output):
        a, b, c, options = inputs
        _save_gemm(ctx, a, b, c, options)
        ctx.save_for_forward(a, b)
        ctx.out_shape = output.shape

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return *_gemm_gradients(grad, a, b, ctx.shapes, ctx.dtype, ctx.options, ctx.needs_input_grad), None

    @staticmethod
    def jvp(ctx, a_t, b_t, c_t, _):
        from .ops import gemm

        a, b = ctx.saved_tensors
        how = _public(ctx.options)
        beta = how.pop("beta", None)
        terms = []
        if a_t is not None:
            terms.append(gemm(a_t, b, **how))
        if b_t is not None:
            terms.append(gemm(a, b_t, **how))
        if c_t is not None:
            scaled = c_t if beta is None else torch.zeros_like(c_t) if beta == 0 else beta * c_t
            terms.append(scaled.expand(ctx.out_shape))
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    @staticmethod
    def vmap(info, in_dims, a, b, c, options):
        from .ops import gemm

        if _rank(a, in_dims[0]) < 2 or _rank(b, in_dims[1]) < 2:
            raise ValueError("fastgemm.gemm: a and b must have at least 2 dimensions inside vmap")
        rank = max(_rank(a, in_dims[0]), _rank(b, in_dims[1]))
        a, b = _batch_first(a, in_dims[0], rank), _batch_first(b, in_dims[1], rank)
        if c is not None:
            c = _batch_first(c, in_dims[2], rank)
        if (
            in_dims[0] is None and in_dims[1] is None
        ):  # only c is batched: the product must grow the dimension
            a = a.expand((info.batch_size,) + (1,) * (rank - a.dim()) + a.shape)
        return gemm(a, b, c, **_public(options)), 0


class TransposeFunction(torch.autograd.Function):
    """transpose for eager gradients, torch.func transforms and forward-mode AD."""

    @staticmethod
    def forward(a, level, impl):
        return torch.ops.fastgemm._transpose.default(a, level=level, impl=impl)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.level, ctx.impl = inputs

    @staticmethod
    def backward(ctx, grad):
        from .ops import transpose

        return transpose(grad, level=ctx.level, kernel=ctx.impl), None, None

    @staticmethod
    def jvp(ctx, a_t, *_):
        from .ops import transpose

        return transpose(a_t, level=ctx.level, kernel=ctx.impl)

    @staticmethod
    def vmap(info, in_dims, a, level, impl):
        from .ops import transpose

        if _rank(a, in_dims[0]) < 2:
            raise ValueError("fastgemm.transpose: a must have at least 2 dimensions inside vmap")
        return transpose(a.movedim(in_dims[0], 0), level=level, kernel=impl), 0


class AddFunction(torch.autograd.Function):
    """add for eager gradients, torch.func transforms and forward-mode AD."""

    @staticmethod
    def forward(a, b, alpha, level, impl):
        return torch.ops.fastgemm._add.default(a, b, alpha=alpha, level=level, impl=impl)

    @staticmethod
    def setup_context(ctx, inputs, output):
        a, b, ctx.alpha, _, _ = inputs
        ctx.shapes = a.shape, b.shape
        ctx.out_shape = output.shape

    @staticmethod
    def backward(ctx, grad):
        return *_add_gradients(grad, ctx.shapes, ctx.alpha), None, None, None

    @staticmethod
    def jvp(ctx, a_t, b_t, *_):
        total = None if a_t is None else a_t
        if b_t is not None:
            total = ctx.alpha * b_t if total is None else total + ctx.alpha * b_t
        return total.expand(ctx.out_shape).clone()

    @staticmethod
    def vmap(info, in_dims, a, b, alpha, level, impl):
        from .ops import add

        rank = max(_rank(a, in_dims[0]), _rank(b, in_dims[1]))
        a, b = _batch_first(a, in_dims[0], rank), _batch_first(b, in_dims[1], rank)
        return add(a, b, alpha=alpha, level=level, kernel=impl), 0


def _add_gradients(
    grad: Tensor, shapes: tuple[torch.Size, torch.Size], alpha: float
) -> tuple[Tensor, Tensor]:
    return grad.sum_to_size(shapes[0]), (alpha * grad).sum_to_size(shapes[1])


def register() -> None:
    """Gives the ops that torch.compile and torch.export see their gradients, by the same functions as eager mode.

    What those functions call has no formula of its own, so that the code which torch.compile makes calls it
    without a detour through Python: 4 us less a call than with torch.library.register_autograd.
    """

    def gemm(a: Tensor, b: Tensor, c: Tensor | None = None, **options: Any) -> Tensor:
        return GemmFunction.apply(a, b, c, options)

    def transpose(a: Tensor, *, level: int | None = None, impl: str | None = None) -> Tensor:
        return TransposeFunction.apply(a, level, impl)

    def add(
        a: Tensor, b: Tensor, *, alpha: float = 1.0, level: int | None = None, impl: str | None = None
    ) -> Tensor:
        return AddFunction.apply(a, b, alpha, level, impl)

    for function in (gemm, transpose, add):
        library.impl(function.__name__, function, "Autograd")
