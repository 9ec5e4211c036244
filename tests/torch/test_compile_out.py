"""Tests results that compiled and exported code writes into tensors that it is given."""

import fastgemm
import pytest
import torch


def into_views(a, b, out):
    fastgemm.matmul(a, b, out=out[1])
    fastgemm.add_(out[2], out[1])
    fastgemm.transpose(out[1].mT, out=out[3])
    fastgemm.gemm(a, b, out[4], beta=1.0, out=out[4])


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_views_with_an_offset_that_depends_on_a_size_are_written(dtype, mode):
    torch._dynamo.reset()
    compiled = torch.compile(into_views, fullgraph=True, dynamic=True)
    for m in (5, 9):
        a, b = torch.randn(m, 6, dtype=dtype), torch.randn(6, 7, dtype=dtype)
        out, expected = torch.ones(5, m, 7, dtype=dtype), torch.ones(5, m, 7, dtype=dtype)
        with mode():
            compiled(a, b, out), into_views(a, b, expected)
        torch.testing.assert_close(out, expected)


def test_an_exported_program_writes_into_views():
    class Layer(torch.nn.Module):
        def forward(self, a, b, out):
            into_views(a, b, out)
            return out.sum()

    rows = torch.export.Dim("rows", min=2)
    example = torch.randn(4, 6), torch.randn(6, 7), torch.ones(5, 4, 7)
    program = torch.export.export(Layer(), example, dynamic_shapes=({0: rows}, None, {1: rows}))
    for module in (program.module(), program.run_decompositions().module()):
        a, b, out, expected = torch.randn(9, 6), example[1], torch.ones(5, 9, 7), torch.ones(5, 9, 7)
        module(a, b, out), into_views(a, b, expected)
        torch.testing.assert_close(out, expected)


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (torch.empty(3, 6), r"out has shape \(3, 6\), expected \(3, 5\)"),
        (torch.empty(1, 3, 5), r"out has shape \(1, 3, 5\), expected \(3, 5\)"),
        (torch.empty(3, 5, dtype=torch.float64), "out has dtype torch.float64, expected torch.float32"),
        (torch.empty(3, 5, device="meta"), "out.* on meta|one device"),
    ],
)
@pytest.mark.parametrize("is_view", [False, True])
def test_compiled_code_refuses_another_out(is_view, out, said):
    def run(a, b, out):
        return fastgemm.matmul(a, b, out=out.view(out.shape) if is_view else out)

    torch._dynamo.reset()
    with pytest.raises(Exception, match=said):
        torch.compile(run, backend="eager", fullgraph=True)(torch.ones(3, 4), torch.ones(4, 5), out)
