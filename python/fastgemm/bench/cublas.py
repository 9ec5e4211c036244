"""cublasGemmEx for int8, in the cuBLAS that torch has loaded.

torch._int_mm lets cuBLASLt choose an algorithm without a workspace, and is half as fast on an H200: a better
baseline is needed to say anything about an int8 kernel.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

# library_types.h and cublas_api.h
CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, CUBLAS_GEMM_DEFAULT = 3, 10, 72, -1
CUBLAS_OP_N, CUBLAS_OP_T = 0, 1


@cache
def _gemm_ex() -> Callable[..., int]:
    major = str(torch.version.cuda).partition(".")[0]
    library = ctypes.CDLL(f"libcublas.so.{major}", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    pointer, number = ctypes.c_void_p, ctypes.c_int
    scalar = ctypes.POINTER(ctypes.c_int32)
    operand = (pointer, number, number)  # address, type, leading dimension
    library.cublasGemmEx.argtypes = (
        *(pointer, number, number, number, number, number, scalar),
        *(*operand, *operand, scalar, *operand, number, number),
    )
    return library.cublasGemmEx


def _stored(x: Tensor) -> tuple[int, int]:
    """How a column-major reader that wants the transpose reads a matrix, and its leading dimension."""
    return (CUBLAS_OP_N, x.stride(0)) if x.stride(1) == 1 else (CUBLAS_OP_T, x.stride(1))


def gemm_ex_int8(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """out = a @ b, of int8 into a row-major int32 matrix: cuBLAS is column-major and computes out^T = b^T a^T."""
    (op_a, lda), (op_b, ldb) = _stored(a), _stored(b)
    one, zero = ctypes.c_int32(1), ctypes.c_int32(0)
    status = _gemm_ex()(
        *(torch.cuda.current_blas_handle(), op_b, op_a, b.shape[1], a.shape[0], a.shape[1], one),
        *(b.data_ptr(), CUDA_R_8I, ldb, a.data_ptr(), CUDA_R_8I, lda, zero),
        *(out.data_ptr(), CUDA_R_32I, out.stride(0), CUBLAS_COMPUTE_32I, CUBLAS_GEMM_DEFAULT),
    )
    if status:
        raise RuntimeError(f"cublasGemmEx returned status {status}")
    return out
