"""Times transposed copies by every kernel of the table and by torch, for several element widths and shapes."""

import pytest
import torch
from conftest import contenders
from fastgemm.bench import Transpose

DTYPES = [torch.int8, torch.bfloat16, torch.float32, torch.float64, torch.complex128]
SHAPES = {"square": (1024, 1024), "odd": (1023, 1025), "tall": (65536, 16)}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("device", "kernel", "dtype"), contenders("transpose", DTYPES))
def bench_transpose(measure, device, kernel, dtype, shape):
    measure(Transpose(*SHAPES[shape], dtype), device, kernel)
