"""nn.Linear with an activation, and nn.convert(fuse=True), which joins layers and the activations after them."""

from __future__ import annotations

import copy
import pickle
import weakref

import fastgemm
import pytest
import torch
from torch import nn

MODULES = {"relu": nn.ReLU(), "gelu": nn.GELU(), "gelu_tanh": nn.GELU(approximate="tanh"), "silu": nn.SiLU()}


def model() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 16), nn.Tanh(), nn.Sequential(nn.Linear(16, 8), nn.ReLU())
    )


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
    torch.testing.assert_close(torch.compile(layer, fullgraph=True)(x), plain(x))


def test_misuse():
    with pytest.raises(
        ValueError, match=r"fastgemm\.nn\.Linear: unknown activation 'tanh'; accepted: 'relu'"
    ):
        fastgemm.nn.Linear(2, 3, activation="tanh")


def test_convert_joins_and_revert_parts():
    net = model()
    expected, names = copy.deepcopy(net), list(net.state_dict())
    x = torch.randn(7, 12)
    assert fastgemm.nn.convert(net, fuse=True) is net
    assert [net[0].activation, net[2].activation, net[4][0].activation] == ["gelu", None, "relu"]
    assert type(net[1]) is not nn.GELU and type(net[3]) is nn.Tanh
    torch.testing.assert_close(net(x), expected(x))
    assert list(net.state_dict()) == names
    net.load_state_dict(expected.state_dict())
    torch.testing.assert_close(pickle.loads(pickle.dumps(net))(x), expected(x))
    fastgemm.nn.convert(net, fuse=True)  # again is harmless
    torch.testing.assert_close(net(x), expected(x))
    fastgemm.nn.revert(net)
    assert type(net[0]) is nn.Linear and type(net[1]) is nn.GELU and type(net[4][1]) is nn.ReLU
    assert "activation" not in net[0].__dict__
    torch.testing.assert_close(net(x), expected(x))


def test_what_stays_apart():
    shared = nn.Linear(12, 12)
    hooked = nn.Sequential(nn.Linear(12, 12), nn.ReLU())
    hooked[1].register_forward_hook(lambda *_: None)
    seen = nn.Sequential(nn.Linear(12, 12), nn.ReLU())
    seen[0].register_forward_hook(lambda *_: None)

    class Own(nn.Sequential):
        def forward(self, x):
            return self[0](x)

    net = nn.ModuleList(
        [
            nn.Sequential(shared, nn.ReLU()),
            nn.Sequential(shared, nn.GELU()),
            hooked,
            seen,
            Own(nn.Linear(12, 12), nn.ReLU()),
        ]
    )
    expected = copy.deepcopy(net)
    fastgemm.nn.convert(net, fuse=True)
    x = torch.randn(5, 12)
    for part, other in zip(net, expected, strict=True):
        assert part[0].activation is None
        torch.testing.assert_close(part(x), other(x))
    alone = fastgemm.nn.convert(nn.Sequential(nn.Linear(12, 12), nn.ReLU()))
    assert alone[0].activation is None


def test_one_activation_in_several_places():
    relu = nn.ReLU()
    net = nn.Sequential(nn.Linear(12, 12), relu, nn.Linear(12, 12), relu)
    expected = copy.deepcopy(net)
    fastgemm.nn.convert(net, fuse=True)
    assert net[0].activation == net[2].activation == "relu"
    x = torch.randn(5, 12)
    torch.testing.assert_close(net(x), expected(x))
    fastgemm.nn.revert(net)
    assert net[1] is net[3] is relu


def test_a_layer_made_with_an_activation_is_not_reverted():
    net = nn.Sequential(fastgemm.nn.Linear(4, 4, activation="relu"))
    assert type(fastgemm.nn.revert(net)[0]) is fastgemm.nn.Linear


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_types_without_activations_are_left_to_torch(dtype):
    layer = fastgemm.nn.Linear(4, 5, activation="relu")
    weight = torch.ones(5, 4).to(dtype)
    layer.weight, layer.bias = nn.Parameter(weight, requires_grad=False), None
    x = torch.ones(2, 4).to(dtype)
    if dtype.is_complex:
        with pytest.raises(RuntimeError):  # torch's own
            layer(x)
    else:
        assert torch.equal(layer(x), torch.relu(nn.functional.linear(x, weight)))


class Around(nn.Module):
    """What adapters do: a layer inside of another, which adds to its product."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x):
        return self.inside(x) + 1


def replace(net: nn.Sequential) -> None:
    torch.manual_seed(5)
    net[0] = nn.Linear(12, 20)


def put_behind(net: nn.Sequential) -> None:
    net.insert(1, Around(nn.Identity()))


def wrap(net: nn.Sequential) -> None:
    net[0] = Around(net[0])


def put_before(net: nn.Sequential) -> None:
    net.insert(0, nn.Tanh())


def remove_the_activation(net: nn.Sequential) -> None:
    del net[1]


@pytest.mark.parametrize("change", [replace, wrap, put_behind, put_before, remove_the_activation])
@pytest.mark.parametrize("copied", [False, True])
def test_what_happens_to_a_joined_layer_later(change, copied):
    expected = model()
    net = fastgemm.nn.convert(copy.deepcopy(expected), fuse=True)
    if copied:
        net = pickle.loads(pickle.dumps(copy.deepcopy(net)))
    change(expected)
    change(net)
    x = torch.randn(7, 12)
    torch.testing.assert_close(net(x), expected(x))
    compiled = torch.compile(net, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), expected(x))
    torch.testing.assert_close(torch.jit.script(net)(x), expected(x))
    torch.testing.assert_close(torch.fx.symbolic_trace(net)(x), expected(x))
    assert net[-1][0].activation == "relu" and net[-1][0].is_joined  # what nobody touched
    fastgemm.nn.revert(net)
    torch.testing.assert_close(net(x), expected(x))


def test_a_joined_layer_alone():
    """A copy of it is the layer that it was before, without the activation, and may be put anywhere."""
    net = fastgemm.nn.convert(model(), fuse=True)
    x = torch.randn(7, 12)
    expected = net(x)
    plain = nn.functional.linear(x, net[0].weight, net[0].bias)
    for alone in (copy.deepcopy(net[0]), pickle.loads(pickle.dumps(net[0]))):
        torch.testing.assert_close(alone(x), plain)
        torch.testing.assert_close(torch.jit.script(alone)(x), plain)
        net[0] = alone
        torch.testing.assert_close(net(x), expected)
    wrapped = nn.Sequential(copy.deepcopy(net[0]))
    torch.testing.assert_close(copy.deepcopy(wrapped)(x), wrapped(x))


def test_joined_layers_taken_to_another_model():
    net = fastgemm.nn.convert(model(), fuse=True)
    x = torch.randn(7, 12)
    first, stand_in = net[0], net[1]
    norm = nn.LayerNorm(first.out_features)
    expected = nn.functional.gelu(norm(nn.functional.linear(x, first.weight, first.bias)))
    old = weakref.ref(net)
    del net
    assert old() is None, "a model is no reference cycle"
    torch.testing.assert_close(nn.Sequential(first, norm, stand_in)(x), expected)
