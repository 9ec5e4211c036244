"""Tests FX: symbolic_trace and make_fx record the calls with their arguments, and their graphs run."""

import copy
import pickle

import fastgemm
import pytest
import torch
from fastgemm import nn
from reference import every_device
from torch.fx.experimental.proxy_tensor import make_fx


class Block(torch.nn.Module):
    """Calls every public operation once."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(6, 6))

    def forward(self, x, c):
        y = fastgemm.gemm(x, self.weight, c, alpha=0.5, trans_b=True, level=3)
        z = fastgemm.add(fastgemm.transpose(y, kernel="blocked"), x.mT, alpha=2.0)
        fastgemm.add_(z, c.mT)
        return fastgemm.matmul(z, x, precision="ieee", out_dtype=torch.float32)


def test_symbolic_trace():
    block = Block()
    traced = torch.fx.symbolic_trace(block)
    calls = {n.target: n.kwargs for n in traced.graph.nodes if n.op == "call_function"}
    del calls[getattr]  # x.mT
    assert set(calls) == {fastgemm.gemm, fastgemm.add, fastgemm.add_, fastgemm.transpose, fastgemm.matmul}
    assert (calls[fastgemm.gemm]["level"], calls[fastgemm.gemm]["alpha"]) == (3, 0.5)
    assert calls[fastgemm.transpose] == {"kernel": "blocked"}
    assert calls[fastgemm.matmul] == {"precision": "ieee", "out_dtype": torch.float32}
    x, c = torch.randn(6, 6), torch.randn(6, 6)
    assert torch.equal(traced(x, c), block(x, c))
    traced(x, c).sum().backward()
    assert block.weight.grad is not None


@every_device
@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx(mode):
    """make_fx traces the dispatcher: each op is one node, and symbolic sizes stay symbolic."""

    def function(a, b):
        return fastgemm.add(fastgemm.matmul(a, b, level=2), fastgemm.transpose(fastgemm.matmul(b.mT, a.mT)))

    a, b = torch.randn(5, 6), torch.randn(6, 4)
    graph = make_fx(function, tracing_mode=mode)(a, b)
    names = [str(n.target) for n in graph.graph.nodes if "fastgemm" in str(n.target)]
    assert len(names) == 4
    torch.testing.assert_close(graph(a, b), function(a, b))
    if mode == "symbolic":
        a, b = torch.randn(9, 3), torch.randn(3, 8)
        torch.testing.assert_close(graph(a, b), function(a, b))


def model():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4, bias=False))


def test_symbolic_trace_of_converted_layers():
    """Sizes are known only when the graph runs, so a layer must not decide by them before."""
    converted = nn.convert(model(), level=5)
    traced = torch.fx.symbolic_trace(converted)
    calls = [n for n in traced.graph.nodes if n.target is nn.linear]
    assert [call.kwargs for call in calls] == [{"level": 5}] * 2
    for shape in ((6,), (3, 6), (2, 3, 6), (0, 6)):
        x = torch.randn(*shape)
        assert torch.equal(traced(x), converted(x))
    x = torch.randn(3, 6)
    traced(x).square().sum().backward()
    gradients = [parameter.grad.clone() for parameter in converted.parameters()]
    converted.zero_grad()
    converted(x).square().sum().backward()
    assert all(torch.equal(g, p.grad) for g, p in zip(gradients, converted.parameters(), strict=True))


def test_a_traced_model_is_code_that_can_be_copied_pickled_traced_and_scripted():
    converted = nn.convert(model(), kernel="naive")
    traced = torch.fx.symbolic_trace(converted)
    again = torch.fx.symbolic_trace(traced)
    others = copy.deepcopy(traced), pickle.loads(pickle.dumps(traced)), again, torch.jit.script(traced)
    x = torch.randn(2, 3, 6)
    for other in others:
        assert torch.equal(other(x), converted(x))


def test_a_traced_model_can_be_converted():
    """fx keeps torch's layers as modules of the graph."""
    torchs, x = model(), torch.randn(3, 6)
    traced, expected = torch.fx.symbolic_trace(torchs), torchs(x)
    nn.convert(traced, level=2)
    torch.testing.assert_close(traced(x), expected)
    assert torch.equal(traced(x), nn.convert(torchs, level=2)(x))


def test_make_fx_of_converted_layers():
    converted = nn.convert(model(), level=2)
    graph = make_fx(converted, tracing_mode="symbolic", _allow_non_fake_inputs=True)(torch.randn(2, 3, 6))
    ours = [n for n in graph.graph.nodes if "fastgemm" in str(n.target)]
    assert len(ours) == 2 and all(n.kwargs["level"] == 2 for n in ours)
    x = torch.randn(2, 3, 6)
    torch.testing.assert_close(graph(x), converted(x))
