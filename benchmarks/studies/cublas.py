"""Calls cublasGemmEx of the cuBLAS that torch has loaded: its int8 products, and its emulated ones.

torch._int_mm lets cuBLASLt choose an algorithm without a workspace, and is half as fast on an H200. An int8 kernel
must be compared with a better baseline.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

import torch
from torch import Tensor

# library_types.h and cublas_api.h
CUDA_R_32F, CUDA_R_64F, CUDA_R_8I, CUDA_R_32I = 0, 1, 3, 10
CUBLAS_COMPUTE_32I, CUBLAS_GEMM_DEFAULT = 72, -1
CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
CUBLAS_EMULATION_STRATEGY_DEFAULT, CUBLAS_EMULATION_STRATEGY_EAGER = 0, 2
CUBLAS_STATUS_NOT_SUPPORTED = 15
# The compute type, the type of operands and result, and the type of the factors.
EMULATED = {
    "32F_EMULATED_16BFX9": (78, CUDA_R_32F, ctypes.c_float),
    "64F_EMULATED_FIXEDPOINT": (79, CUDA_R_64F, ctypes.c_double),
}


@cache
def _library() -> ctypes.CDLL:
    major = str(torch.version.cuda).partition(".")[0]
    library = ctypes.CDLL(f"libcublas.so.{major}", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    pointer, number = ctypes.c_void_p, ctypes.c_int
    operand = (pointer, number, number)  # address, type, leading dimension
    library.cublasGemmEx.argtypes = (
        *(pointer, number, number, number, number, number, pointer),
        *(*operand, *operand, pointer, *operand, number, number),
    )
    library.cublasCreate_v2.argtypes = (ctypes.POINTER(pointer),)
    library.cublasSetStream_v2.argtypes = (pointer, pointer)
    library.cublasSetWorkspace_v2.argtypes = (pointer, pointer, ctypes.c_size_t)
    return library


def _succeed(status: int, function: str) -> None:
    if status == CUBLAS_STATUS_NOT_SUPPORTED:
        raise RuntimeError(f"{function}: not supported")
    if status:
        raise RuntimeError(f"{function} returned status {status}")


def _stored(x: Tensor) -> tuple[int, int]:
    """How a column-major library reads the transpose of a matrix: the operation and the leading dimension."""
    return (CUBLAS_OP_N, x.stride(0)) if x.stride(1) == 1 else (CUBLAS_OP_T, x.stride(1))


def _gemm_ex(
    handle: int, a: Tensor, b: Tensor, out: Tensor, types: tuple[int, int, int], scalar: type
) -> Tensor:
    """out = a @ b into a row-major matrix: cuBLAS is column-major and computes out^T = b^T a^T.

    ``types``: the types of the operands, of the result and of the computation.
    """
    (op_a, lda), (op_b, ldb) = _stored(a), _stored(b)
    operand, result, compute = types
    one, zero = scalar(1), scalar(0)
    status = _library().cublasGemmEx(
        *(handle, op_b, op_a, b.shape[1], a.shape[0], a.shape[1], ctypes.addressof(one)),
        *(b.data_ptr(), operand, ldb, a.data_ptr(), operand, lda, ctypes.addressof(zero)),
        *(out.data_ptr(), result, out.stride(0), compute, CUBLAS_GEMM_DEFAULT),
    )
    _succeed(status, "cublasGemmEx")
    return out


def gemm_ex_int8(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """out = a @ b, int8 operands with an int32 result."""
    types = CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I
    return _gemm_ex(torch.cuda.current_blas_handle(), a, b, out, types, ctypes.c_int32)


class Emulation:
    """cublasGemmEx with an emulated compute type, with its own handle and workspace.

    ``eager``: emulates wherever cuBLAS can. By default, cuBLAS computes natively where it expects to be faster.
    Raises RuntimeError if this cuBLAS has no emulation.
    """

    WORKSPACE_BYTES = 4 << 30  # room for the planes of both operands at 8192

    def __init__(self, compute: str, *, eager: bool):
        self._handle = ctypes.c_void_p()
        self._compute, self._type, self._scalar = EMULATED[compute]
        library = _library()
        if not hasattr(library, "cublasSetEmulationStrategy"):
            raise RuntimeError("this cuBLAS has no emulation")
        _succeed(library.cublasCreate_v2(ctypes.byref(self._handle)), "cublasCreate")
        stream = torch.cuda.current_stream().cuda_stream
        _succeed(library.cublasSetStream_v2(self._handle, stream), "cublasSetStream")
        self._workspace = torch.empty(self.WORKSPACE_BYTES, dtype=torch.int8, device="cuda")
        place = self._workspace.data_ptr(), self.WORKSPACE_BYTES
        _succeed(library.cublasSetWorkspace_v2(self._handle, *place), "cublasSetWorkspace")
        strategy = CUBLAS_EMULATION_STRATEGY_EAGER if eager else CUBLAS_EMULATION_STRATEGY_DEFAULT
        _succeed(library.cublasSetEmulationStrategy(self._handle, strategy), "cublasSetEmulationStrategy")

    def __call__(self, a: Tensor, b: Tensor, out: Tensor) -> Tensor:
        types = self._type, self._type, self._compute
        return _gemm_ex(self._handle.value, a, b, out, types, self._scalar)

    def __del__(self) -> None:
        if self._handle.value:
            _library().cublasDestroy_v2(self._handle)
