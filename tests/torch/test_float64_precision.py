"""Tests float64's precisions: other types refuse them, and patches and layers apply them only to float64."""

import fastgemm
import pytest
import torch
from fastgemm.table import FLOAT64_PRECISIONS

TAKEN = (torch.float64, torch.complex128)
OTHERS = (torch.float32, torch.bfloat16, torch.complex64, torch.int64)


@pytest.mark.parametrize("precision", FLOAT64_PRECISIONS)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_it_is_of_float64(device, precision):
    for dtype in TAKEN:
        a = torch.ones(3, 4, dtype=dtype, device=device)
        assert fastgemm.matmul(a, a.mT, precision=precision).shape == (3, 3)
    for dtype in OTHERS:
        a = torch.ones(3, 4, dtype=dtype, device=device)
        with pytest.raises(ValueError, match=f"'{precision}' is for float64 operands only"):
            fastgemm.matmul(a, a.mT, precision=precision)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.float32, torch.bfloat16])
def test_patches_and_layers_apply_it_to_float64_alone(dtype):
    a = torch.randn(3, 4, dtype=dtype)
    with fastgemm.patch(precision="crt15") as routed:
        product = torch.mm(a, a.mT)
    assert routed.total == 1
    torch.testing.assert_close(product, a @ a.mT)
    layer = torch.nn.Linear(4, 5, dtype=dtype)
    converted = fastgemm.nn.convert(torch.nn.Sequential(layer), precision="crt15")
    torch.testing.assert_close(converted(a), torch.nn.functional.linear(a, layer.weight, layer.bias))


def test_an_unknown_one_is_named():
    with pytest.raises(ValueError, match="crt19"):
        fastgemm.patch(precision="crt19")
