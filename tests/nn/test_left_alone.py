"""Tests layers that nn.convert and nn.revert do not change, the messages, and layers that only look so."""

import copy
import importlib
import re
import sys
import warnings

import fastgemm
import pytest
import torch
from fastgemm.nn import convert, revert
from pairs import said
from ranks import LOOPBACK
from reference import kernels_that_ran
from torch import nn
from torch.nn.utils import parametrize


def with_own_forward() -> nn.Module:
    """A layer after a wrapper has replaced its forward on the instance."""
    layer = nn.Linear(12, 12)
    layer.forward = lambda x, old=layer.forward: old(x)
    return layer


def with_the_forward_of_another() -> nn.Module:
    """A shallow copy of a layer whose forward was set on the instance."""
    layer = nn.Linear(12, 12)
    layer.forward = nn.Linear(12, 12).forward
    return layer


def parametrized() -> nn.Module:
    return parametrize.register_parametrization(nn.Linear(12, 12), "weight", nn.Softplus())


def offloaded() -> nn.Module:
    layer = nn.Linear(12, 12)
    pytest.importorskip("accelerate").cpu_offload(layer, execution_device=torch.device("cpu"))
    return layer


class Half(nn.Linear):
    def forward(self, x):
        return super().forward(x) / 2


LEFT = {
    with_own_forward: ("", "it had its forward replaced on the instance"),
    with_the_forward_of_another: ("", "it had its forward replaced on the instance"),
    offloaded: ("", "it had its forward replaced on the instance"),
    parametrized: ("", "it is parametrized"),
    lambda: nn.LazyLinear(12): ("", "it is lazy until its first call"),
    lambda: Half(12, 12): ("", r"it is a [\w.]*\.Half, which may have a forward of its own"),
    lambda: torch.jit.script(nn.Linear(12, 12)): ("", "it is compiled by TorchScript"),
    lambda: nn.MultiheadAttention(12, 2): (
        ".out_proj",
        "it is not called by torch.nn.MultiheadAttention, which reads its weight",
    ),
}


def called(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return module(x, x, x)[0] if isinstance(module, nn.MultiheadAttention) else module(x)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Lazy modules")
@pytest.mark.parametrize("make", LEFT)
def test_what_convert_leaves_alone(make, caplog):
    path, why = LEFT[make]
    layer, x = make(), torch.randn(5, 12)
    kinds = [type(part) for part in layer.modules()]
    net = nn.ModuleDict({"first": layer, "second": nn.ModuleDict({"inner": nn.Linear(12, 12)})})
    assert convert(net, level=2) is net
    (message,) = said(caplog)
    assert re.fullmatch(rf"fastgemm\.nn\.convert: first{path}: left alone: {why}", message), message
    assert [type(part) for part in layer.modules()] == kinds
    assert not hasattr(layer, "level") and net["second"]["inner"].level == 2
    with pytest.warns(
        UserWarning, match=rf"rows of layers left to torch may depend .*: first{path}; the logger"
    ):
        convert(net, invariant=True)
    assert kernels_that_ran(lambda: net["second"]["inner"](x)) == ["invariant"]
    assert kernels_that_ran(lambda: called(layer, x)) == []
    caplog.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        convert(net, invariant=True, only=lambda name, _: name.startswith("second"))
    assert not said(caplog)


def test_layers_of_one_reason_are_said_at_once(caplog):
    net = nn.Sequential(with_own_forward(), nn.Linear(12, 12), with_own_forward())
    with pytest.warns(UserWarning, match=r": 0 and others; the logger"):
        convert(net, invariant=True)
    assert said(caplog) == [
        "fastgemm.nn.convert: 0, 2: left alone: it had its forward replaced on the instance"
    ]
    convert(net[0])
    assert said(caplog)[0].startswith("fastgemm.nn.convert: the module itself: left alone")


def test_a_lazy_layer_is_one_after_its_first_call(caplog):
    layer = nn.LazyLinear(3)
    layer(torch.randn(2, 4))
    assert type(convert(layer)) is fastgemm.nn.Linear and not said(caplog)


@pytest.mark.parametrize("wrap", ["forward", "accelerate"])
def test_converted_before_its_forward_is_replaced(wrap, caplog):
    layer, x = convert(nn.Linear(12, 12), level=2), torch.randn(5, 12)
    expected = layer(x)
    if wrap == "forward":
        layer.forward = lambda x, old=layer.forward: old(x)
    else:
        accelerate = pytest.importorskip("accelerate")
        accelerate.cpu_offload(layer, execution_device=torch.device("cpu"))
    assert kernels_that_ran(lambda: layer(x)) == ["blocked"]
    convert(layer, kernel="naive")  # the replacement calls the layer's forward, which uses the choice
    assert kernels_that_ran(lambda: layer(x)) == ["naive"]
    assert not said(caplog)
    with pytest.warns(UserWarning, match="rows of layers left to torch may depend"):
        convert(layer, invariant=True)
    assert "its forward was replaced on the instance, and decides what is computed" in said(caplog)[0]
    revert(layer)
    assert said(caplog)[0].endswith(
        "the module itself: left alone: it had its forward replaced on the instance"
    )
    torch.testing.assert_close(layer(x), expected)
    if wrap == "accelerate":
        accelerate.hooks.remove_hook_from_module(layer)
        assert type(revert(layer)) is nn.Linear and not said(caplog)
        torch.testing.assert_close(layer(x), expected)


def test_converted_before_it_is_parametrized(caplog):
    net, x = nn.Sequential(convert(nn.Linear(12, 12))), torch.randn(5, 12)
    parametrize.register_parametrization(net[0], "weight", nn.Softplus())
    expected = net(x)
    convert(net, level=2)  # its forward is fastgemm's
    assert kernels_that_ran(lambda: net(x)) == ["blocked"] and not said(caplog)
    torch.testing.assert_close(revert(net)(x), expected)
    assert said(caplog) == ["fastgemm.nn.revert: 0: left alone: it is parametrized"]


def test_a_compiled_layer():
    layer, x = nn.Linear(12, 12), torch.randn(5, 12)
    layer.compile(backend="eager")
    layer(x)
    convert(layer, level=2)
    assert kernels_that_ran(lambda: layer(x)) == ["blocked"]


@pytest.mark.parametrize("again", ["reload", "anew"])
def test_the_package_imported_again(again, monkeypatch):
    net, x = convert(nn.Sequential(nn.Linear(12, 12)), level=1), torch.randn(5, 12)
    if again == "reload":
        module = importlib.reload(fastgemm.nn)
    else:
        for name in ("nn", "_nn.fuse", "_nn.layers"):
            monkeypatch.delitem(sys.modules, f"fastgemm.{name}")
            package, _, last = f"fastgemm.{name}".rpartition(".")
            # The import sets this attribute, and the end of the test resets it.
            monkeypatch.delattr(sys.modules[package], last)
        module = importlib.import_module("fastgemm.nn")
    assert type(module.convert(net, level=2)[0]) is module.Linear
    assert kernels_that_ran(lambda: net(x)) == ["blocked"]
    assert type(module.revert(net)[0]) is nn.Linear and "level" not in vars(net[0])


@pytest.fixture
def one_rank(monkeypatch):
    dist = torch.distributed
    if not dist.is_available() or dist.is_initialized():
        pytest.skip("needs a process group of its own")
    if LOOPBACK:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", LOOPBACK)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("each", [True, False], ids=["each", "whole"])
@pytest.mark.parametrize("prepare", ["convert", "fuse"])
def test_fully_sharded(one_rank, prepare, each, before, caplog):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (1,))
    torchs, x = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4), nn.SiLU()), torch.randn(5, 12)
    net, prepared = copy.deepcopy(torchs), getattr(fastgemm.nn, prepare)
    if before:
        prepared(net)
    for part in (net[0], net[2], net) if each else (net,):
        fully_shard(part, mesh=mesh)
    if not before:
        prepared(net)
    left = not before and (each or prepare == "fuse")
    whose = "it" if prepare == "convert" else "its container"
    why = f"fastgemm.nn.{prepare}: 0, 2: left alone: {whose} is of a class that fully_shard made"
    assert said(caplog) == [why] * left
    for _ in range(2):
        net.zero_grad(), torchs.zero_grad()
        out, expected = net(x), torchs(x)
        torch.testing.assert_close(out, expected)
        out.sum().backward(), expected.sum().backward()
        for own, parameter in zip(net.parameters(), torchs.parameters(), strict=True):
            torch.testing.assert_close(own.grad.full_tensor(), parameter.grad)
        revert(net)


def test_adapters_and_their_layers():
    peft = pytest.importorskip("peft")
    net, x = nn.Sequential(nn.Linear(12, 12)), torch.randn(5, 12)
    peft.inject_adapter_in_model(peft.LoraConfig(target_modules=["0"], init_lora_weights=False, r=2), net)
    expected = net(x)
    torch.testing.assert_close(convert(net, level=2)(x), expected)
    assert kernels_that_ran(lambda: net(x)) == ["blocked"] * 3  # one of the layer, two of the adapter
    torch.testing.assert_close(revert(net)(x), expected)
