"""torch.library.opcheck, torch.compile with inductor, torch.export."""

from __future__ import annotations

import fastgemm
import pytest
import torch
from torch.library import opcheck

ops = torch.ops.fastgemm


def matrices(dtype=torch.float32, grad=False):
    a, b = torch.randn(3, 5).to(dtype), torch.randn(5, 4).to(dtype)
    return (a.requires_grad_(), b.requires_grad_()) if grad else (a, b)


def samples():
    """(op, arguments, keywords) for every op and overload."""
    a, b = matrices()
    ag, bg = matrices(torch.float64, grad=True)
    half = matrices(torch.bfloat16)
    batch = torch.randn(2, 3, 5), torch.randn(5, 4)
    integers = torch.randint(-9, 9, (3, 5)).char(), torch.randint(-9, 9, (5, 4)).char()
    c = torch.randn(3, 4)
    for op in (ops.gemm.default, ops._gemm.default):
        graded = op is ops.gemm.default
        yield op, (a, b), {}
        yield op, (ag, bg) if graded else (a, b), {"alpha": 2.0}
        yield op, (a, b, c), {"beta": 0.5, "level": 5, "impl": "microkernel", "precision": "ieee"}
        yield op, (b, a), {"trans_a": True, "trans_b": True}
        yield op, half, {"out_dtype": torch.float32}
        yield op, batch, {"level": 3}
        yield op, integers, {}
        yield op, (a.t().contiguous().t(), b[:, ::2]), {}
    yield ops.gemm.default, (ag, bg, torch.randn(4, dtype=torch.float64, requires_grad=True)), {"beta": 2.0}
    yield ops._matmul.default, (a, b), {}
    yield ops._matmul.default, batch, {}
    yield ops.gemm.out, (a, b), {"out": torch.empty(3, 4)}
    yield ops.gemm.out, (a, b, c), {"impl": "naive", "out": torch.empty(4, 3).t()}
    for op in (ops.transpose.default, ops._transpose.default):
        yield op, (ag if op is ops.transpose.default else a,), {}
        yield op, (torch.randn(2, 3, 5)[:, 1:],), {"level": 2, "impl": "blocked"}
        yield op, (torch.randint(9, (4, 6)),), {}
    yield ops.transpose.out, (a,), {"level": 4, "out": torch.empty(5, 3)}
    for op in (ops.add.default, ops._add.default):
        yield op, (ag, ag.detach()) if op is ops.add.default else (a, a), {"alpha": 2.0}
        yield op, (a, a[0]), {"level": 4}
    yield ops.add.out, (a, a), {"alpha": -1.0, "out": torch.empty(3, 5)}
    yield ops.add_.default, (c.clone(), c[0]), {"alpha": 3.0, "level": 1}


@pytest.mark.parametrize(
    "index", range(len(list(samples()))), ids=lambda i: list(samples())[i][0].name().split(":")[-1]
)
def test_opcheck(index):
    op, arguments, keywords = list(samples())[index]
    opcheck(op, arguments, keywords)


def test_every_overload_has_a_sample():
    tested = {op.name() for op, _, _ in samples()}
    registered = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("fastgemm::")}
    assert tested == registered


def test_fake_results_match_real_ones():
    """Shape, dtype and strides, on meta tensors, which reach no kernel."""
    for op, arguments, keywords in samples():
        if "out" in keywords or op is ops.add_.default:
            continue
        real = op(*arguments, **keywords)
        fake = op(*(x.to("meta") if isinstance(x, torch.Tensor) else x for x in arguments), **keywords)
        assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride()), (
            op,
            keywords,
        )


def network(x, w, c):
    """Every public function once, level and kernel, out and in place."""
    y = fastgemm.gemm(x, w, c, alpha=2.0, trans_b=True, level=5)
    y = fastgemm.add(y, fastgemm.transpose(fastgemm.transpose(y, level=2), kernel="simd"), alpha=0.5)
    y = fastgemm.matmul(y.sin(), w, kernel="microkernel") + fastgemm.matmul(x, w[0])[:, None]
    return y * fastgemm.matmul(w, x[0]).sum()


def test_compile_forward_and_backward():
    arguments = [torch.randn(*shape, dtype=torch.float64) for shape in ((6, 5), (5, 5), (5,))]
    eager = [x.clone().requires_grad_() for x in arguments]
    compiled = [x.clone().requires_grad_() for x in arguments]
    network(*eager).sum().backward()
    torch._dynamo.reset()
    result = torch.compile(network, fullgraph=True, backend="inductor")(*compiled)
    torch.testing.assert_close(result, network(*arguments))
    result.sum().backward()
    for x, y in zip(compiled, eager, strict=True):
        torch.testing.assert_close(x.grad, y.grad)


def writes(a, b, out):
    fastgemm.matmul(a, b, out=out, level=4)
    fastgemm.add_(out, out * 2, level=1)
    return fastgemm.transpose(out) + 1


def test_compile_out_and_in_place_with_dynamic_shapes():
    torch._dynamo.reset()
    compiled = torch.compile(writes, fullgraph=True, backend="inductor", dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for m, n, k in [(5, 7, 6), (9, 8, 12), (30, 20, 10)]:
            a, b, out = torch.randn(m, k), torch.randn(k, n), torch.full((m, n), torch.nan)
            result = compiled(a, b, out)
            torch.testing.assert_close(out, 3 * (a @ b), rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(result, (3 * (a @ b)).t() + 1, rtol=1e-4, atol=1e-4)


def test_compile_reports_errors():
    torch._dynamo.reset()
    compiled = torch.compile(lambda a, b: fastgemm.matmul(a, b), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="inner sizes differ"):
        compiled(torch.ones(3, 4), torch.ones(3, 4))


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 6))

    def forward(self, x):
        return fastgemm.transpose(fastgemm.gemm(x, self.weight, trans_b=True, level=6))


def test_export():
    layer, x = Layer(), torch.randn(5, 6)
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(layer, (x,), dynamic_shapes=({0: rows},))
    targets = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert {"fastgemm.gemm.default", "fastgemm.transpose.default"} <= targets
    other = torch.randn(11, 6)
    assert torch.equal(program.module()(other), layer(other))


def test_aot_eager_of_vectors_batches_and_c():
    def model(a, b, v, c):
        batch = fastgemm.gemm(a, b, c, beta=0.5)
        return fastgemm.matmul(batch, v), fastgemm.matmul(v, batch.mT), fastgemm.matmul(v, v)

    torch._dynamo.reset()
    arguments = torch.randn(2, 3, 4), torch.randn(4, 5), torch.randn(5), torch.randn(3, 1)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*arguments), model(*arguments))
