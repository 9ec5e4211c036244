"""Tests nn.Linear with an activation: values, errors, and the result of revert."""

import copy
import pickle

import fastgemm
import pytest
import torch
from fastgemm.nn import fuse, revert
from pairs import WRONG_INPUTS, said
from torch import nn
from torch.nn.utils import prune

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

MODULES = {"relu": nn.ReLU(), "gelu": nn.GELU(), "gelu_tanh": nn.GELU(approximate="tanh"), "silu": nn.SiLU()}


@pytest.mark.parametrize("name", MODULES)
def test_a_layer_with_an_activation(name):
    layer = fastgemm.nn.Linear(12, 20, activation=name)
    plain = nn.Sequential(nn.Linear(12, 20), MODULES[name])
    plain[0].load_state_dict(layer.state_dict())
    x = torch.randn(3, 5, 12, requires_grad=True)
    torch.testing.assert_close(layer(x), plain(x))
    (found,) = torch.autograd.grad(layer(x).sum(), x)
    (expected,) = torch.autograd.grad(plain(x).sum(), x)
    torch.testing.assert_close(found, expected)
    assert f"activation={name!r}" in repr(layer)
    torch.testing.assert_close(torch.jit.script(layer)(x), plain(x))
    torch.testing.assert_close(pickle.loads(pickle.dumps(layer))(x), plain(x))
    torch.testing.assert_close(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), plain(x))


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("x", WRONG_INPUTS)
def test_errors_are_torchs_own(name, x):
    torchs = nn.Sequential(nn.Linear(12, 20), MODULES[name])
    with pytest.raises(Exception) as expected:
        torchs(x())
    for own in fuse(copy.deepcopy(torchs)), fastgemm.nn.Linear(12, 20, activation=name):
        with pytest.raises(expected.type) as error:
            own(x())
        assert str(error.value) == str(expected.value)


@pytest.mark.parametrize("name", MODULES)
def test_revert_gives_back_layers_made_with_an_activation(name, caplog):
    net = nn.ModuleDict({"layer": fastgemm.nn.Linear(12, 20, activation=name, level=2).eval()})
    layer, weight, x, seen = net["layer"], net["layer"].weight, torch.randn(7, 12), []
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output))
    expected = layer(x)
    revert(net)
    assert said(caplog) == [
        "fastgemm.nn.revert: layer: made a torch.nn.Sequential of a layer and its activation: its parameters are "
        "0.weight and 0.bias now"
    ]
    assert net["layer"] is layer and repr(layer) == repr(nn.Sequential(nn.Linear(12, 20), MODULES[name]))
    assert list(net.state_dict()) == ["layer.0.weight", "layer.0.bias"] and layer[0].weight is weight
    assert not any(part.training for part in layer.modules())
    assert set(vars(layer)) == set(vars(nn.Sequential())) and set(vars(layer[0])) == set(
        vars(nn.Linear(1, 1))
    )
    torch.testing.assert_close(layer(x), expected)
    assert len(seen) == 2
    torch.testing.assert_close(fuse(net)["layer"](x), expected)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda layer: prune.l1_unstructured(layer, "weight", amount=0.5), "it has an activation, and hooks"),
        (lambda layer: setattr(layer, "probe", nn.Linear(2, 2)), "submodules of its own"),
        (lambda layer: setattr(layer, "scale", nn.Parameter(torch.ones(2))), "submodules of its own"),
    ],
    ids=["pruned", "a submodule", "a parameter"],
)
def test_revert_leaves_a_layer_with_an_activation_and_more(change, why, caplog):
    layer, x = fastgemm.nn.Linear(12, 20, activation="relu"), torch.randn(7, 12)
    change(layer)
    expected = layer(x)
    assert type(revert(layer)) is fastgemm.nn.Linear and torch.equal(layer(x), expected)
    assert why in said(caplog)[0]


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_types_without_activations_are_left_to_torch(dtype):
    layer = fastgemm.nn.Linear(4, 5, activation="relu")
    weight = torch.ones(5, 4).to(dtype)
    layer.weight, layer.bias = nn.Parameter(weight, requires_grad=False), None
    x = torch.ones(2, 4).to(dtype)
    if dtype.is_complex:
        with pytest.raises(RuntimeError):  # torch's own sequence
            layer(x)
    else:
        assert torch.equal(layer(x), torch.relu(nn.functional.linear(x, weight)))


@pytest.mark.parametrize("wrong", ["tanh", ["relu"], 1], ids=str)
def test_unknown_activations(wrong):
    with pytest.raises(ValueError, match=r"^fastgemm\.nn\.Linear: unknown activation .*; accepted: 'relu'"):
        fastgemm.nn.Linear(4, 5, activation=wrong)


def test_under_autocast_a_precision_of_float32_gives_way():
    made = fastgemm.nn.Linear(6, 4, activation="relu", precision="ieee")
    fused = fuse(nn.Sequential(nn.Linear(6, 4), nn.ReLU()), precision="ieee")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert all(layer(torch.randn(3, 6).bfloat16()).dtype == torch.bfloat16 for layer in (made, fused))


def test_a_bias_of_one_number_is_added_everywhere():
    model, x = nn.Sequential(nn.Linear(6, 4), nn.GELU()), torch.randn(3, 6)
    model[0].bias = nn.Parameter(torch.randn(1))
    torch.testing.assert_close(fuse(copy.deepcopy(model))(x), model(x))
