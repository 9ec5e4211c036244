"""Tests results of 8 bits of linear and scaled_mm, and the pass that computes swiglu before it makes codes."""

import fastgemm
import pytest
import torch
from fastgemm._ops.linear import ACTIVATIONS
from reference import every_device, needs_simulator, simulated_launches
from scaled import BF16, E4M3, E5M2, F16, F32, dequantized, operand
from torch.library import opcheck
from torch.nn import functional

DIGIT = {E4M3: 2.0**-4, E5M2: 2.0**-3}  # the largest rounding of a code, relative to it
OF_ACTIVATIONS = 2e-6  # errors of their small values
SMALLEST = {E4M3: 2.0**-10, E5M2: 2.0**-17}  # and of a subnormal one


def exact(x, activation, residual):
    """In float64."""
    if activation == "swiglu":
        gate, up = x.double().chunk(2, -1)
        y = functional.silu(gate) * up
    else:
        y = x.double() if activation is None else ACTIVATIONS[activation](x.double())
    return y if residual is None else y + residual.double()


def assert_codes(codes, scales, wanted, recipe):
    """The scales of ``wanted``, and its nearest codes. ``wanted`` may err by a few units of float32."""
    codes, scales, wanted = codes.cpu(), scales.cpu(), wanted.cpu()
    code = codes.dtype
    _, of_wanted = fastgemm.quantize_fp8(wanted.float(), recipe, dtype=code)
    torch.testing.assert_close(scales, of_wanted, rtol=1e-5, atol=OF_ACTIVATIONS / 448, equal_nan=True)
    spread = dequantized(torch.ones(codes.shape, device="cpu"), scales, recipe)
    error = (dequantized(codes, scales, recipe) - wanted).abs()
    bound = 1.0001 * torch.maximum(DIGIT[code] * wanted.abs(), SMALLEST[code] * spread) + OF_ACTIVATIONS
    known = wanted.isfinite() & spread.isfinite()
    assert (error <= bound)[known].all()


def activated(rows, columns, activation, dtype, device, with_residual):
    x = 2 * torch.randn(rows, 2 * columns if activation == "swiglu" else columns)
    x[0] *= 30
    residual = torch.randn(rows, columns) if with_residual else None
    return x.to(dtype).to(device), None if residual is None else residual.to(dtype).to(device)


def pass_of(x, activation, residual, recipe, code=E4M3):
    return torch.ops.fastgemm.quantize_fp8(
        x,
        block_rows=1,
        block_cols=128 if recipe == "1x128" else 0,
        dtype=code,
        activation=activation,
        residual=residual,
    )


@every_device
@pytest.mark.parametrize("activation", ["swiglu", *ACTIVATIONS, None])
@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
def test_pass(dtype, activation, device):
    sizes = [(3, 128), (5, 40), (2, 261), (3, 1024), (1, 4), (2, 9000), (2, 18000)]
    for i, (rows, columns) in enumerate(sizes):
        x, residual = activated(rows, columns, activation, dtype, device, activation is None or i % 2)
        for recipe, code in (("row", E4M3), ("1x128", E5M2), ("1x128", E4M3)):
            codes, scales = pass_of(x, activation, residual, recipe, code)
            assert codes.shape == (rows, columns)
            assert_codes(codes, scales, exact(x, activation, residual), recipe)


@needs_simulator
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_pass_on_the_simulator(dtype):
    """Lines that fit into registers, longer lines, of which all but the last part is read twice, and unaligned
    lines."""
    for activation, (rows, columns), recipe, shift in (
        ("swiglu", (3, 384), "1x128", 0),
        ("swiglu", (2, 1032), "row", 0),
        ("swiglu", (1, 8200), "row", 0),
        ("swiglu", (1, 16400), "row", 0),
        ("swiglu", (3, 261), "1x128", 1),
        ("gelu", (2, 384), "1x128", 0),
        (None, (2, 264), "row", 0),
    ):
        x, residual = activated(rows, columns, activation, dtype, "cpu", columns != 8200)
        if shift:
            x = torch.cat([x, x[:, :shift]], 1)[:, :-shift]
        with simulated_launches():
            codes, scales = pass_of(x, activation, residual, recipe)
        assert_codes(codes, scales, exact(x, activation, residual), recipe)


@pytest.mark.parametrize("simulated", [False, pytest.param(True, marks=needs_simulator)])
def test_one_scale_and_special_numbers(simulated):
    x, residual = activated(6, 24, "swiglu", BF16, "cpu", True)
    scale = torch.tensor([[0.05]])
    x[1, 3], x[2, 24 + 5], residual[3, 7] = torch.nan, torch.inf, -torch.inf
    with simulated_launches() if simulated else torch.no_grad():
        given, _ = torch.ops.fastgemm.quantize_fp8(
            x, scale, block_rows=0, block_cols=0, activation="swiglu", residual=residual
        )
        _, scales = pass_of(x, "swiglu", residual, "row")
        found, of_all = torch.ops.fastgemm.quantize_fp8(
            x[4:], block_rows=0, block_cols=0, activation="swiglu", residual=residual[4:]
        )
    wanted = exact(x, "swiglu", residual)
    assert torch.equal(given.float().isnan(), ~wanted.isfinite())
    error = (given.double() * 0.05 - wanted.clamp(-448 * 0.05, 448 * 0.05)).abs()
    bound = 1.0001 * torch.maximum(DIGIT[E4M3] * wanted.abs(), torch.tensor(SMALLEST[E4M3] * 0.05))
    assert (error <= bound)[wanted.isfinite()].all()
    assert torch.equal(scales.isnan()[:, 0], ~wanted.isfinite().all(1))
    assert_codes(found, of_all.reshape(()), wanted[4:], "tensor")


@every_device
@pytest.mark.parametrize("activation", ["swiglu", "gelu", None])
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_linear(dtype, activation, device):
    def numbers(*shape):
        return torch.randn(shape, device=device).to(dtype)

    columns = 150
    x, w, b = numbers(2, 9, 64), numbers(2 * columns, 64), numbers(2 * columns)
    if activation != "swiglu":
        w, b = w[:columns], b[:columns]
    r = numbers(2, 9, columns)
    inner = fastgemm.linear(x, w, b)
    wanted = exact(inner, activation, r)
    if activation != "swiglu":
        wanted = fastgemm.linear(x, w, b, activation=activation, residual=r)
    for recipe, code in (("row", E4M3), ("1x128", E5M2)):
        codes, scales = fastgemm.linear(
            x, w, b, activation=activation, residual=r, out_dtype=code, out_scale=recipe
        )
        assert codes.shape == (2, 9, columns) and codes.dtype == code
        assert scales.shape == (2, 9, 2 if recipe == "1x128" else 1)
        assert_codes(codes, scales, wanted.double(), recipe)
    scale = wanted.abs().max().float() / 400
    codes = fastgemm.linear(x, w, b, activation=activation, residual=r, out_dtype=E4M3, out_scale=scale)
    error = (codes.double() * scale - wanted.double()).abs()
    assert (error <= 1.0001 * torch.maximum(DIGIT[E4M3] * wanted.abs(), scale * SMALLEST[E4M3])).all()
    vector, scales = fastgemm.linear(x[0, 0], w, b, activation=activation, out_dtype=E4M3, out_scale="row")
    assert vector.shape == (columns,) and scales.shape == (1,)
    empty, scales = fastgemm.linear(x[:, :0], w, b, activation=activation, out_dtype=E4M3, out_scale="row")
    assert empty.shape == (2, 0, columns) and scales.shape == (2, 0, 1)


@every_device
def test_linear_of_packed_weights_and_autocast(device):
    x, w = torch.randn(5, 64, device=device), torch.randn(32, 64, device=device)
    q = fastgemm.quantize_weight(w, "int8")
    codes, scales = fastgemm.linear(x, q, activation="swiglu", out_dtype=E4M3, out_scale="row")
    assert_codes(codes, scales, exact(fastgemm.linear(x, q), "swiglu", None), "row")
    with torch.autocast(device, BF16):
        codes, scales = fastgemm.linear(x, w, activation="swiglu", out_dtype=E4M3, out_scale="row")
        inner = fastgemm.linear(x, w)
        r = torch.randn(5, 16, device=device)  # takes the type of the result, as for other activations
        y = fastgemm.linear(x, w, activation="swiglu", residual=r)
        assert torch.equal(y, fastgemm.linear(x, w, activation="swiglu", residual=r.to(BF16)))
        added = fastgemm.linear(x, w, activation="swiglu", residual=r, out_dtype=E4M3, out_scale="row")
    assert inner.dtype == BF16
    assert_codes(codes, scales, exact(inner, "swiglu", None), "row")
    assert_codes(*added, exact(inner, "swiglu", r.to(BF16)), "row")


@every_device
def test_scaled_mm(device):
    (a, scale_a), (w, scale_b) = operand(10, 300, "row"), operand(140, 300, "row")
    given = [t.to(device) for t in (a, w.mT, scale_a / 64, scale_b.mT / 64)]
    r = torch.randn(10, 70, device=device)
    wide = fastgemm.scaled_mm(*given, out_dtype=F32)
    got = fastgemm.scaled_mm(*given, activation="swiglu", residual=r, out_dtype=F32)
    torch.testing.assert_close(got.double(), exact(wide, "swiglu", r), rtol=1e-4, atol=1e-4)
    assert fastgemm.scaled_mm(*given, activation="swiglu").shape == (10, 70)
    for recipe in ("row", "1x128"):
        codes, scales = fastgemm.scaled_mm(
            *given, activation="swiglu", residual=r, out_dtype=E4M3, out_scale=recipe
        )
        assert_codes(codes, scales, exact(wide, "swiglu", r), recipe)
        codes, scales = fastgemm.scaled_mm(*given, activation="silu", out_dtype=E4M3, out_scale=recipe)
        assert_codes(codes, scales, exact(wide, "silu", None), recipe)


def test_compile_and_opcheck():
    def feed_forward(x, w, r):
        return fastgemm.linear(x, w, activation="swiglu", residual=r, out_dtype=E4M3, out_scale="1x128")

    x, w, r = torch.randn(4, 32), torch.randn(24, 32), torch.randn(4, 12)
    torch._dynamo.reset()
    compiled = torch.compile(feed_forward, fullgraph=True)(x, w, r)
    for got, wanted in zip(compiled, feed_forward(x, w, r), strict=True):
        assert torch.equal(got.float(), wanted.float())
    for tensor in (x, r):  # the graph itself checks that their rows are as many
        torch._dynamo.decorators.mark_unbacked(tensor, 0)
    compiled = torch.compile(feed_forward, fullgraph=True, backend="aot_eager")(x, w, r)
    for got, wanted in zip(compiled, feed_forward(x, w, r), strict=True):
        assert torch.equal(got.float(), wanted.float())
    others = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    terms = {"activation": "swiglu", "residual": torch.randn(6, 70)}
    sizes = {"block_rows": 1, "block_cols": 32}
    opcheck(torch.ops.fastgemm.quantize_fp8.default, (torch.randn(6, 140),), sizes | terms, test_utils=others)


def test_forward_mode_is_refused():
    x, w = torch.randn(4, 20), torch.randn(12, 20)
    with pytest.raises(RuntimeError, match="a result of 8 bits has no gradient"):
        torch.func.jvp(lambda x: fastgemm.linear(x, w, out_dtype=E4M3, out_scale="row")[1], (x,), (x,))


WRONG = [
    ({"out_scale": None}, ValueError, "out_scale belongs to results of 8 bits"),
    ({"out_dtype": None}, ValueError, "out_scale belongs to results of 8 bits"),
    ({"out_scale": "tensor"}, ValueError, "out_scale must be one float32 number"),
    ({"out_scale": torch.ones(2)}, ValueError, "out_scale must be one float32 number"),
    ({"out_scale": ["row"]}, ValueError, "out_scale must be one float32 number"),
    ({"weight": torch.randn(13, 20)}, ValueError, "whose size 13 is odd"),
    ({"residual": torch.ones(4, 12)}, ValueError, "residual has shape"),
    ({"residual": torch.ones(4, 6, dtype=BF16)}, ValueError, "residual has shape"),
    ({"residual": 1.0}, TypeError, "residual"),
    ({"activation": "tanh"}, ValueError, "unknown activation 'tanh'"),
    ({"x": torch.randn(4, 20).double(), "weight": torch.randn(12, 20).double()}, ValueError, "float64"),
    ({"x": torch.randn(4, 20, requires_grad=True)}, RuntimeError, "has no gradient"),
    (
        {"x": torch.randn(4, 20).double(), "weight": torch.randn(12, 20).double(), "activation": None},
        ValueError,
        "float64",
    ),
]


@pytest.mark.parametrize("change, error, text", WRONG, ids=lambda x: x if isinstance(x, str) else None)
def test_errors(change, error, text):
    given = {"x": torch.randn(4, 20), "weight": torch.randn(12, 20), "activation": "swiglu"}
    given |= {"out_dtype": E4M3, "out_scale": "row"}
    with pytest.raises(error, match=text) as raised:
        fastgemm.linear(**(given | change))
    assert str(raised.value).startswith("fastgemm.linear")
