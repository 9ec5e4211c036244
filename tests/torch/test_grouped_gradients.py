"""Tests grouped products under autograd, torch.func, torch.compile, export and autocast."""

import fastgemm
import pytest
import torch
from reference import every_device
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.utils.flop_counter import FlopCounterMode

pytestmark = every_device

SHAPES = {  # of a, b, and what the groups divide
    "rows": ((7, 3), (4, 3, 2), [2, 2, 5, 6]),
    "columns": ((4, 2, 3), (3, 7), [0, 2, 2, 6]),
    "k": ((2, 7), (7, 3), [2, 2, 6, 7]),
    "batch": ((4, 2, 3), (4, 3, 2), None),
}


def operands(kind, dtype=torch.float64, grad=True):
    shape_a, shape_b, ends = SHAPES[kind]
    a, b = torch.randn(shape_a, dtype=dtype), torch.randn(shape_b, dtype=dtype)
    offs = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    return a.requires_grad_(grad), b.requires_grad_(grad), offs


def biases(kind, dtype=torch.float64):
    n = SHAPES[kind][1][-1]
    for shape in ((n,),) if kind == "columns" else ((n,), (4, n)):
        yield torch.randn(shape, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("kind", SHAPES)
def test_gradients(kind):
    a, b, offs = operands(kind)
    for bias in (None, *biases(kind)):
        for activation in (None, "relu", "silu") + (() if kind in ("columns", "k") else ("swiglu",)):

            def product(a, b, bias, activation=activation):
                return fastgemm.grouped_mm(a, b, offs, bias=bias, activation=activation)

            gradcheck(product, (a, b, bias), fast_mode=activation is not None)
            if activation in (None, "silu"):
                gradgradcheck(product, (a, b, bias), fast_mode=True)


@pytest.mark.parametrize("kind", ("rows", "k", "batch"))
def test_complex_gradients(kind, device):
    if device == "cuda":
        pytest.skip("complex groups are multiplied on a CPU")
    a, b, offs = operands(kind, torch.complex128)
    gradcheck(lambda a, b: fastgemm.grouped_mm(a, b, offs), (a, b))


@pytest.mark.parametrize("kind", SHAPES)
def test_forward_mode(kind):
    a, b, offs = operands(kind, grad=False)
    for bias in (None, *biases(kind)):

        def product(*given, bias=bias):
            return fastgemm.grouped_mm(*given[:2], offs, bias=given[2] if bias is not None else None)

        tensors = (a, b) if bias is None else (a, b, bias.detach())
        tangents = tuple(torch.randn_like(x) for x in tensors)
        with forward_ad.dual_level():
            pairs = [forward_ad.make_dual(x, t) for x, t in zip(tensors, tangents, strict=True)]
            tangent = forward_ad.unpack_dual(product(*pairs)).tangent
        step = 1e-6
        moved = [[x + s * step * t for x, t in zip(tensors, tangents, strict=True)] for s in (1, -1)]
        wanted = (product(*moved[0]) - product(*moved[1])) / (2 * step)
        torch.testing.assert_close(tangent, wanted, rtol=1e-6, atol=1e-8)


def test_gathered_rows_have_gradients():
    a, b, offs = operands("rows")
    rows = torch.tensor([6, 0, 0, 3, 3, 1])
    gradcheck(lambda a, b: fastgemm.grouped_mm(a, b, offs, rows=rows), (a, b))


def test_wide_results_have_narrow_gradients():
    a, b, offs = operands("rows", torch.bfloat16)
    result = fastgemm.grouped_mm(a, b, offs, out_dtype=torch.float32)
    result.backward(torch.full_like(result, 1e30))
    assert result.dtype == torch.float32 and a.grad.dtype == b.grad.dtype == torch.bfloat16
    assert a.grad.isfinite().all() and b.grad.isfinite().all()


@pytest.mark.parametrize("kind", SHAPES)
def test_functions_of_torch_func(kind):
    a, b, offs = operands(kind, grad=False)

    def loss(a, b):
        return fastgemm.grouped_mm(a, b, offs, activation="silu").square().sum()

    got = torch.func.grad(loss, (0, 1))(a, b)
    a.requires_grad_(), b.requires_grad_()
    wanted = torch.autograd.grad(loss(a, b), (a, b))
    for x, y in zip(got, wanted, strict=True):
        torch.testing.assert_close(x, y)


@pytest.mark.parametrize("kind", SHAPES)
def test_vmap(kind):
    a, b, offs = operands(kind, grad=False)
    more_a, more_b = (torch.stack([x, 2 * x, x.cos()]) for x in (a, b))
    ends = None if offs is None else offs.expand(3, -1)
    for bias in biases(kind):
        biases_of = torch.stack([bias, -bias, bias], -1)
        for given, dims in (
            ((more_a, b, offs, bias), (0, None, None, None)),
            ((a, more_b.movedim(0, 1), offs, bias), (None, 1, None, None)),
            ((more_a, more_b, ends, biases_of), (0, 0, None if ends is None else 0, -1)),
        ):
            got = torch.func.vmap(lambda a, b, offs, bias: fastgemm.grouped_mm(a, b, offs, bias=bias), dims)(
                *given
            )
            for i in range(3):
                one = (
                    x if d is None or x is None else x.select(d, i) for x, d in zip(given, dims, strict=True)
                )
                a_i, b_i, offs_i, bias_i = one
                torch.testing.assert_close(got[i], fastgemm.grouped_mm(a_i, b_i, offs_i, bias=bias_i))


@pytest.mark.parametrize("kind", SHAPES)
def test_compiled(kind):
    a, b, offs = operands(kind, torch.float32)

    def loss(a, b, offs):
        return fastgemm.grouped_mm(a, b, offs, activation="gelu", level=5).sin().sum()

    wanted = torch.autograd.grad(loss(a, b, offs), (a, b))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    got = torch.autograd.grad(compiled(a, b, offs), (a, b))
    for x, y in zip(got, wanted, strict=True):
        torch.testing.assert_close(x, y)


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 3, 2))

    def forward(self, x, offs):
        return fastgemm.grouped_mm(x, self.weight, offs, activation="swiglu")


def test_exported():
    experts, x = Experts(), torch.randn(7, 3)
    offs = torch.tensor([2, 2, 5, 6], dtype=torch.int32)
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(experts, (x, offs), dynamic_shapes=({0: rows}, None))
    assert "fastgemm.grouped_mm" in str(program.graph)
    more = torch.randn(30, 3)
    torch.testing.assert_close(program.module()(more, offs), experts(more, offs))


def test_autocast(device):
    a, b, offs = operands("rows", torch.float32)
    with torch.autocast(device, torch.bfloat16):
        result = fastgemm.grouped_mm(a, b, offs, bias=torch.randn(2))
    assert result.dtype == torch.bfloat16
    result.sum().backward()
    assert a.grad.dtype == b.grad.dtype == torch.float32
    with torch.autocast(device, torch.bfloat16), torch.no_grad():
        assert fastgemm.grouped_mm(a, b, offs, activation="relu").dtype == torch.bfloat16


@pytest.mark.parametrize("kind", SHAPES)
def test_meta_and_counted_operations(kind):
    a, b, offs = operands(kind, grad=False)
    with FlopCounterMode(display=False) as counter:
        result = fastgemm.grouped_mm(a, b, offs)
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    assert counter.get_total_flops() == 2 * m * n * k * (4 if kind == "batch" else 1)
    meta = fastgemm.grouped_mm(a.to("meta"), b.to("meta"), None if offs is None else offs.to("meta"))
    assert meta.shape == result.shape and meta.dtype == result.dtype
    with pytest.raises(ValueError, match="offs"):
        fastgemm.grouped_mm(a.to("meta"), b.to("meta"), torch.ones(4, device="meta"))
