"""Tests nn.fuse: a container computes a layer with its activation, and its parts behave as in torch."""

import copy
import gc
import pickle
import re

import fastgemm
import pytest
import torch
from fastgemm.nn import convert, fuse, revert
from pairs import draw, model, said
from torch import nn
from torch.nn.utils import parametrize

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def ops_of(net: nn.Module, x: torch.Tensor) -> list[str]:
    """The fused layers and torch's activations that a call runs, in order."""
    with torch.no_grad(), torch.profiler.profile() as profile:
        net(x)
    known = {
        "fastgemm::_fused_linear": "layer",
        "aten::relu": "relu",
        "aten::relu_": "relu",
        "aten::gelu": "gelu",
    }
    return [known[e.name] for e in profile.events() if e.name in known]


def test_fuse_and_revert():
    net = model()
    text, expected, names = repr(net), copy.deepcopy(net), list(net.state_dict())
    parts, parameters = list(net.modules()), list(net.parameters())
    x = draw()
    assert ops_of(net, x) == ["gelu", "relu"]
    net[4].eval()
    assert fuse(net) is net
    assert ops_of(net, x) == ["layer", "layer"]
    assert repr(net).count("fused: 0 and 1\n") == 2
    torch.testing.assert_close(net(x), expected(x))
    assert list(net.state_dict()) == names and [m.training for m in net.modules()].count(False) == 3
    assert all(a is b for a, b in zip(net.modules(), parts, strict=True))
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
    net.load_state_dict(expected.state_dict())
    fuse(net)  # a second call changes nothing
    torch.testing.assert_close(net(x), expected(x))
    assert revert(net) is net and repr(net) == text
    assert all(a is b for a, b in zip(net.modules(), parts, strict=True))
    assert not any(type(m).__module__.startswith("fastgemm") for m in net.modules())
    assert torch.equal(net(x), expected(x))


def test_the_choice_of_converted_layers_holds():
    net = fuse(convert(model(), kernel="naive"))
    assert net[0].kernel == "naive"
    fuse(net, level=3)
    assert (net[0].level, net[0].kernel, net[2].kernel) == (3, None, "naive")
    convert(net, precision="ieee")
    assert net[0].precision == "ieee" and ops_of(net, draw()) == ["layer", "layer"]


class Skip(nn.Module):
    """A forward that uses the parts of its container."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 12))

    def forward(self, x):
        h = self.net[0](x)
        return h + self.net[1:](h)


def test_parts_mean_what_they_mean_in_torch():
    net, plain, x = fuse(model()), model(), draw()
    h = torch.linspace(-1, 1, 140).view(7, 20)
    torch.testing.assert_close(net[:1](x), plain[:1](x))
    torch.testing.assert_close(net[1:](h), plain[1:](h))
    torch.testing.assert_close(nn.Sequential(*list(net.children())[:-4])(x), plain[:1](x))
    norm = nn.LayerNorm(20, elementwise_affine=False)
    torch.testing.assert_close(
        nn.Sequential(net[0], norm, net[1], net[2])(x), nn.Sequential(plain[0], norm, plain[1], plain[2])(x)
    )
    torch.testing.assert_close(fuse(Skip())(x), Skip()(x))
    part = net[:1]
    before = part(x)
    del net
    gc.collect()
    assert torch.equal(before, part(x))
    net = fuse(model())
    reverted = revert(net[:2])
    torch.testing.assert_close(reverted(x), plain[:2](x))
    torch.testing.assert_close(net(x), plain(x))  # a converted layer has moved to the part
    assert fastgemm.nn.Sequential()(x) is x


def test_a_saved_layer_is_a_layer():
    def sizes(net: nn.Sequential) -> list[int]:
        return [len(pickle.dumps(part)) for part in (net[0], net[:1])]

    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 50000))
    torchs = sizes(net)
    assert all(own < size + 500 for own, size in zip(sizes(fuse(net)), torchs, strict=True))


class Around(nn.Module):
    """Like an adapter: a layer inside of another layer. Its output is added to the product."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x):
        return self.inside(x) + 1


def replace_forward(layer: nn.Module) -> None:
    layer.forward = lambda x, old=layer.forward: old(x) - 1


HOOKED, ACTIVATION_HOOKED = "it has hooks", "the activation after it has hooks"
REPLACED = "it had its forward replaced on the instance"
# A change of a model with a list for hooks' arguments, and fuse's reason to leave the first layer unchanged.
# test_surgery.py has more kinds of hooks, and changes that no reason names.
CHANGES = {
    "changes the output": (lambda net, _: net[0].register_forward_hook(lambda m, i, o: o - 1), HOOKED),
    "changes the input": (
        lambda net, _: net[1].register_forward_pre_hook(lambda m, i: (i[0] - 1,)),
        ACTIVATION_HOOKED,
    ),
    "reads keywords": (
        lambda net, seen: net[1].register_forward_hook(
            lambda m, i, k, o: seen.append(o.detach()), with_kwargs=True
        ),
        ACTIVATION_HOOKED,
    ),
    "runs always": (
        lambda net, seen: net[1].register_forward_hook(
            lambda m, i, o: seen.append(o.detach()), always_call=True
        ),
        ACTIVATION_HOOKED,
    ),
    "replaces forward": (lambda net, _: replace_forward(net[0]), REPLACED),
    "replaces the activation's forward": (
        lambda net, _: replace_forward(net[1]),
        REPLACED.replace("it had", "the activation after it had"),
    ),
    "parametrizes": (
        lambda net, _: parametrize.register_parametrization(net[0], "weight", nn.Softplus()),
        "it is parametrized",
    ),
    "wraps": (lambda net, _: net.__setitem__(0, Around(net[0])), None),
    "puts between": (lambda net, _: net.insert(1, Around(nn.Identity())), None),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("order", ["before", "after", "after a copy"])
def test_what_is_changed_before_or_later(change, order, caplog):
    change, reason = CHANGES[change]
    x, results = draw().requires_grad_(), []
    for own in (False, True):
        net, seen = model(), []
        if own and order != "before":
            fuse(net)
            net = copy.deepcopy(net) if order == "after a copy" else net
        change(net, seen)
        if own and order == "before":
            fuse(net)
            assert said(caplog) == ([f"fastgemm.nn.fuse: 0: left alone: {reason}"] if reason else [])
        out = net(x)
        results.append([out, *torch.autograd.grad(out.square().sum(), (x, *net.parameters())), *seen])
    assert len(results[0]) == len(results[1])
    for torchs, own in zip(*results, strict=True):
        torch.testing.assert_close(own, torchs, rtol=1e-4, atol=1e-5)
    assert ops_of(net, x)[-1] == "layer"  # the unchanged layer
    if order != "before":
        torch.testing.assert_close(revert(net)(x), out)


def test_a_removed_hook_is_no_reason():
    net, x = fuse(model()), draw()
    hook = net[0].register_forward_hook(lambda *_: None)
    assert ops_of(net, x) == ["gelu", "layer"]
    assert "fused: 0 and 1\n  (0): Linear(in_features=12" not in repr(net)
    hook.remove()
    assert ops_of(net, x) == ["layer", "layer"]


def test_what_is_left_alone(caplog):
    class Own(nn.Sequential):
        def forward(self, x):
            return self[0](x)

    class Half(nn.Linear):
        def forward(self, x):
            return super().forward(x) / 2

    compiled = nn.Sequential(nn.Linear(12, 12), nn.ReLU())
    compiled[0].compile(backend="eager")
    net = nn.ModuleDict(
        {
            "own": Own(nn.Linear(12, 12), nn.ReLU()),
            "halved": nn.Sequential(Half(12, 12), nn.ReLU()),
            "lazy": nn.Sequential(nn.LazyLinear(12), nn.ReLU()),
            "made": nn.Sequential(fastgemm.nn.Linear(12, 12, activation="relu"), nn.ReLU()),
            "compiled": compiled,
        }
    )
    x = draw()
    fuse(net)
    found = said(caplog)
    reasons = [
        r"own\.0: left alone: its container is a .*Own, which may have a forward of its own",
        r"halved\.0: left alone: it is a .*Half, which may have a forward of its own",
        r"lazy\.0: left alone: it is lazy until its first call",
        r"made\.0: left alone: it has an activation of its own",
        r"compiled\.0: left alone: it is compiled by itself",
    ]
    assert len(found) == len(reasons)
    for message, reason in zip(found, reasons, strict=True):
        assert re.fullmatch(rf"fastgemm\.nn\.fuse: {reason}", message), message
    for name, part in net.items():
        assert type(part) is not fastgemm.nn.Sequential, name
        torch.testing.assert_close(part(x), revert(copy.deepcopy(part))(x))
    fuse(net["lazy"])  # the lazy layer is an ordinary one by now
    assert ops_of(net["lazy"], x) == ["layer"]
