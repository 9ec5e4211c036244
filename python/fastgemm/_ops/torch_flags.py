"""torch's global flags for its own products.

Every call reads them. The functions of torch._C behind torch.backends and
torch.are_deterministic_algorithms_enabled take 0.3 us instead of 1.1, which matters for small products."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import Tensor
from torch._C import _get_deterministic_algorithms, _get_fp32_precision_getter

has_names: Callable[[Tensor], bool] = getattr(Tensor, "has_names", lambda x: False)
"""Whether a tensor's dimensions have names, as they could until torch 2.12."""


def torch_fp32_precision() -> str:
    """The precision torch's own float32 products have on CUDA, as a name that the ops take."""
    return "tf32" if _get_fp32_precision_getter("cuda", "matmul") == "tf32" else "ieee"


# What torch.compiler.assume_constant_result sets; calling it would import torch._dynamo, which takes 1 s.
torch_fp32_precision._dynamo_marked_constant = True  # type: ignore[attr-defined]  # of a function


def torch_refuses_cublas() -> bool:
    """Whether torch refuses cuBLAS: in deterministic mode, unless the environment makes its workspaces
    reproducible."""
    config = os.environ.get("CUBLAS_WORKSPACE_CONFIG") if _get_deterministic_algorithms() else ":16:8"
    return config not in (":4096:8", ":16:8")


def torch_computes(device: str, dtype: str, precision: str) -> bool:
    """Whether torch's products have the requested precision: only then may one be chosen.

    By default torch lets cuBLAS round the partial sums of 16-bit products to 16 bits where it splits K.
    """
    if device == "cpu":
        torchs = _get_fp32_precision_getter("mkldnn", "matmul")
        return dtype == "float64" or (precision == "ieee" and torchs in ("none", "ieee"))
    if torch_refuses_cublas():
        return False
    if dtype == "float64":
        return True
    if dtype == "float32":
        return precision == torch_fp32_precision()
    if dtype == "float16":
        return not torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    return not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
