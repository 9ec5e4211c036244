"""Tests the ONNX export of converted and fused models. Ops and values must be those of torch's model."""

import copy

import fastgemm
import pytest
import torch
from fastgemm.nn import convert, fuse
from torch import nn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
reference = pytest.importorskip("onnx.reference")

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # warnings of the exporters
    pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "TorchScript"]),
]


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4, bias=False), nn.SiLU()).eval()


def exported(net: nn.Module, x: torch.Tensor, dynamo: bool, path) -> tuple[list[str], torch.Tensor]:
    file = str(path / "model.onnx")
    torch.onnx.export(net, (x,), file, dynamo=dynamo, input_names=["x"], verbose=False)
    graph = onnx.load(file)
    (out,) = reference.ReferenceEvaluator(graph).run(None, {"x": x.numpy()})
    return [node.op_type for node in graph.graph.node], torch.tensor(out)


@pytest.mark.parametrize(
    "change",
    [convert, lambda net: fuse(net, kernel="naive", precision="ieee")],
    ids=["convert", "fuse, kernel"],
)
def test_a_model(change, dynamo, tmp_path):
    # A matrix has other types of ops than a sequence.
    torchs, x = model(), torch.randn((3, 8) if change is convert else (2, 3, 8))
    own = change(copy.deepcopy(torchs))
    ops, values = exported(own, x, dynamo, tmp_path)
    assert ops == exported(torchs, x, dynamo, tmp_path)[0]
    torch.testing.assert_close(values, torchs(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(own(x), torchs(x), rtol=1e-4, atol=1e-5)


def test_layers_with_an_activation(dynamo, tmp_path):
    kinds = ("relu", "gelu", "gelu_tanh", "silu")
    own = nn.Sequential(*(fastgemm.nn.Linear(8, 8, activation=kind) for kind in kinds)).eval()
    x = torch.randn(3, 8)
    ops, values = exported(own, x, dynamo, tmp_path)
    assert ops[0] == "Gemm" and ops.count("Gemm") == 4
    torch.testing.assert_close(values, own(x), rtol=1e-4, atol=1e-5)


def test_compiled_after_it_was_exported(dynamo, tmp_path):
    net, x, graphs = convert(model()), torch.randn(3, 8), []
    exported(net, x, dynamo, tmp_path)

    def backend(graph, _):
        graphs.append(str(graph.graph))
        return graph

    torch.compiler.reset()
    torch.compile(net, backend=backend)(x)
    assert "fastgemm.gemm" in graphs[0]
