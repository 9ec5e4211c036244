"""Tests layers that round their inputs to 8 bits: ``activations=`` of nn.quantize, quantize_weight and
QuantizedWeight."""

import copy
import io
import math
import pickle

import fastgemm
import pytest
import torch
from fastgemm.quantized import QuantizedWeight
from reference import every_device
from torch import nn
from torch.nn import functional

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
RECIPES = {"tensor": "row", "row": "row", "1x128": "128x128"}  # of inputs, and of the weight by default
GRANULARITIES = {"tensor": "tensor", "channel": "row", "128x128": "128x128"}
every_recipe = pytest.mark.parametrize("recipe", RECIPES)


def mlp(dtype=F32):
    return nn.Sequential(
        nn.Linear(200, 150, dtype=dtype), nn.GELU(), nn.Linear(150, 40, bias=False, dtype=dtype)
    )


def product(x, q, recipe, of_weight, **options):
    """What a layer shall compute."""
    a, scale_a = fastgemm.quantize_fp8(x, recipe)
    names = {"recipe_a": recipe, "recipe_b": of_weight, "out_dtype": x.dtype}
    return fastgemm.scaled_mm(a, q.codes.mT, scale_a, q.scales.mT, **{**names, **options})


@every_device
@every_recipe
@pytest.mark.parametrize("dtype", (BF16, F16, F32), ids=str)
def test_a_layer_is_quantize_fp8_and_scaled_mm(recipe, dtype, device):
    model, x = mlp(dtype), torch.randn(7, 200, dtype=dtype)
    before = copy.deepcopy(model)
    report = fastgemm.nn.quantize(model, "fp8", activations=recipe)
    with torch.inference_mode():
        for i in (0, 2):
            weight, exact = model[i].weight, before[i].weight
            assert isinstance(weight, QuantizedWeight) and weight.activations == recipe
            x = torch.randn(7, exact.shape[1], dtype=dtype)
            expected = product(x, weight, recipe, RECIPES[recipe], bias=before[i].bias)
            assert torch.equal(model[i](x), expected) and expected.dtype == dtype
            assert 1e-2 < (expected - before[i](x)).norm() / before[i](x).norm() < 6e-2
        x = torch.randn(2, 3, 200, dtype=dtype)
        assert recipe == "tensor" or (model(x)[1] - model(x[1])).norm() <= 0.02 * model(x[1]).norm()
        assert model(x[0, 0]).shape == (40,)
    for layer in report:
        assert layer.activations == recipe and layer.error < layer.product_error < 0.06
    assert f"fp8 by {recipe}" in str(report) and "of products" in str(report)


@every_device
@pytest.mark.parametrize("granularity", GRANULARITIES)
@every_recipe
def test_every_name_and_granularity(recipe, granularity, device):
    w, x = torch.randn(150, 200), torch.randn(4, 200)
    q = fastgemm.quantize_weight(w, "fp8", granularity=granularity, activations=recipe)
    assert q.granularity == granularity and f"activations='{recipe}'" in repr(q)
    expected = product(x, q, recipe, GRANULARITIES[granularity])
    for call in (fastgemm.linear, functional.linear, lambda x, q: x @ q.mT, fastgemm.nn.linear):
        assert torch.equal(call(x, q), expected)
    bias, residual = torch.randn(150), torch.randn(4, 150)
    for options in (
        {"bias": bias, "activation": "silu", "residual": residual},
        {"bias": bias.to(BF16), "out_dtype": F32},
        {"residual": residual.to(F16), "out_dtype": F16, "level": 3},
    ):
        got = fastgemm.linear(x, q, **options)
        assert torch.equal(got, product(x, q, recipe, GRANULARITIES[granularity], **options))
    order = torch.randperm(200)
    other = QuantizedWeight(
        q.codes, q.scales, format="fp8", block_size=q.block_size, order=order, activations=recipe
    )
    assert torch.equal(fastgemm.linear(x, other), fastgemm.linear(x[:, order], q))


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_codes_are_those_of_quantize_fp8(granularity):
    w = torch.randn(150, 200)
    q = fastgemm.quantize_weight(w, "fp8", granularity=granularity, activations="row")
    codes, scales = fastgemm.quantize_fp8(w, GRANULARITIES[granularity])
    assert torch.equal(q.codes.float(), codes.float()) and torch.equal(
        q.scales, scales.reshape(q.scales.shape)
    )


def test_a_weight_in_a_few_blocks():
    """Blocks of 128 x 128 whose scales look like those of rows, or of the whole."""
    for n, k in ((300, 100), (60, 100), (60, 300)):
        w, x = torch.randn(n, k), torch.randn(3, k)
        q = fastgemm.quantize_weight(w, "fp8", activations="1x128")
        torch.testing.assert_close(fastgemm.linear(x, q), product(x, q, "1x128", "128x128"))


@every_recipe
@pytest.mark.parametrize("shape", ((0, 5, 8), (3, 0, 8), (3, 5, 0)))
def test_empty(shape, recipe):
    m, n, k = shape
    q, bias = fastgemm.quantize_weight(torch.randn(n, k), "fp8", activations=recipe), torch.randn(n)
    result = fastgemm.linear(torch.randn(m, k), q, bias)
    assert result.shape == (m, n) and (k or torch.equal(result, bias.expand(m, n)))


@every_recipe
def test_a_nan_of_the_input_reaches_its_rows(recipe):
    q, x = fastgemm.quantize_weight(torch.randn(5, 200), "fp8", activations=recipe), torch.randn(4, 200)
    x[1, 3] = math.nan
    rows = fastgemm.linear(x, q).isnan().all(1).tolist()
    assert rows == [recipe == "tensor", True, *[recipe == "tensor"] * 2]


@every_device
@every_recipe
def test_copies_files_and_devices(recipe, device):
    model, x = mlp(BF16), torch.randn(3, 200, dtype=BF16)
    fastgemm.nn.quantize(model, "fp8", activations=recipe)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    alike, plain, otherwise = (mlp(BF16) for _ in range(3))
    fastgemm.nn.quantize(alike, "fp8", activations=recipe)
    alike.load_state_dict(state)
    fastgemm.nn.quantize(otherwise, "fp8", granularity=model[0].weight.granularity)
    with pytest.raises(RuntimeError, match="cannot be copied into"):
        otherwise.load_state_dict(state)
    plain.requires_grad_(False).load_state_dict(state, assign=True)
    others = (
        alike,
        plain,
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        model.to("cpu").to(device),
    )
    with torch.no_grad():
        expected = model(x)
        for other in others:
            assert other[0].weight.activations == recipe and not other[0].weight._packing.units
            assert torch.equal(other(x), expected)
    q = model[0].weight
    assert torch.equal(q.cpu().dequantize(), q.dequantize().cpu())
    assert torch.empty_like(q).activations == recipe and q.to(F32).dtype == F32


@every_device
@pytest.mark.parametrize("dynamic", (False, True))
@every_recipe
def test_compile_and_export(recipe, dynamic, device):
    model, x = mlp(BF16), torch.randn(6, 200, dtype=BF16)
    fastgemm.nn.quantize(model, "fp8", activations=recipe)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    with torch.no_grad():
        for rows in (6, 3):
            assert torch.equal(compiled(x[:rows].contiguous()), model(x[:rows]))
        if not dynamic:
            assert torch.equal(torch.export.export(model, (x,)).module()(x), model(x))


def test_compiled_by_inductor():
    model, x = mlp(BF16), torch.randn(6, 200, dtype=BF16)
    fastgemm.nn.quantize(model, "fp8", activations="row")
    torch._dynamo.reset()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, fullgraph=True)(x), model(x), rtol=0.05, atol=0.02)


@every_device
def test_autocast(device):
    model, x = mlp(), torch.randn(3, 200)
    fastgemm.nn.quantize(model, "fp8", activations="row")
    with torch.no_grad(), torch.autocast(device, BF16):
        got = model[0](x)
    bias = model[0].bias.detach().to(BF16)
    assert got.dtype == BF16 and torch.equal(got, fastgemm.linear(x.to(BF16), model[0].weight, bias))


def test_invariant():
    q, x = fastgemm.quantize_weight(torch.randn(40, 200), "fp8", activations="row"), torch.randn(9, 200)
    whole = fastgemm.linear(x, q, invariant=True)
    for rows in (slice(0, 1), slice(3, 8)):
        assert torch.equal(fastgemm.linear(x[rows], q, invariant=True), whole[rows])
    q = fastgemm.quantize_weight(torch.randn(40, 200), "fp8", activations="tensor")
    for choice in ({"invariant": True}, {"kernel": "invariant"}):
        with pytest.raises(ValueError, match=r"fastgemm\.linear: activations='tensor' has one scale"):
            fastgemm.linear(x, q, **choice)


def test_a_gradient_is_refused():
    model, x = mlp(), torch.randn(3, 200)
    fastgemm.nn.quantize(model, "fp8", activations="row")
    for given in (x, x.clone().requires_grad_()):  # that of the bias; that of x
        with pytest.raises(RuntimeError, match="rounds its inputs, and has no gradient; call it under"):
            model(given)
        model[0].bias.requires_grad_(False)
    assert not model(x).requires_grad
    with pytest.raises(RuntimeError, match="rounds its inputs, and has no gradient; call it under"):
        torch.func.jvp(model, (x,), (x,))


WRONG = [
    ({"format": "int8", "activations": "row"}, r"format 'fp8', got 'int8'"),
    ({"format": "int4", "activations": "row"}, r"format 'fp8', got 'int4'"),
    ({"activations": "1x32"}, r"unknown activations '1x32'; accepted: 'tensor', 'row', '1x128' or None"),
    ({"activations": True}, r"unknown activations True"),
    ({"activations": "row", "granularity": "group"}, r"got bf16 scales of blocks of 1x128"),
    ({"activations": "1x128", "group_size": 32}, r"got bf16 scales of blocks of 1x32"),
]


@pytest.mark.parametrize("options, message", WRONG)
def test_what_is_refused_changes_nothing(options, message):
    model = mlp()
    with pytest.raises(ValueError, match=message):
        fastgemm.nn.quantize(model, **{"format": "fp8", **options})
    assert not any(isinstance(p, QuantizedWeight) for p in model.parameters())


def test_a_global_scale_is_refused():
    q = fastgemm.quantize_weight(torch.randn(4, 8), "fp8")
    facts = {"format": "fp8", "block_size": (1, 8), "global_scale": torch.ones(1), "activations": "row"}
    with pytest.raises(
        ValueError, match="no global scale; got f32 scales of blocks of 1x8, and a global scale"
    ):
        QuantizedWeight(q.codes, q.scales, **facts)


def test_reports_without_data():
    with torch.device("meta"):
        report = fastgemm.nn.quantize(mlp(), "fp8", activations="row")
    assert all(math.isnan(layer.product_error) for layer in report)
    report = fastgemm.nn.quantize(mlp(), "fp8")
    assert all(layer.product_error is None for layer in report) and "of products" not in str(report)
