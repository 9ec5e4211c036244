"""The general product: the public function, the path of its calls, and its gradient.

The three are one module, because the gradient of a product is made of products: it calls the public function. So
it can be differentiated again, and works in eager mode, torch.compile and torch.func."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import has_torch_function_variadic

from .. import _errors
from .._typing import Precision
from ..table import INVARIANT, invariant_choice
from . import autocast
from .dispatch import (
    CHOICE,
    FINDS_GRADIENTS,
    Op,
    gemm_at_once,
    gemm_bare,
    matmul_bare,
    ops,
    options_of,
    overridden,
    public,
)
from .integer_scales import exact_product
from .tangents import tangent
from .vmap import batch_first, rank_of

SYMMETRIC = "symmetric"
"""The kernel that takes only products with a symmetric result."""
KEYWORDS = (*("alpha", "beta", "trans_a", "trans_b"), *CHOICE, "symmetric")
"""The arguments of :func:`gemm` that are no tensors, in the order of the op's schema."""


def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float | None = None,
    trans_a: bool = False,
    trans_b: bool = False,
    level: int | None = None,
    kernel: str | None = None,
    precision: Precision | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    symmetric: bool = False,
    invariant: bool = False,
) -> Tensor:
    """``alpha * op(a) @ op(b) + beta * c``, as in BLAS.

    Args:
        a: ``(..., M, K)``, or ``(..., K, M)`` with ``trans_a``; dtypes and strides as for :func:`matmul`.
        b: ``(..., K, N)``, or ``(..., N, K)`` with ``trans_b``.
        c: added to the product; the shape of the result, or one that broadcasts to it. Its dtype is that of
            the result.
        alpha: scale of the product; for integer operands a whole number that fits in 64 bits. With 0, ``a`` and
            ``b`` are not read, as if K were 0.
        beta: scale of ``c``; 1 when ``c`` is given, else 0. With 0, ``c`` is never read.
        trans_a: use the transpose of the last two dimensions of ``a``.
        trans_b: use the transpose of the last two dimensions of ``b``.
        level: 1 to 7, a rung of the ladder, or ``None`` for the fastest kernel known; 7 makes the same choice.
        kernel: the name of one kernel, instead of a level.
        precision: for float32; see :func:`matmul`.
        out: receives the result, of its exact shape, dtype and device; may be exactly ``c``, and shares no memory
            with an operand otherwise.
        out_dtype: ``torch.float32`` for float16 and bfloat16 operands, ``torch.int32`` for int16; otherwise the
            usual one.
        symmetric: the caller's promise, which is not checked, that M = N and the result equals its transpose, as
            for ``a @ a.mT``, or for ``alpha * x @ x + beta * x`` with a symmetric ``x``. For complex operands it
            is the **conjugate** transpose, as for ``a @ a.mH``. The lower triangle is computed and
            the upper one copied from it, so that the result is exactly symmetric; only the lower triangle of ``c``
            is used. Without a level or kernel, this takes half of the operations if that is faster (kernel
            ``symmetric``). BLAS calls it gemmt and syrk. Gradients are those of the general product.
        invariant: the bits of a row do not depend on the other rows; see :func:`matmul`. Not with ``symmetric``.

    Returns:
        ``(..., M, N)``, of the dtype that :func:`matmul` returns. With K = 0 it is ``beta * c``, or zeros.

    Raises:
        TypeError: an operand is no tensor, or its dtype is not supported; a scale is a tensor.
        NotImplementedError: an operand is sparse or quantized, or its device has no kernels.
        ValueError: shapes, dtypes or devices do not fit together; ``alpha`` or ``beta`` is not whole for integers;
            unknown ``kernel``, ``level`` or ``precision``; ``symmetric`` for a result that is not square, or with
            ``invariant``; ``invariant`` with a kernel or level whose rows depend on each other.
        RuntimeError: the requested level or kernel cannot run here (``kernel="symmetric"``: the result is not
            known to be symmetric), or ``out`` cannot be written to; see :func:`matmul`.

    Examples:
        >>> import torch, fastgemm
        >>> a, b, c = torch.randn(64, 32), torch.randn(48, 32), torch.zeros(64, 48)
        >>> fastgemm.gemm(a, b, c, alpha=2.0, beta=0.5, trans_b=True, out=c) is c
        True
        >>> fastgemm.gemm(a, a, trans_b=True, symmetric=True).shape  # the result equals its transpose
        torch.Size([64, 64])
    """
    if invariant:
        if symmetric:
            raise ValueError(
                "fastgemm.gemm: invariant=True and symmetric=True exclude each other: half of a symmetric result "
                "is copied from other rows"
            )
        level, kernel = None, invariant_choice(level, kernel, precision, "fastgemm.gemm")
    given = alpha, beta, trans_a, trans_b, level, kernel, precision, out_dtype, symmetric
    if not is_dynamo_compiling():
        try:
            result = gemm_at_once(a, b, c, *given, out)
        except (RuntimeError, ValueError) as error:
            _errors.diagnose(error, "gemm", a=a, b=b, c=c, out=out)
            raise
        if result is not NotImplemented:
            return result
    if has_torch_function_variadic(a, b, c, out):
        options = {**dict(zip(KEYWORDS, given, strict=True)), "out": out, "symmetric": symmetric or None}
        return overridden(gemm, (a, b, c, out), a, b, c, **options)
    try:
        if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
            raise _errors.not_a_tensor(a=a, b=b)
        _errors.refuse_tensor_scales(alpha=alpha, beta=beta)
        options = options_of(a, level, kernel, precision, out, out_dtype)
        if alpha != 1.0 or beta is not None:
            a, b, c, alpha, beta = exact_product(a, b, c, alpha, beta, out_dtype)
        if alpha != 1.0:
            options["alpha"] = alpha
        if beta is not None:
            options["beta"] = beta
        if trans_a:
            options["trans_a"] = True
        if trans_b:
            options["trans_b"] = True
        if symmetric:
            options["symmetric"] = True
        return PRODUCT.call((a, b, c), options, out)
    except (AttributeError, RuntimeError, ValueError, TypeError) as error:
        _errors.diagnose(error, "gemm", a=a, b=b, c=c, out=out)
        raise


def _bare(a: Tensor, b: Tensor, c: Tensor | None, **options: Any) -> Tensor:
    return gemm_bare(a, b, c, **options) if options or c is not None else matmul_bare(a, b)


def _differentiable(a: Tensor, b: Tensor, c: Tensor | None = None, **options: Any) -> Tensor:
    a, b, c = autocast.operands(a, b, c, options=options)  # here, so that autograd sees the casts
    return GemmFunction.apply(a, b, c, options)


PRODUCT = Op("gemm", ("_gemm", "_matmul"), _bare, _differentiable, autocast.operands, FINDS_GRADIENTS)


class GemmFunction(torch.autograd.Function):
    """gemm for eager gradients, torch.func transforms and forward-mode AD."""

    @staticmethod
    def forward(a: Tensor, b: Tensor, c: Tensor | None, options: dict[str, Any]) -> Tensor:
        if c is None and not options:
            return ops._matmul.default(a, b)
        return ops._gemm.default(a, b, c, **options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        a, b, c, options = inputs
        # As in torch, only tensors that a gradient needs are saved: not the input of a frozen layer, for example.
        needs_a, needs_b = ctx.needs_input_grad[:2]
        ctx.save_for_backward(a if needs_b else None, b if needs_a else None)
        ctx.save_for_forward(a, b)
        ctx.shapes, ctx.out_shape = (a.shape, b.shape, None if c is None else c.shape), output.shape
        ctx.dtype, ctx.options = a.dtype, options

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, b = ctx.saved_tensors
        return *_gemm_gradients(grad, a, b, ctx.shapes, ctx.dtype, ctx.options, ctx.needs_input_grad), None

    @tangent
    def jvp(ctx: Any, saved: Any, *tangents: Tensor | None) -> Tensor:
        a_t, b_t, c_t, _ = tangents
        a, b = saved
        how = public(ctx.options)
        beta = how.pop("beta", None)
        how.pop("symmetric", None)  # the terms of a tangent need not be symmetric
        if how.get("kernel") == SYMMETRIC:
            del how["kernel"]
        terms = []
        if a_t is not None:
            terms.append(gemm(a_t, b, **how))
        if b_t is not None:
            terms.append(gemm(a, b_t, **how))
        if c_t is not None:
            scaled = c_t if beta is None else torch.zeros_like(c_t) if beta == 0 else beta * c_t
            terms.append(scaled.expand(ctx.out_shape))
        return reduce(torch.add, terms)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
        a, b, c, options = arguments
        if rank_of(a, in_dims[0]) < 2 or rank_of(b, in_dims[1]) < 2:
            raise ValueError("fastgemm: a and b must have at least 2 dimensions inside vmap")
        rank = max(rank_of(a, in_dims[0]), rank_of(b, in_dims[1]))
        a, b = batch_first(a, in_dims[0], rank), batch_first(b, in_dims[1], rank)
        if c is not None:
            c = batch_first(c, in_dims[2], rank)
        # If only c is batched, the product gets its dimension from a.
        if in_dims[0] is None and in_dims[1] is None:
            a = a.expand((info.batch_size,) + (1,) * (rank - a.dim()) + a.shape)
        return gemm(a, b, c, **public(options)), 0


def _is_one(batch: Sequence[int]) -> bool:
    """Whether it is a batch of one. A size that is unknown in a traced graph counts as more."""
    if all(isinstance(n, int) for n in batch):
        return prod(batch) == 1
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # takes long to import

    return all(statically_known_true(n == 1) for n in batch)


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

    a is None if b needs no gradient; b is None if a needs none. With out_dtype=float32 the incoming gradient is
    float32 and the half-precision operands are widened, so that nothing overflows on the way.
    """
    how = public({name: options[name] for name in ("alpha", "level", "impl", "precision") if name in options})
    trans_a, trans_b, beta = options.get("trans_a", False), options.get("trans_b", False), options.get("beta")
    a_shape, b_shape, c_shape = shapes
    if grad.dtype != narrow:
        a, b = (None if x is None else x.to(grad.dtype) for x in (a, b))
        if how.get("kernel") not in INVARIANT:  # which take both
            how.pop("kernel", None)  # a kernel of the narrow type need not take the wide one
    if how.get("kernel") == SYMMETRIC:  # the gradient is not symmetric
        del how["kernel"]
    grad_a = grad_b = grad_c = None
    # torch's convention for complex numbers; of real ones conj() is the tensor itself.
    a, b = (None if x is None else x.conj() for x in (a, b))
    # If b is one matrix for a batch of products, all their rows make up one product. Each element of its gradient
    # is then one sum, rounded once, instead of a sum of rounded products.
    rows, as_one = grad, grad.dim() > 2 and not trans_a and _is_one(b_shape[:-2])
    if as_one:
        try:
            rows, a = grad.flatten(0, -2), None if a is None else a.flatten(0, -2)
        except RuntimeError:
            # torch does not flatten a batch of which devices have parts of different sizes.
            if not _errors.is_sharded(grad):
                raise
            as_one = False
    of_shape: Any = Tensor.reshape if as_one else Tensor.sum_to_size
    if needs[0]:
        assert b is not None  # kept, as a needs it
        if trans_a:
            grad_a = gemm(b, rows, trans_a=trans_b, trans_b=True, **how)
        else:
            grad_a = gemm(rows, b, trans_b=not trans_b, **how)
        grad_a = of_shape(grad_a, a_shape).to(narrow)
    if needs[1]:
        assert a is not None  # as above
        if trans_b:
            grad_b = gemm(rows, a, trans_a=True, trans_b=trans_a, **how)
        else:
            grad_b = gemm(a, rows, trans_a=not trans_a, **how)
        grad_b = of_shape(grad_b, b_shape).to(narrow)
    if needs[2] and c_shape is not None:
        # With beta = 0, c is not read, so not even an infinite gradient reaches it.
        scaled = grad if beta is None else torch.zeros_like(grad) if beta == 0 else beta * grad
        grad_c = scaled.sum_to_size(c_shape)
    return grad_a, grad_b, grad_c
