"""Tests that calls which cannot work raise an error, instead of a wrong gradient, tangent or shape."""

import json

import fastgemm
import pytest
import torch
from fastgemm import _errors, _introspect
from processes import run_forked
from reference import every_device
from torch.autograd import forward_ad


def test_compiled_add_in_place_keeps_both_gradients():
    def total(x, y):
        z = x * 1.0
        fastgemm.add_(z, y, alpha=2.0)
        return (z * z).sum()

    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    expected = torch.autograd.grad(total(x, y), (x, y))
    compiled = torch.autograd.grad(torch.compile(total, fullgraph=True, backend="aot_eager")(x, y), (x, y))
    torch.testing.assert_close(compiled, expected)


def test_compiled_out_with_gradient_raises():
    def product(a, b, out):
        return fastgemm.matmul(a, b, out=out)

    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5)
    with pytest.raises(Exception, match="automatic differentiation"):
        torch.compile(product, backend="aot_eager")(a, b, torch.empty(3, 5))


def test_out_under_forward_mode_raises():
    a = torch.ones(2, 2)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(a, a)
        with pytest.raises(RuntimeError, match="forward-mode"):
            fastgemm.matmul(dual, a, out=torch.empty(2, 2))


def written(shape=(3, 3), mode=True):
    with torch.inference_mode(mode):
        return torch.ones(shape)


@pytest.mark.parametrize(("level", "error"), [(True, TypeError), (2**64, ValueError)])
@pytest.mark.parametrize(
    "use",
    [
        lambda level: fastgemm.patch(level),
        lambda level: fastgemm.nn.Linear(2, 2, level=level),
        lambda level: fastgemm.nn.convert(torch.nn.Linear(2, 2), level=level),
        lambda level: torch.func.grad(lambda x: fastgemm.matmul(x, x, level=level).sum())(torch.ones(2, 2)),
        lambda level: fastgemm.matmul(torch.ones(2, requires_grad=True), torch.ones(2), level=level),
        lambda level: fastgemm.transpose(torch.ones(2, 2, requires_grad=True), level=level),
        lambda level: fastgemm.add_(torch.ones(2), torch.ones(2, requires_grad=True), level=level),
    ],
)
def test_what_is_no_level_is_refused_wherever_it_is_given(use, level, error):
    with pytest.raises(error, match="level must be"):
        use(level)


WRITES = {
    "matmul": lambda out: fastgemm.matmul(torch.eye(3), torch.ones(3, 3), out=out),
    "matmul of a vector": lambda out: fastgemm.matmul(torch.eye(3), torch.ones(3), out=out[0]),
    "gemm": lambda out: fastgemm.gemm(torch.eye(3), torch.ones(3, 3), level=2, out=out),
    "gemm onto c": lambda out: fastgemm.gemm(torch.zeros(3, 3), torch.ones(3, 3), out, out=out),
    "gemm into a view": lambda out: fastgemm.gemm(torch.eye(3), torch.ones(3, 3), out=out.t()),
    "transpose": lambda out: fastgemm.transpose(torch.ones(3, 3), out=out),
    "add": lambda out: fastgemm.add(torch.zeros(3, 3), torch.ones(3, 3), out=out),
    "add to out": lambda out: fastgemm.add(out, torch.zeros(3, 3), out=out),
    "add_": lambda out: fastgemm.add_(out, torch.zeros(3)),
    "add_ of a gradient": lambda out: fastgemm.add_(out, torch.zeros(3, requires_grad=True)),
}


@every_device
@pytest.mark.parametrize("name", WRITES)
def test_an_inference_tensor_is_written_in_inference_mode_alone(name, device):
    """Outside of inference mode torch refuses it, because the tensor has no version counter."""
    write, out = WRITES[name], written()
    before = out.clone()
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
        write(out)
    assert torch.equal(out, before)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
        written().add_(1)
    with torch.inference_mode():
        write(out)
        write(written(mode=False))
    write(written(mode=False))


def test_vmaps_dimension_does_not_count_as_one_of_the_operand():
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        torch.vmap(fastgemm.transpose)(torch.randn(3, 4))
    b = torch.randn(4, 5)
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        torch.vmap(lambda x: fastgemm.gemm(x, b))(torch.randn(3, 4))


def test_a_zero_beta_shields_c_from_an_infinite_gradient():
    a, c = torch.ones(2, 2), torch.ones(2, 2, requires_grad=True)
    result = fastgemm.gemm(a, a, c, beta=0.0)
    result.backward(torch.full((2, 2), float("inf")))
    assert torch.equal(c.grad, torch.zeros(2, 2))


WITHOUT_GPU = """
import json, os
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import fastgemm
print(json.dumps({row.op + " " + row.name: row.unavailable for row in fastgemm.kernels(device="cuda")}))
"""


def test_cuda_rows_say_why_they_cannot_run_without_a_gpu():
    done = run_forked(WITHOUT_GPU)
    reasons = json.loads(done.stdout)
    assert len(reasons) > 10, done.stderr
    built = fastgemm.build_info()["cuda_archs"] != ""
    expected = "no CUDA device" if built else "this build has no CUDA kernels (build where nvcc is installed"
    assert all(why is not None and expected in why for why in reasons.values()), reasons


def test_cuda_tensors_in_a_build_without_cuda_say_how_to_build(monkeypatch):
    monkeypatch.setattr(_introspect, "build_info", lambda: {"cuda_kernels": False})
    with pytest.raises(
        RuntimeError, match=r"built without CUDA kernels, but got CUDA tensors.*FASTGEMM_CUDA=1"
    ):
        _errors._explain_cuda(NotImplementedError("Could not run 'fastgemm::_gemm' with 'CUDA' tensors"))
