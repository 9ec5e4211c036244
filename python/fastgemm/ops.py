"""The public operations. Each operation is in one module, together with its gradient. The gradient calls the
operation again.
_ops/dispatch.py shows how calls reach ``torch.ops.fastgemm``.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import has_torch_function_variadic

from . import _errors
from ._ops.add import add, add_
from ._ops.dispatch import (
    CHOICE,
    compiled_override,
    gemm_at_once,
    in_shape,
    matmul_at_once,
    options_of,
    overridden,
)
from ._ops.gemm import PRODUCT, gemm
from ._ops.transpose import transpose
from ._typing import Precision
from .table import invariant_choice

__all__ = ["add", "add_", "gemm", "matmul", "transpose"]


def __dir__() -> list[str]:
    return __all__


for _function in (add, add_, gemm, transpose):
    _function.__module__ = __name__  # the module in which pickles and graphs of torch.fx find them


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    level: int | None = None,
    kernel: str | None = None,
    precision: Precision | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    invariant: bool = False,
) -> Tensor:
    """Matrix product with the shape rules of :func:`torch.matmul`.

    Args:
        a: ``(K,)``, ``(M, K)`` or ``(..., M, K)``; float64, float32, float16, bfloat16,
            complex128, complex64, complex32, int8, int16, int32, int64, uint8 or bool. Any strides and storage
            offset, conjugated views too; leading dimensions broadcast against those of ``b``.
        b: ``(K,)``, ``(K, N)`` or ``(..., K, N)``, of the same dtype and device; int8, uint8 and bool mix. Or
            ``q.mT`` of a :class:`QuantizedWeight`; see :func:`linear`.
        level: 1 to 7, a rung of the ladder. ``None`` means the fastest kernel known for this problem; 7, the last
            rung, chooses as ``None`` does.
        kernel: the name of one kernel of :func:`fastgemm.kernels`, instead of a level.
        precision: for float32, and the parts of complex64. ``"ieee"``: float32 arithmetic, or tensor cores where
            their error stays at or below cuBLAS SGEMM's on ordinary data (six products of bf16 planes);
            ``"bf16x6"``: the same without torch. Less accurate, and faster on a GPU: ``"fp16x3"`` (22 bits, range
            limited by row), ``"bf16x3"`` (16 bits), ``"tf32"`` (11 bits); on a CPU they are ``"ieee"``. ``None``
            follows torch's flags: on a CPU torch's own product is taken where
            ``torch.backends.mkldnn.matmul.fp32_precision`` is ``"bf16"`` or ``"tf32"``, and all else is
            ``"ieee"``. For float64, and the parts of complex128: ``"ieee"``, or ``"crt14"`` to ``"crt18"``:
            residues of 14 to 18 moduli, each with 7.6 bits of a product, without a check of the operands' range.
            docs/precision.md explains them.
        out: tensor that receives the result; it must have its exact shape, dtype and device and share no
            memory with ``a`` or ``b``.
        out_dtype: ``torch.float32`` for float16 and bfloat16 operands, ``torch.int32`` for int16; otherwise the
            usual one.
        invariant: the bits of a row of the result depend only on that row of ``a``, on ``b``, N, K, dtypes and
            layouts: not on the other rows or their number, nor on which GPU of a type computes them. The order of
            each sum is fixed, which takes some time (docs/invariant.md). It is the same as
            ``kernel="invariant"`` (with ``level=1``: ``"naive"``), and also holds for products of the backward
            pass. ``level`` may be 1, 6, 7 or ``None``.

    Returns:
        ``(..., M, N)``, without the dimension that a 1-D operand lacks. The dtype is that of the operands,
        int32 for int8, uint8 and bool, int64 for int16. float16 and bfloat16 accumulate in float32 and are rounded
        once; int32 wraps modulo ``2**32`` and int64 modulo ``2**64``. A complex product is computed as a product
        of real matrices, ``(M, 2 K) @ (2 K, 2 N)``, by the kernels for the type of the real parts. If no level and
        no kernel is given, and torch's complex product is predicted to be faster, torch computes it. NaN and
        infinity behave as in IEEE arithmetic.

    Raises:
        TypeError: an operand is no tensor, or its dtype is not supported.
        NotImplementedError: an operand is sparse or quantized, or its device has no kernels.
        ValueError: shapes, dtypes or devices do not fit together; unknown ``kernel``, ``level``, ``precision``;
            ``invariant`` with a kernel or level whose rows depend on each other.
        RuntimeError: the requested level or kernel cannot run here (the message says why, and which can), or
            ``out`` is given while a gradient is required or inside a torch.func transform, or is an inference
            tensor outside inference mode.

    Examples:
        >>> import torch, fastgemm
        >>> a, b = torch.randn(8, 64, 32), torch.randn(32, 48)
        >>> fastgemm.matmul(a, b).shape  # the fastest kernel known
        torch.Size([8, 64, 48])
        >>> fastgemm.matmul(a[0], b, level=2).shape  # one rung of the ladder
        torch.Size([64, 48])
        >>> i, j = torch.ones(4, 300, dtype=torch.int8), torch.ones(300, 4, dtype=torch.int8)
        >>> int(fastgemm.matmul(i, j)[0, 0])  # int8 is summed in int32
        300
    """
    if invariant:
        level, kernel = None, invariant_choice(level, kernel, precision, "fastgemm.matmul")
    choice = level, kernel, precision, out_dtype
    compiled = compiled_override(b)
    if compiled:
        return compiled(matmul, (a, b), {"out": out, **dict(zip(CHOICE, choice, strict=True))})
    if not is_dynamo_compiling():
        try:
            if level is None and kernel is None and precision is None and out_dtype is None and out is None:
                result = matmul_at_once(a, b)
            else:
                result = gemm_at_once(a, b, None, 1.0, None, False, False, *choice, False, out)
        except (RuntimeError, ValueError) as error:
            _errors.diagnose(error, "matmul", a=a, b=b, out=out)
            raise
        if result is not NotImplemented:
            return result
    if has_torch_function_variadic(a, b, out):
        return overridden(matmul, (a, b, out), a, b, out=out, **dict(zip(CHOICE, choice, strict=True)))
    try:
        if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
            raise _errors.not_a_tensor(a=a, b=b)
        a_dim, b_dim = a.dim(), b.dim()
        options = options_of(a, level, kernel, precision, out, out_dtype)
        if a_dim >= 2 and b_dim >= 2:
            return PRODUCT.call((a, b, None), options, out)
        if a_dim == 0 or b_dim == 0:
            raise ValueError(f"fastgemm: operands must have at least 1 dimension, got {a_dim} and {b_dim}")
        view = out
        if a_dim == 1:
            a = a.unsqueeze(0)
        if b_dim == 1:
            b = b.unsqueeze(-1)
        if out is not None:
            view = out.unsqueeze(-1) if b_dim == 1 else out
            view = view.unsqueeze(-2) if a_dim == 1 else view
        result = PRODUCT.call((a, b, None), options, view)
        if out is not None:
            return out
        shape = [*result.shape]
        if b_dim == 1:
            del shape[-1]
        if a_dim == 1:
            del shape[-1 if b_dim == 1 else -2]
        return in_shape(result, shape)
    except (AttributeError, RuntimeError, ValueError, TypeError) as error:
        _errors.diagnose(error, "matmul", a=a, b=b, out=out)
        raise
