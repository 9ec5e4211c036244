"""Times products by every kernel of the table and by torch, for several dtypes and shapes."""

import pytest
import torch
from conftest import contenders, precision_of
from fastgemm.bench import Gemm

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.int32]
SHAPES = {"square": (256, 256, 256), "odd": (127, 255, 301), "row": (1, 512, 512), "long_k": (16, 16, 8192)}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("device", "kernel", "dtype"), contenders("gemm", DTYPES))
def bench_gemm(measure, device, kernel, dtype, shape):
    precision = precision_of(device, kernel, dtype)
    measure(Gemm(*SHAPES[shape], dtype, precision=precision), device, kernel)
