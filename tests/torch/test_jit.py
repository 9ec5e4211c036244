"""Tests TorchScript: converted layers are traced or scripted, saved, loaded in another process, and trained."""

import copy
import io
import warnings

import fastgemm
import pytest
import torch
from fastgemm import nn
from processes import run_forked
from reference import every_device

pytestmark = [every_device, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
SHAPES = (6,), (1, 6), (5, 6), (2, 3, 6), (2, 1, 3, 6), (0, 6)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 8)
        self.rest = torch.nn.Sequential(torch.nn.GELU(), torch.nn.Linear(8, 4, bias=False))

    def forward(self, x):
        return self.rest(self.first(x))


def by_trace(module):
    return torch.jit.trace(module, torch.randn(5, 6))


def by_trace_without_gradients(module):
    with torch.no_grad():
        return torch.jit.trace(module, torch.randn(5, 6))


each_way = pytest.mark.parametrize("compiled", [by_trace, by_trace_without_gradients, torch.jit.script])


def gradients(module, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(module(x).square().sum(), (x, *module.parameters()))


def assert_same(own, expected):
    for shape in SHAPES:
        x = torch.randn(*shape)
        for _ in range(3):  # TorchScript optimizes a graph after two runs
            assert torch.equal(own(x), expected(x))
            for left, right in zip(gradients(own, x), gradients(expected, x), strict=True):
                torch.testing.assert_close(left, right)


@each_way
def test_the_graph_holds_our_op_and_takes_inputs_of_any_rank(compiled, device):
    model = nn.convert(Model(), level=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the warning that Python values were recorded
        warnings.simplefilter("ignore", DeprecationWarning)
        script = compiled(model)
    assert len(script.inlined_graph.findAllNodes("fastgemm::gemm")) == 2
    assert_same(script, model)
    assert type(model.first) is nn.Linear  # the model itself stays as it was


LOAD = """
import torch, fastgemm
script = torch.jit.load("{folder}/model.pt")
x, expected, gradients = torch.load("{folder}/data.pt")
result = script(x)
result.square().sum().backward()
torch.testing.assert_close(result, expected)
for parameter, gradient in zip(script.parameters(), gradients, strict=True):
    torch.testing.assert_close(parameter.grad, gradient)
print("right")
"""


@each_way
def test_saved_loaded_in_another_process_and_trained(compiled, tmp_path, device):
    model, x = nn.convert(Model(), level=5), torch.randn(2, 3, 6)
    compiled(model).save(tmp_path / "model.pt")
    torch.save((x, model(x).detach(), gradients(model, x)[1:]), tmp_path / "data.pt")
    done = run_forked(LOAD.format(folder=tmp_path))
    assert done.stdout.strip() == "right", done.stderr[-2000:]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_other_dtypes(dtype, device):
    model = nn.convert(torch.nn.Linear(6, 4, dtype=dtype), precision="bf16x6")  # only for float32 products
    x = torch.randn(2, 5, 6).to(dtype)
    for compiled in torch.jit.script(model), torch.jit.trace(model, x):
        assert torch.equal(compiled(x), model(x))


@each_way
def test_under_autocast(compiled, device):
    model = nn.convert(Model())
    script, x = compiled(model), torch.randn(5, 6)
    with torch.autocast(device, torch.bfloat16, cache_enabled=False):
        for _ in range(3):
            assert script(x).dtype == torch.bfloat16
            torch.testing.assert_close(script(x), model(x), rtol=0.03, atol=0.03)
            torch.testing.assert_close(script(x.bfloat16()), model(x.bfloat16()), rtol=0.03, atol=0.03)


def test_a_trace_made_under_autocast_keeps_the_casts(device):
    torchs, x = Model(), torch.randn(5, 6)
    own = nn.convert(copy.deepcopy(torchs))
    with torch.autocast(device, torch.bfloat16, cache_enabled=False):
        torchs, own = by_trace(torchs), by_trace(own)
    assert own(x).dtype == torchs(x).dtype == torch.bfloat16
    torch.testing.assert_close(own(x), torchs(x), rtol=0.03, atol=0.03)
    for left, right in zip(gradients(own, x), gradients(torchs, x), strict=True):
        assert left.dtype == right.dtype == torch.float32
        torch.testing.assert_close(left, right, rtol=0.05, atol=0.05)


def test_a_scripted_function_may_call_linear(device):
    def function(x, weight):
        return nn.linear(x, weight, level=2) + 1

    x, weight = torch.randn(2, 3, 6), torch.randn(4, 6)
    assert torch.equal(torch.jit.script(function)(x, weight), function(x, weight))


@each_way
def test_torch_computes_what_fastgemm_does_not_take(compiled, device):
    """A graph that was traced with one kind of tensor may get another kind."""
    torchs = torch.nn.Linear(6, 4)
    script = compiled(nn.convert(copy.deepcopy(torchs)))
    with torch.jit.optimized_execution(False):
        x = torch.randn(5, 6).to_sparse()
        torch.testing.assert_close(script(x), torchs(x))
        for x in (torch.randn(5, 7), torch.randn(5, 6, dtype=torch.float64), torch.randn(())):
            with pytest.raises(RuntimeError):
                torchs(x)
            with pytest.raises(RuntimeError):
                script(x)


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda a, b: fastgemm.matmul(a, b, level=4), torch.matmul),
        (lambda a, b: fastgemm.matmul(a[0], b), lambda a, b: a[0] @ b),
        (
            lambda a, b: fastgemm.gemm(a, b, a.sum() * torch.ones_like(b), alpha=2.0),
            lambda a, b: 2 * a @ b + a.sum(),
        ),
        (lambda a, b: fastgemm.transpose(a), lambda a, b: a.mT),
        (lambda a, b: fastgemm.add(a, b, alpha=3.0), lambda a, b: a + 3 * b),
        (lambda a, b: fastgemm.add_(a * 1, b), lambda a, b: a + b),
    ],
    ids=["matmul", "vector", "gemm", "transpose", "add", "add_"],
)
def test_a_traced_call_keeps_its_gradients(ours, theirs, gradients):
    """Gradients work even if they were not needed during tracing, and after saving."""
    a, b = torch.randn(6, 6, requires_grad=True), torch.randn(6, 6, requires_grad=True)
    with torch.set_grad_enabled(gradients):
        traced = torch.jit.trace(ours, (torch.randn(6, 6), torch.randn(6, 6)))
    stored = io.BytesIO()
    torch.jit.save(traced, stored)
    stored.seek(0)
    result, expected = torch.jit.load(stored)(a, b), theirs(a, b)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    for got, right in zip(
        torch.autograd.grad(result.square().sum(), (a, b), allow_unused=True),
        torch.autograd.grad(expected.square().sum(), (a, b), allow_unused=True),
        strict=True,
    ):
        assert (got is None) == (right is None)
        if right is not None:
            torch.testing.assert_close(got, right, rtol=1e-3, atol=1e-3)


def test_a_traced_call_is_checked_as_any_other():
    a, out = torch.randn(4, 4), torch.empty(4, 4)
    with torch.inference_mode():
        fixed = torch.empty(4, 4)

    def into(target):
        return torch.jit.trace(lambda x: fastgemm.matmul(x, x, out=target), a, check_trace=False)

    version = out._version
    into(out)
    assert out._version > version
    with pytest.raises(RuntimeError, match="inference tensor"):
        into(fixed)
    with pytest.raises(TypeError, match="uint16"):
        torch.jit.trace(
            lambda x: fastgemm.matmul(x.to(torch.uint16), x.to(torch.uint16)), a, check_trace=False
        )


def test_experts_are_saved(device):
    gate_up, down = torch.randn(4, 12, 8, device=device), torch.randn(4, 8, 6, device=device)
    ids, weights = torch.randint(0, 4, (5, 2), device=device), torch.rand(5, 2, device=device)
    x = torch.randn(5, 8, device=device)
    for given in (x, x.clone().requires_grad_()):
        script = torch.jit.trace(lambda x: fastgemm.moe(x, gate_up, down, ids, weights), given)
        file = io.BytesIO()
        torch.jit.save(script, file)
        file.seek(0)
        own, expected = torch.jit.load(file)(given), fastgemm.moe(given, gate_up, down, ids, weights)
        torch.testing.assert_close(own, expected)
