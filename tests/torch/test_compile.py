"""Tests torch.library.opcheck, and torch.compile with inductor: no graph break, copy or change of strides."""

import contextlib
import re

import fastgemm
import pytest
import torch
from reference import DEVICES, every_device
from torch._inductor.utils import run_and_get_code, run_fw_bw_and_get_code
from torch.library import opcheck
from torch.profiler import ProfilerActivity, profile

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
    for op in (ops.linear.default, ops._fused_linear.default):
        weight, bias = torch.randn(4, 5), torch.randn(4)
        yield op, (a, weight, bias), {"activation": "gelu", "residual": torch.randn(3, 4)}
        if op is ops.linear.default:
            yield op, (ag, weight.double(), bias.double().requires_grad_()), {"activation": "silu"}
    for op in (ops.grouped_mm.default, ops._grouped_mm.default):
        ends, bias = torch.tensor([1, 1, 3], dtype=torch.int32), torch.randn(3, 4)
        yield op, (a, torch.randn(3, 5, 4), ends, bias), {"activation": "silu", "level": 5}
        yield op, (torch.randn(3, 2, 5), b, ends), {"invariant": True}
        yield op, (a, b, ends), {}
        yield op, (torch.randn(2, 3, 5).bfloat16(), half[1].expand(2, 5, 4)), {"out_dtype": torch.float32}
        if op is ops.grouped_mm.default:
            yield op, (ag, torch.randn(3, 5, 4).double().requires_grad_(), ends, bias.double()), {}
            yield op, (ag, bg, ends), {}
    places = torch.tensor([[3, 0], [1, 2]], dtype=torch.int32)
    yield ops._route_tokens.default, (torch.tensor([[2, 0], [1, 5], [2, 2]]), 4), {}
    yield ops._combine_rows.default, (torch.randn(4, 5), places, torch.rand(2, 2)), {}
    weights = torch.rand(2, 2).double()
    yield (
        ops._combine_gradients.default,
        (torch.randn(2, 5), torch.randn(4, 5), places, weights, True, True),
        {},
    )
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
    # _linear consists of other ops, so opcheck does not apply to it. _gathered_mm is for GPUs alone. Those of
    # quantized and fp8 are checked there.
    quantized = ("quantized_linear", "_quantized_linear", "_dequantize")
    quantized += ("scaled_mm", "scaled_grouped_mm", "quantize_fp8", "_quantize_fp8_with_transposed")
    others = {"fastgemm::_linear", "fastgemm::_gathered_mm", *(f"fastgemm::{name}" for name in quantized)}
    assert tested == registered - others


def network(x, w, c):
    """Calls every public function once, with matrices, vectors and batches."""
    y = fastgemm.gemm(x, w, c, alpha=2.0, trans_b=True, level=5)
    y = fastgemm.add(y, fastgemm.transpose(fastgemm.transpose(y, level=2), kernel="simd"), alpha=0.5)
    y = fastgemm.matmul(y.sin(), w, kernel="microkernel") + fastgemm.matmul(x, w[0])[:, None]
    batch = fastgemm.gemm(torch.stack([y, 2 * y]), w, c[0], beta=0.5)
    return y * fastgemm.matmul(w, x[0]).sum() + fastgemm.matmul(c, batch.mT).sum() * fastgemm.matmul(c, c)


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


@every_device
def test_dynamic_shapes_compile_once():
    """A function that writes to out must compile once, and so must a forward and a backward pass."""
    torch._dynamo.reset()
    written = torch.compile(writes, fullgraph=True, backend="inductor", dynamic=True)
    passes = torch.compile(
        lambda a, b, c: fastgemm.gemm(a, b, c, trans_b=True, level=5).relu(), fullgraph=True, dynamic=True
    )
    with torch._dynamo.config.patch(error_on_recompile=True):
        for m, n, k in [(5, 7, 6), (9, 8, 12), (30, 20, 10)]:
            a, b, out = torch.randn(m, k), torch.randn(k, n), torch.full((m, n), torch.nan)
            result = written(a, b, out)
            torch.testing.assert_close(out, 3 * (a @ b), rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(result, (3 * (a @ b)).t() + 1, rtol=1e-4, atol=1e-4)
            a, b, c = (torch.randn(*shape, requires_grad=True) for shape in ((m, k), (n, k), (n,)))
            passes(a, b, c).sum().backward()
            exact = torch.autograd.grad((a @ b.t() + c).relu().sum(), (a, b, c))
            torch.testing.assert_close((a.grad, b.grad, c.grad), exact, rtol=1e-3, atol=1e-3)


def test_compile_reports_errors():
    torch._dynamo.reset()
    compiled = torch.compile(lambda a, b: fastgemm.matmul(a, b), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="inner sizes differ"):
        compiled(torch.ones(3, 4), torch.ones(3, 4))


# Tests inductor's code. inductor's caches on disk depend on graphs, not on the implementation of fastgemm's ops,
# so they are disabled here.


@contextlib.contextmanager
def without_caches():
    import torch._functorch.config

    with (
        torch._inductor.config.patch(fx_graph_cache=False),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        yield


def generated(function, *arguments, **options) -> tuple[object, str]:
    """Result and generated code of a compiled call."""
    torch._dynamo.reset()
    with without_caches():
        result, code = run_and_get_code(torch.compile(function, fullgraph=True, **options), *arguments)
    return result, "\n".join(code)


def buffers(code: str) -> int:
    """The number of tensors that the generated code allocates. fastgemm's ops allocate their own results."""
    return len(re.findall(r"= empty_strided_\w+\(", code))


VIEWS = {
    "transposed": (lambda x: x.t(), (32, 64)),
    "rows": (lambda x: x[::2], (128, 32)),
    "columns": (lambda x: x[:, 5:37], (64, 40)),
    "every other column": (lambda x: x[:, ::2], (64, 64)),
    "broadcast": (lambda x: x.expand(4, 64, 32), (64, 32)),
    "batch last": (lambda x: x.permute(2, 0, 1), (64, 32, 3)),
}


@every_device
def test_operands_are_passed_as_they_lie():
    """There must be no buffers besides the results, and the strides of an uncompiled call."""
    b, operands = torch.randn(32, 16), [torch.randn(shape) for _, shape in VIEWS.values()]

    def function(b, *operands):
        views = [make(x) for (make, _), x in zip(VIEWS.values(), operands, strict=True)]
        return [fastgemm.matmul(view, b) for view in views]

    results, code = generated(function, b, *operands)
    assert buffers(code) == 0, code
    for name, x, result, expected in zip(VIEWS, operands, results, function(b, *operands), strict=True):
        torch.testing.assert_close(result, expected)
        assert result.stride() == expected.stride(), name
        view = VIEWS[name][0](x)
        assert str(tuple(view.stride())) in code or view.is_contiguous(), code


@every_device
def test_what_is_computed_for_a_product_is_written_once_in_its_own_strides():
    a, b = torch.randn(64, 32), torch.randn(64, 32)
    _, code = generated(lambda a, b: fastgemm.matmul((a * 2).t(), b + 1), a, b)
    assert buffers(code) == 2, code  # one for each operand

    images = torch.randn(2, 4, 8, 8).to(memory_format=torch.channels_last)
    result, code = generated(lambda x, y: fastgemm.matmul(x.relu(), y), images, torch.randn(8, 8))
    assert buffers(code) == 1, code
    assert "(256, 1, 32, 4)" in code  # no copy of channels_last first
    assert result.is_contiguous()


@every_device
def test_results_feed_other_kernels_without_a_copy():
    """Calls use ops directly in C++. An op with an autograd formula would cost 4 us of Python per call."""
    a, b = torch.randn(64, 32), torch.randn(32, 16)
    _, code = generated(
        lambda a, b: fastgemm.add(fastgemm.transpose(fastgemm.matmul(a, b)), b.t()[:, :1]).relu(), a, b
    )
    assert buffers(code) == 0, code  # relu overwrites the sum
    called = set(re.findall(r"= torch\.ops\.fastgemm\.(\w+)\.default\(", code))
    assert called == {"_matmul", "_transpose", "_add"}

    def in_place(a, b):
        total = a * 2
        fastgemm.add_(total, a)
        out = torch.empty(64, 16, device=a.device)
        fastgemm.matmul(total, b, out=out)
        return out

    result, code = generated(in_place, a, b)
    torch.testing.assert_close(result, 3 * a @ b, rtol=1e-4, atol=1e-4)
    assert buffers(code) == 2, code  # total and out
    assert "clone" not in code and "auto_functionalized" not in code

    def into_inputs(a, b, out):
        fastgemm.matmul(a, b, out=out)
        fastgemm.add_(out, out)

    _, code = generated(into_inputs, a, b, torch.empty(64, 16))
    assert buffers(code) == 0 and "clone" not in code and "copy" not in code, code


@every_device
def test_the_backward_pass_makes_no_copies_either():
    a, b = torch.randn(64, 32, requires_grad=True), torch.randn(32, 16, requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(lambda a, b: fastgemm.matmul(a, b, level=3), fullgraph=True)
    with without_caches():
        _, code = run_fw_bw_and_get_code(lambda: compiled(a, b))
    code = "\n".join(code)
    assert code.count("torch.ops.fastgemm._gemm.default(") == 3, code
    assert code.count("level=3") == 3
    assert "clone" not in code
    ones = torch.ones(64, 16)
    torch.testing.assert_close((a.grad, b.grad), (ones @ b.t(), a.t() @ ones), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
@pytest.mark.parametrize("device", ["cuda"])
def test_reduced_overhead_is_one_launch_of_a_graph(device):
    torch._dynamo.reset()

    def chain(a, b):
        for _ in range(3):
            a = fastgemm.matmul(a, b).relu()
        return a

    a, b = torch.randn(32, 32), torch.randn(32, 32)
    compiled = torch.compile(chain, fullgraph=True, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(4):  # warm-up, capture, replay
            result = compiled(a, b).clone()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
            compiled(a, b)
            torch.cuda.synchronize()
    torch.testing.assert_close(result, chain(a, b), rtol=1e-4, atol=1e-3)
    launches = [e.name for e in recorded.events() if "Launch" in e.name]
    assert sum("GraphLaunch" in name for name in launches) == 1, launches
    assert len(launches) <= 2  # a copy of the operands, and a graph with six kernels
