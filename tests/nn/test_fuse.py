"""nn.fuse: a container computes a layer and the activation after it at once; its parts mean what torch's do."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import re

import fastgemm
import pytest
import torch
from fastgemm.nn import convert, fuse, revert
from pairs import draw, model
from said import said
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def ops_of(net: nn.Module, x: torch.Tensor) -> list[str]:
    """The layers with an activation and the activations of torch that a call runs, in order."""
    with torch.no_grad(), torch.profiler.profile() as profile:
        net(x)
    known = {
        "fastgemm::_fused_linear": "layer",
        "aten::relu": "relu",
        "aten::relu_": "relu",
        "aten::gelu": "gelu",
    }
    return [known[e.name] for e in profile.events() if e.name in known]


def test_misuse():
    with pytest.raises(TypeError, match=r"'fuse'; .*fastgemm\.nn\.fuse\(model\)"):
        convert(model(), fuse=True)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'fused'$"):
        convert(model(), fused=True)
    with pytest.raises(TypeError, match=r"fuse: module must be a torch\.nn\.Module, got list"):
        fuse([model()])
    with pytest.raises(ValueError, match=r"fastgemm\.nn\.fuse: .*level must be 1 to 7"):
        fuse(model(), level=8)


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
    fuse(net)  # again is harmless
    torch.testing.assert_close(net(x), expected(x))
    assert revert(net) is net and repr(net) == text
    assert all(a is b for a, b in zip(net.modules(), parts, strict=True))
    assert not any(type(m).__module__.startswith("fastgemm") for m in net.modules())
    assert torch.equal(net(x), expected(x))


def test_gradients():
    net, expected = fuse(model()), model()
    x = draw().requires_grad_()
    for own, torchs in zip(
        torch.autograd.grad(net(x).square().sum(), (x, *net.parameters())),
        torch.autograd.grad(expected(x).square().sum(), (x, *expected.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(own, torchs)


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
    torch.testing.assert_close(net(x), plain(x))  # which has lost a converted layer to the part


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_and_pickles(again):
    net, plain, x = fuse(model()), model(), draw()
    for part in (slice(None), slice(0, 1), slice(0, 2), slice(1, 3)):
        y = x if part.start in (None, 0) else torch.linspace(-1, 1, 140).view(7, 20)
        torch.testing.assert_close(again(net[part])(y), plain[part](y))
    assert ops_of(again(net), x) == ["layer", "layer"]
    torch.testing.assert_close(again(net[0])(x), plain[0](x))


def test_a_saved_layer_is_a_layer():
    def size(thing: nn.Module) -> int:
        file = io.BytesIO()
        torch.save(thing, file)
        return file.tell()

    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 50000))
    torchs = size(net[0]), size(net[:1])
    fuse(net)
    assert size(net[0]) < torchs[0] + 500 and size(net[:1]) < torchs[1] + 500


def changes_the_output(net: nn.Sequential, seen: list) -> None:
    net[0].register_forward_hook(lambda module, inputs, output: output - 1)


def changes_the_input(net: nn.Sequential, seen: list) -> None:
    net[1].register_forward_pre_hook(lambda module, inputs: (inputs[0] - 1,))


def reads_the_output(net: nn.Sequential, seen: list) -> None:
    net[0].register_forward_hook(lambda module, inputs, output: seen.append(output.detach()))


def reads_gradients(net: nn.Sequential, seen: list) -> None:
    net[1].register_full_backward_hook(lambda module, of_input, of_output: seen.extend(of_input))


def changes_gradients(net: nn.Sequential, seen: list) -> None:
    net[0].register_full_backward_pre_hook(lambda module, of_output: (of_output[0] * 2,))


def reads_keywords(net: nn.Sequential, seen: list) -> None:
    net[1].register_forward_hook(lambda m, i, k, output: seen.append(output.detach()), with_kwargs=True)


def runs_always(net: nn.Sequential, seen: list) -> None:
    net[1].register_forward_hook(lambda m, i, output: seen.append(output.detach()), always_call=True)


def replaces_forward(net: nn.Sequential, seen: list) -> None:
    old = net[0].forward
    net[0].forward = lambda x: old(x) - 1


def replaces_the_activations_forward(net: nn.Sequential, seen: list) -> None:
    net[1].forward = lambda x: x - 1


def parametrizes(net: nn.Sequential, seen: list) -> None:
    parametrize.register_parametrization(net[0], "weight", nn.Softplus())


def normalizes(net: nn.Sequential, seen: list) -> None:
    parametrizations.weight_norm(net[0])


def normalizes_as_of_old(net: nn.Sequential, seen: list) -> None:
    nn.utils.weight_norm(net[0])


def prunes(net: nn.Sequential, seen: list) -> None:
    prune.l1_unstructured(net[0], "weight", amount=0.5)


class Around(nn.Module):
    """What adapters do: a layer inside of another, which adds to its product."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x):
        return self.inside(x) + 1


def wraps(net: nn.Sequential, seen: list) -> None:
    net[0] = Around(net[0])


def replaces(net: nn.Sequential, seen: list) -> None:
    torch.manual_seed(5)
    net[0] = nn.Linear(12, 20)


def puts_between(net: nn.Sequential, seen: list) -> None:
    net.insert(1, Around(nn.Identity()))


def puts_before(net: nn.Sequential, seen: list) -> None:
    net.insert(0, nn.Tanh())


def removes_the_activation(net: nn.Sequential, seen: list) -> None:
    del net[1]


REASONS = {
    changes_the_output: "it has hooks",
    changes_the_input: "the activation after it has hooks",
    reads_the_output: "it has hooks",
    reads_gradients: "the activation after it has hooks",
    changes_gradients: "it has hooks",
    reads_keywords: "the activation after it has hooks",
    runs_always: "the activation after it has hooks",
    replaces_forward: "it had its forward replaced on the instance",
    replaces_the_activations_forward: "the activation after it had its forward replaced on the instance",
    parametrizes: "it is parametrized",
    normalizes: "it is parametrized",
    normalizes_as_of_old: "it has hooks",
    prunes: "it has hooks",
}
CHANGES = [*REASONS, wraps, replaces, puts_between, puts_before, removes_the_activation]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("order", ["before", "after", "after a copy"])
def test_what_is_changed_before_or_later(change, order, caplog):
    x, results = draw().requires_grad_(), []
    for own in (False, True):
        net, seen = model(), []
        if own and order != "before":
            fuse(net)
            net = copy.deepcopy(net) if order == "after a copy" else net
        change(net, seen)
        if own and order == "before":
            fuse(net)
            expected = [f"fastgemm.nn.fuse: 0: left alone: {REASONS[change]}"] if change in REASONS else []
            assert said(caplog) == expected
        out = net(x)
        results.append([out, *torch.autograd.grad(out.square().sum(), (x, *net.parameters())), *seen])
    assert len(results[0]) == len(results[1])
    for torchs, own in zip(*results, strict=True):
        torch.testing.assert_close(own, torchs, rtol=1e-4, atol=1e-5)
    assert ops_of(net, x)[-1] == "layer"  # what nobody touched
    if order != "before":
        torch.testing.assert_close(revert(net)(x), out)


def test_a_removed_hook_is_no_reason():
    net, x = fuse(model()), draw()
    hook = net[0].register_forward_hook(lambda *_: None)
    assert ops_of(net, x) == ["gelu", "layer"] and "fused: 0 and 1\n  (0): Linear(in_features=12" not in repr(
        net
    )
    hook.remove()
    assert ops_of(net, x) == ["layer", "layer"]


def test_hooks_of_all_modules_see_all_modules():
    seen: dict[bool, list[str]] = {True: [], False: []}
    for own in seen:
        net = fuse(model()) if own else model()
        hook = nn.modules.module.register_module_forward_hook(
            lambda module, i, o, to=seen[own]: to.append(type(module).__name__)
        )
        try:
            net(draw())
        finally:
            hook.remove()
    assert seen[True] == seen[False] and "GELU" in seen[True]


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
    fuse(net["lazy"])  # which is a layer by now
    assert ops_of(net["lazy"], x) == ["layer"]


def test_shared_layers_and_activations():
    torch.manual_seed(0)
    shared, relu = nn.Linear(12, 12), nn.ReLU()
    net = nn.ModuleList(
        [nn.Sequential(shared, relu, shared, relu), nn.Sequential(shared, nn.GELU(), relu), shared]
    )
    expected, x = copy.deepcopy(net), draw()
    fuse(net)
    assert ops_of(net[0], x) == ["layer", "layer"] and ops_of(net[1], x) == ["layer", "relu"]
    assert net[2] is shared
    for own, torchs in zip(net, expected, strict=True):
        torch.testing.assert_close(own(x), torchs(x))


def test_accelerates_hooks():
    accelerate = pytest.importorskip("accelerate")
    x = draw()
    for prepare in (fuse, convert):
        for before in (True, False):
            net = model() if before else prepare(model())
            accelerate.cpu_offload(net, execution_device=torch.device("cpu"))
            if before:
                prepare(net)
            torch.testing.assert_close(net(x), model()(x))
            torch.testing.assert_close(revert(net)(x), model()(x))
            accelerate.hooks.remove_hook_from_submodules(net)
            torch.testing.assert_close(revert(net)(x), model()(x))
            assert type(net[0]) is nn.Linear and type(net) is nn.Sequential


def test_adapters():
    peft = pytest.importorskip("peft")

    def adapted(net: nn.Module) -> nn.Module:
        torch.manual_seed(1)
        config = peft.LoraConfig(target_modules=["0", "2"], init_lora_weights=False, r=2)
        peft.inject_adapter_in_model(config, net)
        return net

    x, expected = draw(), adapted(model())
    torch.testing.assert_close(adapted(fuse(model()))(x), expected(x))
    torch.testing.assert_close(fuse(adapted(model()))(x), expected(x))
    torch.testing.assert_close(revert(adapted(fuse(model())))(x), expected(x))
