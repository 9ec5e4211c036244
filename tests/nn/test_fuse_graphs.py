"""Tests nn.fuse with tools that record or compile a model. Graphs must behave as in torch, also after changes."""

import fastgemm
import pytest
import torch
from fastgemm.nn import convert, fuse
from pairs import draw, model
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def test_graphs():
    net, expected, x = fuse(model()), model(), draw()
    graphs = []

    def backend(graph, _):
        graphs.append(str(graph.code))
        return graph

    torch.compiler.reset()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(net, fullgraph=True, backend=backend)(x), expected(x))
        exported = torch.export.export(net, (x,))
    assert [graph.count("fastgemm.linear") for graph in (*graphs, str(exported.graph))] == [2, 2]
    torch.testing.assert_close(exported.module()(x), expected(x))
    torch.testing.assert_close(torch.jit.script(net)(x), expected(x))
    torch.testing.assert_close(torch.jit.trace(net, x)(x[:3]), expected(x[:3]))
    torch.testing.assert_close(torch.fx.symbolic_trace(net)(x), expected(x))
    assert type(net[4]) is fastgemm.nn.Sequential  # TorchScript has changed nothing
    parameters = dict(expected.named_parameters())
    torch.testing.assert_close(torch.func.functional_call(net, parameters, (x,)), expected(x))


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net[0].register_forward_hook(lambda module, args, output: output - 1),
        lambda net: setattr(net[0], "forward", lambda _: torch.ones(7, 20)),
        lambda net: setattr(net[1], "forward", lambda _: torch.ones(7, 20)),
        convert,
    ],
    ids=["hooked", "the layer's forward", "the activation's forward", "converted"],
)
def test_compiled_and_then_changed(change):
    x, net, expected = draw(), fuse(model()), model()
    torch.compiler.reset()
    compiled = [torch.compile(each, backend="eager") for each in (net, expected)]
    torch.testing.assert_close(compiled[0](x), compiled[1](x))
    for each in net, expected:
        change(each)
    torch.testing.assert_close(compiled[0](x), compiled[1](x))


def test_fx_sees_the_modules():
    class Leaves(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return not isinstance(module, nn.Sequential)

    def called(net):
        return [node.target for node in Leaves().trace(net).nodes if node.op == "call_module"]

    assert called(fuse(model())) == called(model()) == ["0", "1", "2", "3", "4.0", "4.1"]


def test_a_forward_replaced_for_the_whole_class(monkeypatch):
    net, expected, x = fuse(model()), model(), draw()
    monkeypatch.setattr(nn.GELU, "forward", lambda self, input: input * 0)
    torch.testing.assert_close(net(x), expected(x))


def test_a_layers_forward_replaced_for_the_whole_class(monkeypatch):
    net, seen, old = fuse(convert(model())), [], fastgemm.nn.Linear.forward
    monkeypatch.setattr(fastgemm.nn.Linear, "forward", lambda self, x: seen.append(self) or old(self, x))
    net(draw())
    assert seen == [net[0], net[2], net[4][0]]
