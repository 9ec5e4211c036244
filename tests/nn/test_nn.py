"""Tests fastgemm.nn.Linear as a replacement of torch.nn.Linear, and convert."""

import copy
import inspect
import re

import fastgemm
import pytest
import torch
from fastgemm import nn
from pairs import WRONG_INPUTS
from reference import assert_right, every_device, expected_gemm, name_of

pytestmark = every_device


def draw(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


def test_the_constructor_is_torchs(device):
    torchs = list(inspect.signature(torch.nn.Linear).parameters.values())
    own = list(inspect.signature(nn.Linear).parameters.values())
    assert [(p.name, p.default) for p in own[: len(torchs)]] == [(p.name, p.default) for p in torchs]
    assert all(p.kind is p.KEYWORD_ONLY for p in own[len(torchs) :])
    with pytest.raises(TypeError) as expected:
        torch.nn.Linear(3)
    with pytest.raises(TypeError, match=re.escape(str(expected.value))):
        nn.Linear(3)
    layer = nn.Linear(3, 2, False, "meta", torch.float64)
    assert layer.weight.is_meta
    assert layer.weight.dtype == torch.float64
    assert layer.bias is None
    assert layer(torch.empty(4, 3, device="meta", dtype=torch.float64)).shape == (4, 2)


def test_initialization_and_state_dict_are_torchs(device):
    seed = torch.seed()
    own = nn.Linear(7, 5, level=2)
    torch.manual_seed(seed)
    torchs = torch.nn.Linear(7, 5)
    assert torch.equal(own.weight, torchs.weight) and torch.equal(own.bias, torchs.bias)
    x = draw(3, 7)
    for source, target in ((torch.nn.Linear(7, 5), own), (own, torchs)):
        target.load_state_dict(source.state_dict())
        torch.testing.assert_close(target(x), source(x))


def test_repr(device):
    assert repr(nn.Linear(7, 5)) == repr(torch.nn.Linear(7, 5))
    text = repr(nn.Linear(7, 5, bias=False, level=3, precision="ieee"))
    assert text == "Linear(in_features=7, out_features=5, bias=False, level=3, precision='ieee')"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=name_of)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(70,), (1, 70), (33, 70), (2, 5, 70), (2, 3, 4, 70), (0, 70)])
def test_values(shape, bias, dtype, device):
    layer = nn.Linear(70, 11, bias, dtype=dtype)
    x = draw(*shape, dtype=dtype).to(device)
    out = layer(x)
    c = layer.bias.detach().broadcast_to(*shape[:-1], 11) if bias else None
    assert_right(out.detach(), expected_gemm(x, layer.weight.detach().t(), c))
    torchs = torch.nn.Linear.forward(layer, x)
    assert (out.dtype, out.shape, out.stride()) == (torchs.dtype, torchs.shape, torchs.stride())


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
def test_no_features_and_strided_input(device):
    layer = nn.Linear(0, 3)
    torch.nn.init.normal_(layer.bias)
    for shape in ((2, 0), (2, 3, 0), (0,)):
        assert torch.equal(layer(draw(*shape)), layer.bias.expand(*shape[:-1], 3))
    layer = nn.Linear(8, 5)
    x = draw(8, 6, 4).to(device).permute(2, 1, 0)[:, ::2]
    weight, c = layer.weight.detach().t(), layer.bias.detach().expand(4, 3, 5)
    assert_right(layer(x).detach(), expected_gemm(x, weight, c))


@pytest.mark.parametrize("level", [1, 5, 7])
def test_the_level_is_used_forward_and_backward(level, device):
    layer = nn.Linear(40, 30, level=level)
    x, grad = draw(3, 7, 40).to(device).requires_grad_(), draw(3, 7, 30).to(device)
    out = layer(x)
    out.backward(grad)
    x2, g2, w = x.detach().reshape(21, 40), grad.reshape(21, 30), layer.weight.detach()

    def product(*operands, **options):
        return fastgemm.gemm(*operands, level=level, **options)

    assert torch.equal(out.detach().reshape(21, 30), product(x2, w, layer.bias.detach(), trans_b=True))
    assert torch.equal(x.grad.reshape(21, 40), product(g2, w))
    assert torch.equal(layer.weight.grad, product(g2, x2, trans_a=True))
    assert_right(layer.bias.grad[None], expected_gemm(torch.ones(1, 21), g2))


def test_gradients_of_gradients(device):
    layer = nn.Linear(4, 3, dtype=torch.float64)
    x = draw(2, 5, 4, dtype=torch.float64).to(device).requires_grad_()

    def call(x, weight, bias):
        return torch.func.functional_call(layer, {"weight": weight, "bias": bias}, (x,))

    inputs = (x, *layer.parameters())
    assert torch.autograd.gradcheck(call, inputs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, inputs)


def test_autocast_of_several_types(device):
    """torch casts operands of float32 or 16 bits. It refuses to mix them with float64 or integers."""
    torchs = torch.nn.Linear(40, 30)
    for choice in ({}, {"precision": "ieee"}, {"precision": "bf16x6"}):
        own = nn.convert(copy.deepcopy(torchs), **choice)
        with torch.autocast(device, dtype=torch.bfloat16):
            for dtype in (torch.bfloat16, torch.float16):
                x = draw(2, 7, 40, dtype=dtype).to(device)
                expected, out = torchs(x), own(x)
                assert out.dtype == expected.dtype == torch.bfloat16
                torch.testing.assert_close(out, expected, rtol=0.03, atol=0.03)
            for x in (draw(7, 40, dtype=torch.float64).to(device), torch.ones(7, 40, dtype=torch.int64)):
                with pytest.raises(RuntimeError) as refused:
                    torchs(x)
                with pytest.raises(RuntimeError) as error:
                    own(x)
                assert str(error.value) == str(refused.value)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=name_of)
def test_a_precision_is_of_float32_products(dtype, device):
    layer = nn.Linear(40, 30, precision="bf16x6").to(dtype)
    x = draw(7, 40, dtype=dtype).to(device)
    c = layer.bias.detach().expand(7, 30)
    assert_right(layer(x).detach(), expected_gemm(x, layer.weight.detach().t(), c))


@pytest.mark.parametrize("needed", [(x, w, b) for x in (0, 1) for w in (0, 1) for b in (0, 1)], ids=str)
def test_what_is_kept_for_gradients_is_what_torch_keeps(needed, device):
    """For example, a frozen layer must not keep its input."""
    torchs = torch.nn.Linear(6, 4)
    x = draw(5, 6).to(device).requires_grad_(bool(needed[0]))
    torchs.weight.requires_grad_(bool(needed[1]))
    torchs.bias.requires_grad_(bool(needed[2]))
    kept: dict[torch.nn.Module, list[int]] = {}
    for layer in (torchs, nn.convert(copy.deepcopy(torchs))):
        sizes = kept.setdefault(layer, [])
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, n=sizes: n.append(t.numel()) or t, lambda t: t
        ):
            layer(x)
    expected, own = kept.values()
    assert sorted(own) == sorted(expected)


@pytest.mark.parametrize("strict", [True, False])
def test_compiled_and_exported_graphs_hold_our_op(strict, device):
    torch.compiler.reset()
    layer, x, seen = nn.Linear(8, 4, level=3), draw(2, 5, 8).to(device), []

    def backend(graph, inputs):
        seen.extend(graph.graph.nodes)
        return graph

    torch.compile(layer, backend=backend, fullgraph=True)(x)
    program = torch.export.export(layer, (x,), strict=strict)
    for nodes in (seen, program.graph.nodes):
        (ours,) = (node for node in nodes if "fastgemm" in str(node.target))
        assert ours.kwargs["level"] == 3
    torch.testing.assert_close(program.module()(x), layer(x))


@pytest.mark.parametrize("x", WRONG_INPUTS)
def test_errors_are_torchs_own(x, device):
    torchs = torch.nn.Linear(12, 5)
    own = nn.convert(copy.deepcopy(torchs))
    with pytest.raises(Exception) as expected:
        torchs(x())
    with pytest.raises(expected.type) as error:
        own(x())
    assert str(error.value) == str(expected.value)


def model():
    layers = torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Sequential(torch.nn.Linear(16, 16))
    return torch.nn.Sequential(*layers, torch.nn.Linear(16, 4))


def linears(module):
    return [layer for layer in module.modules() if isinstance(layer, torch.nn.Linear)]


def test_convert_routes_the_products(device):
    module = nn.convert(model(), kernel="naive")
    with fastgemm.patch() as routed:  # the mode sees no product of torch
        module(draw(5, 8).to(device)).sum().backward()
    assert not routed.total


def test_convert_of_one_layer_again_and_of_some(device):
    layer = torch.nn.Linear(3, 4)
    assert nn.convert(layer, level=3) is layer and layer.level == 3
    assert nn.convert(layer).level is None
    module = nn.convert(model(), only=lambda name, layer: name == "2.0" and layer.in_features == 16)
    assert [type(layer) is nn.Linear for layer in linears(module)] == [False, True, False]


def test_revert_undoes_convert(device):
    module = model()
    text, layers, parameters = repr(module), linears(module), list(module.parameters())
    x = draw(5, 8).to(device)
    expected = module(x)
    assert nn.revert(nn.convert(module, level=3)) is module
    assert linears(module) == layers
    assert all(type(layer) is torch.nn.Linear for layer in layers)
    assert all(p is q for p, q in zip(parameters, module.parameters(), strict=True))
    assert repr(module) == text
    assert torch.equal(module(x), expected)
    # It can be pickled for a machine without fastgemm.
    assert set(vars(layers[0])) == set(vars(torch.nn.Linear(3, 4)))
    assert type(nn.revert(nn.Linear(3, 4))) is torch.nn.Linear


@pytest.fixture
def quantization(device):
    if device == "cuda":
        pytest.skip("torch quantizes layers on a CPU")
    return pytest.importorskip("torch.ao.quantization")


quantizes = pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated", "ignore:torch.quantize")


@quantizes
def test_quantization_passes_a_converted_layer_by_says_so_and_takes_a_reverted_one(quantization, device):
    module, x = model(), draw(5, 8)
    expected = quantization.quantize_dynamic(module)
    nn.convert(module)
    with pytest.warns(UserWarning, match="fastgemm.nn.revert"):
        result = quantization.quantize_dynamic(module, inplace=True)
    assert torch.equal(result(x), module(x))
    own = quantization.quantize_dynamic(nn.revert(module))
    assert repr(own) == repr(expected) and not linears(own)
    assert torch.equal(own(x), expected(x))


@quantizes
def test_convert_leaves_quantized_layers_alone(quantization, device):
    module, x = quantization.quantize_dynamic(model()), draw(5, 8)
    expected, text = module(x), repr(module)
    nn.convert(module)
    assert repr(module) == text
    assert torch.equal(module(x), expected)


def test_unknown_choices_are_refused_whoever_computes():
    half, numbers = torch.randn(3, 3).half(), torch.randn(3, 3, dtype=torch.complex64)
    for x in (half, numbers):
        with pytest.raises(ValueError, match="precision"):
            nn.linear(x, x, precision="no such precision")
        with pytest.raises(ValueError, match="kernel"):
            nn.linear(x, x, kernel="no such kernel")
