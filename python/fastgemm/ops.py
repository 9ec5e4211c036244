"""The public operations: what each takes and returns. How their calls go on stands in _calls.py."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.compiler import is_compiling, is_dynamo_compiling
from torch.overrides import has_torch_function_variadic

from . import _errors
from ._autograd import AddFunction, TransposeFunction
from ._calls import (
    add_bare,
    functionalizes,
    increment_version,
    matmul_at_once,
    named,
    needs_function,
    ops,
    options_of,
    overridden,
    product,
    tracing_state,
    transpose_bare,
)


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    level: int | None = None,
    kernel: str | None = None,
    precision: str | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Matrix product with the shape rules of :func:`torch.matmul`.

    Args:
        a: ``(K,)``, ``(M, K)`` or ``(..., M, K)``; float64, float32, float16, bfloat16, int8 or int32. Any
            strides and storage offset; leading dimensions broadcast against those of ``b``.
        b: ``(K,)``, ``(K, N)`` or ``(..., K, N)``, of the same dtype and device.
        level: 1 to 7, a rung of the ladder. ``None`` means the fastest kernel known for this problem.
        kernel: the name of one kernel of :func:`fastgemm.kernels`, instead of a level.
        precision: for float32. ``"ieee"``: float32 arithmetic, or tensor cores where their error stays at or below
            cuBLAS SGEMM's on ordinary data (six products of bf16 planes); ``"bf16x6"``: the same without torch.
            Less, faster, and on a GPU alone: ``"fp16x3"`` (22 bits, range limited by row), ``"bf16x3"`` (16
            bits), ``"tf32"`` (11 bits). ``None`` follows torch on CUDA and is ``"ieee"`` on a CPU. See
            docs/precision.md.
        out: tensor that receives the result; it must have its exact shape, dtype and device and share no
            memory with ``a`` or ``b``.
        out_dtype: ``torch.float32`` for float16 and bfloat16 operands; otherwise the usual one.

    Returns:
        ``(..., M, N)``, without the dimension that a 1-D operand lacks. The dtype is that of the operands,
        int32 for int8. float16 and bfloat16 accumulate in float32 and are rounded once; int32 wraps modulo
        2**32. NaN and infinity behave as in IEEE arithmetic.

    Raises:
        TypeError: an operand is no tensor, or its dtype is not supported.
        NotImplementedError: an operand is sparse or quantized, or its device has no kernels.
        ValueError: shapes, dtypes or devices do not go together; unknown ``kernel``, ``level``, ``precision``.
        RuntimeError: the level or kernel asked for cannot run here (the message says why and what can), or
            ``out`` is given while a gradient is required or inside a torch.func transform, or is an inference
            tensor outside inference mode.
    """
    if (
        level is None
        and kernel is None
        and precision is None
        and out is None
        and out_dtype is None
        and not is_dynamo_compiling()
    ):
        try:
            result = matmul_at_once(a, b)
        except (RuntimeError, ValueError) as error:
            _errors.diagnose(error, a=a, b=b)
            raise
        if result is not NotImplemented:
            return result
    if has_torch_function_variadic(a, b, out):
        options = named(level, kernel, precision, out, out_dtype)
        return overridden(matmul, (a, b, out), a, b, **options)
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        raise _errors.not_a_tensor(a=a, b=b)
    a_dim, b_dim = a.dim(), b.dim()
    options = options_of(a, level, kernel, precision, out, out_dtype)
    if a_dim >= 2 and b_dim >= 2:
        return product(a, b, None, out, options)
    if a_dim == 0 or b_dim == 0:
        raise ValueError(f"fastgemm.matmul: operands must have at least 1 dimension, got {a_dim} and {b_dim}")
    view = out
    if a_dim == 1:
        a = a.unsqueeze(0)
    if b_dim == 1:
        b = b.unsqueeze(-1)
    if out is not None:
        view = out.unsqueeze(-1) if b_dim == 1 else out
        view = view.unsqueeze(-2) if a_dim == 1 else view
    result = product(a, b, None, view, options)
    if out is not None:
        return out
    if b_dim == 1:
        result = result.squeeze(-1)
        return result.squeeze(-1) if a_dim == 1 else result
    return result.squeeze(-2)


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
    precision: str | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """``alpha * op(a) @ op(b) + beta * c``, as in BLAS.

    Args:
        a: ``(..., M, K)``, or ``(..., K, M)`` with ``trans_a``; dtypes and strides as for :func:`matmul`.
        b: ``(..., K, N)``, or ``(..., N, K)`` with ``trans_b``.
        c: added to the product; the shape of the result, or one that broadcasts to it. Its dtype is that of
            the result.
        alpha: scale of the product; a whole number for integer operands. With 0, ``a`` and ``b`` are not read, as
            if K were 0.
        beta: scale of ``c``; 1 when ``c`` is given, else 0. With 0, ``c`` is never read.
        trans_a: use the transpose of the last two dimensions of ``a``.
        trans_b: use the transpose of the last two dimensions of ``b``.
        level: 1 to 7, a rung of the ladder, or ``None`` for the fastest kernel known.
        kernel: the name of one kernel, instead of a level.
        precision: for float32; see :func:`matmul`.
        out: receives the result, of its exact shape, dtype and device; may be exactly ``c``, and shares no memory
            with an operand otherwise.
        out_dtype: ``torch.float32`` for float16 and bfloat16 operands; otherwise the usual one.

    Returns:
        ``(..., M, N)``, of the dtype that :func:`matmul` returns. With K = 0 it is ``beta * c``, or zeros.

    Raises:
        TypeError: an operand is no tensor, or its dtype is not supported; a scale is a tensor.
        NotImplementedError: an operand is sparse or quantized, or its device has no kernels.
        ValueError: shapes, dtypes or devices do not go together; ``alpha`` or ``beta`` is not whole for integers;
            unknown ``kernel``, ``level`` or ``precision``.
        RuntimeError: the level or kernel asked for cannot run here, or ``out`` cannot be written to; see
            :func:`matmul`.
    """
    if has_torch_function_variadic(a, b, c, out):
        scales = {"alpha": alpha, "beta": beta, "trans_a": trans_a, "trans_b": trans_b}
        options = named(level, kernel, precision, out, out_dtype)
        return overridden(gemm, (a, b, c, out), a, b, c, **scales, **options)
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        raise _errors.not_a_tensor(a=a, b=b)
    _errors.refuse_tensor_scales(alpha=alpha, beta=beta)
    options = options_of(a, level, kernel, precision, out, out_dtype)
    if alpha != 1.0:
        options["alpha"] = alpha
    if beta is not None:
        options["beta"] = beta
    if trans_a:
        options["trans_a"] = True
    if trans_b:
        options["trans_b"] = True
    return product(a, b, c, out, options)


def transpose(
    a: Tensor, *, level: int | None = None, kernel: str | None = None, out: Tensor | None = None
) -> Tensor:
    """A contiguous copy of ``a`` with its last two dimensions exchanged: ``a.mT.contiguous()``.

    Args:
        a: ``(..., R, C)`` of any dtype whose elements have 1, 2, 4, 8 or 16 bytes, any strides.
        level: 1 to 7, or ``None`` for the fastest kernel known.
        kernel: the name of one kernel, instead of a level.
        out: ``(..., C, R)`` of the same dtype and device, sharing no memory with ``a``.

    Returns:
        ``(..., C, R)``, contiguous unless ``out`` is given.

    Raises:
        TypeError: ``a`` is no tensor.
        NotImplementedError: ``a`` is sparse or quantized.
        ValueError: fewer than two dimensions; an ``out`` that does not fit; unknown ``kernel`` or ``level``.
        RuntimeError: the level or kernel asked for cannot run here, or ``out`` cannot be written to; see
            :func:`matmul`.
    """
    if has_torch_function_variadic(a, out):
        return overridden(transpose, (a, out), a, level=level, kernel=kernel, out=out)
    if not isinstance(a, Tensor):
        raise _errors.not_a_tensor(a=a)
    if level is not None:
        _errors.refuse_level(level)
    if is_compiling():
        if out is None:
            return ops.transpose.default(a, level=level, impl=kernel)
        _errors.refuse_gradient_into_out(a, out)
        ops.transpose.out(a, level=level, impl=kernel, out=out)
        return out
    try:
        if out is not None:
            _errors.refuse_gradient_into_out(a, out)
            _errors.refuse_transform_into_out(a, out)
            _errors.refuse_inference_tensor(out)
            ops.transpose.out(a, level=level, impl=kernel, out=out)
            increment_version((out,))
            return out
        if tracing_state() is not None:
            return ops.transpose.default(a, level=level, impl=kernel)
        if needs_function(a, a):
            if functionalizes():
                return ops.transpose.default(a, level=level, impl=kernel)
            return TransposeFunction.apply(a, level, kernel)
        return transpose_bare(a, level=level, impl=kernel)
    except (RuntimeError, ValueError, TypeError) as error:
        _errors.diagnose(error, a=a, out=out)
        raise


def add(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    level: int | None = None,
    kernel: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """``a + alpha * b``, elementwise, with broadcasting.

    Args:
        a: any shape; float64, float32, float16, bfloat16, int8 or int32.
        b: a shape that broadcasts with that of ``a``; same dtype and device.
        alpha: scale of ``b``; a whole number for integers.
        level: 1, 2, 4 or 5; other levels have no rung for an elementwise operation and raise.
        kernel: the name of one kernel, instead of a level.
        out: receives the result; may be exactly ``a`` or ``b``.

    Returns:
        The broadcast shape, same dtype. float16 and bfloat16 are computed in float32 and rounded once;
        integers wrap.

    Raises:
        TypeError: an operand is no tensor, or its dtype is not supported; a scale is a tensor.
        NotImplementedError: an operand is sparse or quantized, or its device has no kernels.
        ValueError: shapes, dtypes or devices do not go together; ``alpha`` is not whole for integers; unknown
            ``kernel`` or ``level``.
        RuntimeError: the level or kernel asked for cannot run here, or ``out`` cannot be written to; see
            :func:`matmul`.
    """
    if has_torch_function_variadic(a, b, out):
        return overridden(add, (a, b, out), a, b, alpha=alpha, level=level, kernel=kernel, out=out)
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        raise _errors.not_a_tensor(a=a, b=b)
    _errors.refuse_tensor_scales(alpha=alpha)
    if level is not None:
        _errors.refuse_level(level)
    if is_compiling():
        if out is None:
            return ops.add.default(a, b, alpha=alpha, level=level, impl=kernel)
        _errors.refuse_gradient_into_out(a, b, out)
        ops.add.out(a, b, alpha=alpha, level=level, impl=kernel, out=out)
        return out
    try:
        if out is not None:
            _errors.refuse_gradient_into_out(a, b, out)
            _errors.refuse_transform_into_out(a, b, out)
            _errors.refuse_inference_tensor(out)
            ops.add.out(a, b, alpha=alpha, level=level, impl=kernel, out=out)
            increment_version((out,))
            return out
        if tracing_state() is not None:
            return ops.add.default(a, b, alpha=alpha, level=level, impl=kernel)
        if needs_function(a, b):
            if functionalizes():
                return ops.add.default(a, b, alpha=alpha, level=level, impl=kernel)
            return AddFunction.apply(a, b, alpha, level, kernel)
        return add_bare(a, b, alpha=alpha, level=level, impl=kernel)
    except (RuntimeError, ValueError, TypeError) as error:
        _errors.diagnose(error, a=a, b=b, out=out)
        raise


def add_(
    a: Tensor, b: Tensor, *, alpha: float = 1.0, level: int | None = None, kernel: str | None = None
) -> Tensor:
    """``a += alpha * b`` in place.

    Args:
        a: receives the sum; dtypes as for :func:`add`.
        b: a shape that broadcasts to that of ``a``; same dtype and device. May be exactly ``a``.
        alpha: scale of ``b``; a whole number for integers.
        level: 1, 2, 4 or 5, or ``None`` for the fastest kernel known.
        kernel: the name of one kernel, instead of a level.

    Returns:
        ``a``.

    Raises:
        RuntimeError: ``a`` is a leaf that requires a gradient, or an inference tensor outside inference mode;
            else, as for the other errors, see :func:`add`.
    """
    if has_torch_function_variadic(a, b):
        return overridden(add_, (a, b), a, b, alpha=alpha, level=level, kernel=kernel)
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        raise _errors.not_a_tensor(a=a, b=b)
    _errors.refuse_tensor_scales(alpha=alpha)
    if level is not None:
        _errors.refuse_level(level)
    wants_gradient = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    if is_compiling() and not wants_gradient:
        ops.add_.default(a, b, alpha=alpha, level=level, impl=kernel)
        return a
    if wants_gradient or tracing_state() is not None or needs_function(a, b):
        # copy_ records the change of `a` for autograd; the op itself would change it behind autograd's back.
        total = add(a, b, alpha=alpha, level=level, kernel=kernel)
        _errors.refuse_shape(a, total.shape)
        return a.copy_(total)
    try:
        _errors.refuse_inference_tensor(a)
        ops.add_.default(a, b, alpha=alpha, level=level, impl=kernel)
        increment_version((a,))
    except (RuntimeError, ValueError, TypeError) as error:
        _errors.diagnose(error, a=a, b=b)
        raise
    return a
