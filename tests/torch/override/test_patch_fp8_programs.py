"""Tests fastgemm.patch with programs in fp8: torchao's recipes, and layers that call torch as vLLM's do."""

import fastgemm
import pytest
import torch
from patches import needs_library
from reference import every_device
from test_patch_scaled import BF16, E4M3, F32, LEVEL, a_gpu_has_fp8, needs_rows  # noqa: F401
from torch import nn
from torch.nn import functional

pytestmark = [every_device, needs_library]
HIDDEN, INNER = 256, 384
# The next layer may round a number of bfloat16 that differs by one bit to another code, which differs by up to an
# eighth. Few numbers do, unless they share a scale, which may differ, too.
NEAR, NEAR_WITH_ONE_SCALE = 1e-2, 0.15


def layers():
    return nn.Sequential(nn.Linear(HIDDEN, INNER), nn.GELU(), nn.Linear(INNER, HIDDEN, bias=False)).to(BF16)


def assert_near(got, torchs, near=NEAR):
    for own, wanted in zip(got, torchs, strict=True):
        assert own.dtype == wanted.dtype and own.shape == wanted.shape and own.stride() == wanted.stride()
        assert (own - wanted).double().norm() <= near * wanted.double().norm()


# torchao

STEPS = 3
TRAINED = {  # products of a step
    "tensorwise": {"_scaled_mm": 6},
    "rowwise": {"_scaled_mm": 6},
    "rowwise_with_gw_hp": {"_scaled_mm": 4, "mm": 2},
}


def trained(model, run, start, x):
    """The losses, and the gradients of the last step."""
    model.load_state_dict(start)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=1.0), []
    x = x.clone().requires_grad_()
    for _ in range(STEPS):
        optimizer.zero_grad()
        x.grad = None
        losses.append(run(x).square().mean())
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0]
    return [*losses, x.grad, *(parameter.grad for parameter in model.parameters())]


@pytest.mark.parametrize(
    "recipe,compiles", [*((recipe, False) for recipe in TRAINED), ("rowwise_with_gw_hp", True)]
)
def test_training_by_torchao(recipe, compiles, device):
    needs_rows(device)
    float8 = pytest.importorskip("torchao.float8")
    config = float8.Float8LinearConfig.from_recipe_name(recipe)
    model = float8.convert_to_float8_training(layers(), config=config)
    x = torch.randn(2, 24, HIDDEN, dtype=BF16)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    torch._dynamo.reset()
    run = torch.compile(model) if compiles else model
    torchs = trained(model, run, start, x)
    with fastgemm.patch(level=LEVEL) as routed:
        got = trained(model, run, start, x)
    assert routed.ops == {op: STEPS * number for op, number in TRAINED[recipe].items()}
    assert not routed.passed_on
    assert_near(got, torchs, NEAR_WITH_ONE_SCALE if recipe == "tensorwise" else NEAR)


@pytest.mark.parametrize("granularity", ("PerTensor", "PerRow"))
@pytest.mark.parametrize("rows", (1, 40))
def test_inference_by_torchao(granularity, rows, device, monkeypatch):
    needs_rows(device)
    quantization = pytest.importorskip("torchao.quantization")
    if device == "cpu":  # torchao asks for a GPU, but calls torch in the same way without one
        monkeypatch.setattr(quantization.quant_api, "_check_hardware_support", lambda granularities: None)
    settings = {"granularity": getattr(quantization, granularity)(), "set_inductor_config": False}
    config = quantization.Float8DynamicActivationFloat8WeightConfig(**settings)
    model, x = layers(), torch.randn(rows, HIDDEN, dtype=BF16)
    quantization.quantize_(model, config)
    with torch.no_grad():
        torchs = model(x)
        with fastgemm.patch(level=LEVEL) as routed:
            got = model(x)
    assert routed.ops == {"_scaled_mm": 2} and not routed.passed_on
    assert_near([got], [torchs], NEAR_WITH_ONE_SCALE if granularity == "PerTensor" else NEAR)


# Layers as those of vLLM, which call torch for codes of (tokens, hidden) by a transposed view of (outputs, hidden)


def in_codes(x, rows, columns):
    """The codes of a matrix, and the scales of its blocks."""
    lines, k = x.shape
    blocks = x.float().reshape(lines // rows, rows, k // columns, columns)
    scales = blocks.abs().amax((1, 3), keepdim=True) / 448
    return (blocks / scales).to(E4M3).view(lines, k), scales.view(lines // rows, k // columns)


def per_tensor(x, w, bias):
    (a, scale_a), (b, scale_b) = in_codes(x, *x.shape), in_codes(w, *w.shape)
    return torch._scaled_mm(
        a, b.t(), out_dtype=BF16, scale_a=scale_a.view(1), scale_b=scale_b.view(1), bias=bias
    )


def padded(x, w, bias):
    """Without torch.compile, vLLM gives torch 17 rows at least."""
    return per_tensor(functional.pad(x, (0, 0, 0, 17 - len(x))), w, bias).narrow(0, 0, len(x))


def per_token_and_channel(x, w, bias):
    """On a CPU and on NVIDIA's GPUs, scales follow the product."""
    (a, scale_a), (b, scale_b) = in_codes(x, 1, HIDDEN), in_codes(w, 1, HIDDEN)
    one = torch.ones(1)
    sums = torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=F32)
    return (sums * scale_a * scale_b.t() + bias).to(BF16)


def per_row(x, w, bias):
    (a, scale_a), (b, scale_b) = in_codes(x, 1, HIDDEN), in_codes(w, 1, HIDDEN)
    return torch._scaled_mm(a, b.t(), out_dtype=BF16, scale_a=scale_a, scale_b=scale_b.t(), bias=bias)


def in_blocks(x, w, bias):
    (a, scale_a), (b, scale_b) = in_codes(x, 1, 128), in_codes(w, 128, 128)
    scale_a = scale_a.t().contiguous().t()
    return torch._scaled_mm(a, b.t(), scale_a=scale_a, scale_b=scale_b.t(), out_dtype=BF16) + bias


@pytest.mark.parametrize("layer", (per_tensor, padded, per_token_and_channel, per_row, in_blocks))
def test_layers_of_vllm(layer, device):
    x, w, bias = (torch.randn(shape).to(BF16) for shape in ((5, HIDDEN), (INNER, HIDDEN), (INNER,)))
    if layer is per_row:
        needs_rows(device)
    extends = layer is in_blocks  # torch has no kernel for blocks on a CPU, and on a GPU none for these sizes
    if extends and device == "cpu":
        with fastgemm.patch() as routed, pytest.raises((RuntimeError, ValueError)):
            layer(x, w, bias)
        assert routed.passed_on.total() == 1
    with fastgemm.patch(**({"extend": True} if extends else {"level": LEVEL})) as routed:
        got = layer(x, w, bias)
    assert routed.ops == {"_scaled_mm": 1} and not routed.passed_on
    exact = functional.linear(x.double(), w.double(), bias.double())
    assert (got.double() - exact).norm() <= 0.05 * exact.norm()  # what rounding to 8 bits costs
    if not extends:
        assert_near([got], [layer(x, w, bias)])
