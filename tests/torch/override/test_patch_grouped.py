"""Tests fastgemm.patch with torch's grouped products, and what ``extend=True`` adds."""

import fastgemm
import pytest
import torch
from patches import needs_library
from reference import every_device
from torch.nn import functional

pytestmark = [
    every_device,
    needs_library,
    pytest.mark.skipif(not hasattr(functional, "grouped_mm"), reason="this torch has no grouped_mm"),
]

KINDS = {  # shapes of a and b, and the ends of the groups
    "rows": ((24, 16), (3, 16, 32), [5, 5, 24]),
    "columns": ((3, 8, 16), (16, 32), [8, 8, 32]),
    "k": ((8, 32), (32, 16), [8, 8, 32]),
    "batch": ((3, 8, 16), (3, 16, 32), None),
}


def operands(kind, dtype=torch.bfloat16):
    shape_a, shape_b, ends = KINDS[kind]
    offs = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    return torch.randn(shape_a).to(dtype), torch.randn(shape_b).to(dtype), offs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float32), ids=str)
def test_routed_with_gradients(kind, dtype):
    a, b, offs = operands(kind, dtype)
    a.requires_grad_(), b.requires_grad_()

    def run():
        result = functional.grouped_mm(a, b, offs=offs)
        return result, *torch.autograd.grad(result.square().sum(), (a, b))

    wanted = run()
    with fastgemm.patch() as routed:
        got = run()
    assert routed.ops == {"_grouped_mm": 3} and not routed.passed_on
    for x, y in zip(got, wanted, strict=True):
        torch.testing.assert_close(x, y, rtol=0.02, atol=0.1)
        assert x.dtype == y.dtype and x.stride() == y.stride()


def test_a_level_of_a_patch():
    a, b, offs = operands("rows", torch.float32)
    with fastgemm.patch(level=2) as routed:
        result = functional.grouped_mm(a, b, offs=offs)
    assert torch.equal(result, fastgemm.grouped_mm(a, b, offs, level=2))
    assert routed.total == 1


def test_rows_of_the_result_are_aligned():
    """The stride of rows is torch's, where the bytes of a row are no multiple of 16."""
    a, b, offs = operands("rows")
    b = b.mT.contiguous().mT[:, :, :27]
    wanted = functional.grouped_mm(a, b, offs=offs)
    with fastgemm.patch() as routed:
        got = functional.grouped_mm(a, b, offs=offs)
    assert got.stride() == wanted.stride() and routed.total == 1
    torch.testing.assert_close(got, wanted, rtol=0.02, atol=0.1)


def refused():
    """(a, b, offs, keywords, reason) of calls that torch refuses."""
    a, b, offs = operands("rows", torch.float32)
    yield a.double(), b.double(), offs, {}, "dtype float64"
    yield a, b, offs, {"bias": torch.randn(32)}, "a bias of groups"
    yield a.bfloat16(), b.bfloat16(), offs, {"out_dtype": torch.float32}, "another out_dtype of groups"
    yield a, b[:, :, :27].contiguous(), offs, {}, "groups that are not aligned to 16 bytes"


@pytest.mark.parametrize("index", range(len(list(refused()))) if hasattr(functional, "grouped_mm") else ())
def test_what_torch_refuses(index):
    """It raises torch's error, unless ``extend=True`` asks for it."""
    a, b, offs, keywords, reason = list(refused())[index]
    with fastgemm.patch() as routed, pytest.raises(RuntimeError):
        functional.grouped_mm(a, b, offs=offs, **keywords)
    assert routed.passed_on == {("_grouped_mm", reason): 1}
    with fastgemm.patch(extend=True) as routed:
        got = functional.grouped_mm(a, b, offs=offs, **keywords)
    assert routed.ops == {"_grouped_mm": 1}
    torch.testing.assert_close(got, fastgemm.grouped_mm(a, b, offs, **keywords))
    with pytest.raises(RuntimeError):
        functional.grouped_mm(a, b, offs=offs, **keywords)


def test_a_gradient_that_torch_refuses():
    """The gradient of a sum is one expanded number, which has no unit stride."""
    a, b, offs = operands("rows", torch.float32)
    b.requires_grad_()
    result = functional.grouped_mm(a, b, offs=offs)
    with fastgemm.patch() as routed, pytest.raises(RuntimeError):
        result.sum().backward(retain_graph=True)
    assert routed.passed_on == {("_grouped_mm", "groups that are not aligned to 16 bytes"): 1}
    with fastgemm.patch(extend=True):
        result.sum().backward()
    torch.testing.assert_close(b.grad, fastgemm.grouped_mm(a.T, torch.ones_like(result), offs))


def test_the_gradient_of_a_wide_result():
    """torch's formula multiplies the float32 gradient by an operand of 16 bits."""
    a, b, offs = operands("rows")
    a.requires_grad_(), b.requires_grad_()
    with fastgemm.patch(extend=True) as routed:
        result = functional.grouped_mm(a, b, offs=offs, out_dtype=torch.float32)
        got = torch.autograd.grad(result.sin().sum(), (a, b))
    assert routed.ops == {"_grouped_mm": 3}
    ours = fastgemm.grouped_mm(a, b, offs, out_dtype=torch.float32)
    torch.testing.assert_close(got, torch.autograd.grad(ours.sin().sum(), (a, b)))


def test_wrong_calls_raise_torchs_errors():
    a, b, offs = operands("rows")
    for given, keywords in (((a, b), {"offs": offs.long()}), ((a, b), {"offs": offs[:2]}), ((a, b), {})):
        with fastgemm.patch() as routed, pytest.raises(RuntimeError):
            functional.grouped_mm(*given, **keywords)
        assert not routed.total and routed.passed_on.total() == 1


def test_other_products_are_extended(device):
    """torch multiplies no complex32."""
    a, b = (torch.randn(4, 4, dtype=torch.complex64).to(torch.complex32) for _ in range(2))
    with pytest.raises(RuntimeError), fastgemm.patch() as routed:
        torch.mm(a, b)
    assert routed.passed_on == {("mm", "dtype complex32"): 1}
    fastgemm.enable(extend=True)
    try:
        got = torch.mm(a, b)
    finally:
        fastgemm.disable()
    assert got.dtype == torch.complex32
    assert torch.equal(torch.view_as_real(got), torch.view_as_real(fastgemm.matmul(a, b)))
    with pytest.raises(RuntimeError):
        torch.mm(a, b)
