"""Tests torch.export, strict or not, saved and loaded, and AOTInductor, which runs an op without Python."""

import subprocess
import sys

import fastgemm
import pytest
import torch
from processes import PATIENCE
from reference import every_device


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 6))
        self.register_buffer("bias", torch.randn(4))

    def forward(self, x):
        y = fastgemm.gemm(x, self.weight, self.bias, beta=0.5, trans_b=True, level=5)
        return fastgemm.add(fastgemm.transpose(y), fastgemm.matmul(self.weight, x.mT, precision="ieee"))


ROWS = torch.export.Dim("rows", min=2, max=1000)


def exported(strict: bool) -> tuple[Layer, torch.export.ExportedProgram]:
    layer = Layer()
    example = torch.randn(5, 6)
    return layer, torch.export.export(layer, (example,), dynamic_shapes=({0: ROWS},), strict=strict)


@every_device
@pytest.mark.parametrize("strict", [False, True])
def test_the_graph_holds_our_ops_and_takes_other_sizes(strict):
    layer, program = exported(strict)
    targets = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    ours = {f"fastgemm.{op}.default" for op in ("gemm", "transpose", "add")}
    assert ours == {target for target in targets if "fastgemm" in target}
    for rows in (2, 11, 700):
        x = torch.randn(rows, 6)
        assert torch.equal(program.module()(x), layer(x))


@every_device
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_can_be_trained(strict):
    layer, program = exported(strict)
    x = torch.randn(7, 6, requires_grad=True)

    def gradients(module):
        return torch.autograd.grad(module(x).square().sum(), (x, *module.parameters()))

    got, exact = gradients(program.module()), gradients(layer)
    assert len(got) == 2 and all(torch.equal(g, e) for g, e in zip(got, exact, strict=True))


def test_decompositions_keep_our_ops():
    _, program = exported(strict=False)
    targets = {str(n.target) for n in program.run_decompositions().graph.nodes if n.op == "call_function"}
    assert {"fastgemm._gemm.default", "fastgemm._transpose.default", "fastgemm._add.default"} <= targets


LOAD = """
import sys, torch, fastgemm
package, data = sys.argv[1:]
run = torch._inductor.aoti_load_package(package)
with torch.no_grad():
    for x, expected in torch.load(data):
        assert torch.equal(run(x), expected), (run(x) - expected).abs().max()
print("right")
"""


def test_aot_inductor_package(tmp_path):
    """The model is compiled ahead of time. Another process, without the model, loads it and runs other sizes."""
    layer, program = exported(strict=False)
    quickly = {"aot_inductor.compile_wrapper_opt_level": "O0"}  # halves the test's time
    path = str(tmp_path / "layer.pt2")
    package = torch._inductor.aoti_compile_and_package(program, package_path=path, inductor_configs=quickly)
    inputs = [torch.randn(rows, 6) for rows in (2, 5, 90)]
    with torch.no_grad():
        torch.save([(x, layer(x)) for x in inputs], tmp_path / "data.pt")
    command = [sys.executable, "-c", LOAD, package, str(tmp_path / "data.pt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.strip().endswith("right"), done.stderr[-2000:]
