"""Tests transposes with results larger than the caches: only these use levels 5 and 6's non-temporal stores."""

import itertools
import random

import fastgemm
import pytest
import torch
from reference import name_of

# Twice the limit for such stores, which is 8 times the largest L2 cache to expect (csrc/cpu/transpose/table.cpp).
BYTES = 2 * 8 * (2 << 20)
DTYPES = (torch.int8, torch.int16, torch.int32, torch.int64)  # NaN never equals NaN
VIEWS = [  # a view of a matrix with one more column on either side
    lambda a: a[:, 1:-1],
    lambda a: a[1:, :-2].contiguous(),
    lambda a: a[:, :-2].contiguous().t(),
]


@pytest.mark.parametrize("kernel", ["streaming", "pipelined"])
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_long_transposes(dtype, kernel):
    """Transposes narrow matrices, whose rows end inside or at the end of a cache line, wide matrices, and
    views. Each of two types gets every second length."""
    views = itertools.cycle(VIEWS if kernel == "streaming" else reversed(VIEWS))
    lines = [1, 3, 64, 96, 191, 192, 513, 576, 577, 1000]  # bytes
    narrows = sorted({max(1, size // dtype.itemsize) for size in lines})
    # int8 and int16, and int32 and int64, share the lengths of each kernel.
    shift = (kernel == "streaming") ^ (dtype in (torch.int16, torch.int64))
    for narrow in narrows[shift::2]:
        rows = BYTES // 2 // (narrow * dtype.itemsize) + random.randrange(100)
        every = torch.randint(-128, 128, (rows * (narrow + 2) * dtype.itemsize,), dtype=torch.int8)
        a = every.view(dtype).view(rows, narrow + 2)
        x = next(views)(a)
        result = fastgemm.transpose(x, kernel=kernel)
        assert result.is_contiguous()
        assert torch.equal(result, x.t()), (tuple(x.shape), x.stride())
