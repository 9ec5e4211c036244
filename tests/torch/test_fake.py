"""Meta and fake tensors: shapes, dtypes, strides and errors without data, kernels or a GPU."""

from __future__ import annotations

import fastgemm
import pytest
import torch
from reference import every_device, kernels_that_ran
from test_compile import ops, samples
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode


def test_fake_results_match_real_ones():
    """Shape, dtype and strides, on meta tensors, which reach no kernel."""
    for op, arguments, keywords in samples():
        if "out" in keywords or op is ops.add_.default:
            continue
        real = op(*arguments, **keywords)
        on_meta = {name: x.to("meta") if isinstance(x, torch.Tensor) else x for name, x in keywords.items()}
        fake = op(*(x.to("meta") if isinstance(x, torch.Tensor) else x for x in arguments), **on_meta)
        assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride()), (
            op,
            keywords,
        )


CALLS = {
    "matmul": lambda a, b: fastgemm.matmul(a, b),
    "vectors": lambda a, b: fastgemm.matmul(a[0], b[:, 0]),
    "batch": lambda a, b: fastgemm.matmul(a.expand(2, 3, *a.shape), b, level=3),
    "gemm": lambda a, b: fastgemm.gemm(b, a, b.new_zeros(1), trans_a=True, trans_b=True, beta=2, level=6),
    "transpose": lambda a, b: fastgemm.transpose(a, level=4),
    "add": lambda a, b: fastgemm.add(a, a[0], alpha=2),
    "add_": lambda a, b: fastgemm.add_(a.clone(), a),
    "out": lambda a, b: fastgemm.matmul(a, b, out=a.new_empty(4, 5).t()),
}


def facts(x: torch.Tensor) -> tuple[object, ...]:
    return x.shape, x.dtype, x.stride(), x.requires_grad


@every_device
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_public_functions(name, dtype, device):
    """Meta and fake tensors tell what real ones give; no kernel runs."""
    a, b = torch.zeros(5, 7, dtype=dtype), torch.zeros(7, 4, dtype=dtype)
    if dtype == torch.int8 and name in ("gemm", "out"):
        pytest.skip("int8 products are int32, which these calls' c and out are not")
    real = CALLS[name](a, b)

    def without_data() -> None:
        with torch.device("meta"):
            meta = CALLS[name](a.to("meta"), b.to("meta"))
        assert meta.is_meta and facts(meta) == facts(real)
        with FakeTensorMode() as mode:
            fake = CALLS[name](mode.from_tensor(a), mode.from_tensor(b))
        assert isinstance(fake, FakeTensor) and facts(fake) == facts(real)
        assert fake.device.type == device

    for op in ("gemm", "transpose", "add"):
        assert kernels_that_ran(without_data, op) == []


def test_a_model_for_a_gpu_can_be_planned_without_one():
    with FakeTensorMode(allow_non_fake_inputs=True):
        a = torch.empty(2**20, 2**12, device="cuda", dtype=torch.bfloat16)  # 8 GiB that nobody has
        y = fastgemm.matmul(a, a.t(), level=6, out_dtype=torch.float32)
    assert (y.shape, y.dtype, y.device.type) == ((2**20, 2**20), torch.float32, "cuda")


@pytest.mark.parametrize("kind", ["meta", "fake"])
def test_gradients_twice(kind):
    with FakeTensorMode() if kind == "fake" else torch.device("meta"):
        a, b = torch.empty(5, 7, requires_grad=True), torch.empty(7, 4, requires_grad=True)
        y = fastgemm.transpose(fastgemm.matmul(a, b, level=2))
        (g,) = torch.autograd.grad(y.sin().sum(), a, create_graph=True)
        (h,) = torch.autograd.grad(fastgemm.add(g, a).sum(), b)
    assert (g.shape, h.shape) == (a.shape, b.shape)


def test_transforms_and_autocast():
    a, b = torch.empty(3, 5, 7, device="meta"), torch.empty(7, 4, device="meta")
    assert torch.vmap(fastgemm.matmul, (0, None))(a, b).shape == (3, 5, 4)
    assert torch.func.jacrev(lambda x: fastgemm.matmul(x, b))(a[0]).shape == (5, 4, 5, 7)
    with FakeTensorMode(), torch.autocast("cpu", torch.bfloat16):
        x = torch.empty(4, 4)
        assert fastgemm.matmul(x, x).dtype == torch.bfloat16


ERRORS = {
    "inner sizes": (ValueError, "inner sizes differ", lambda e: fastgemm.matmul(e(2, 3), e(4, 5))),
    "batches": (ValueError, "broadcast", lambda e: fastgemm.matmul(e(2, 3, 3), e(4, 3, 3))),
    "dtypes": (ValueError, "dtypes differ", lambda e: fastgemm.matmul(e(2, 3), e(3, 2).double())),
    "type": (TypeError, "not supported", lambda e: fastgemm.matmul(*[e(3, 3).to(torch.float8_e5m2)] * 2)),
    "rank": (ValueError, "at least 2 dimensions", lambda e: fastgemm.transpose(e(3))),
    "c": (ValueError, "does not broadcast", lambda e: fastgemm.gemm(e(2, 3), e(3, 2), e(4, 4))),
    "dtype of c": (ValueError, "c has dtype", lambda e: fastgemm.gemm(e(2, 3), e(3, 2), e(2, 2).half())),
    "alpha": (ValueError, "whole number", lambda e: fastgemm.gemm(e(2, 2).int(), e(2, 2).int(), alpha=1.5)),
    "out_dtype": (
        ValueError,
        "out_dtype=torch.float16 is not",
        lambda e: fastgemm.matmul(e(2, 2), e(2, 2), out_dtype=torch.float16),
    ),
    "shape of out": (
        ValueError,
        "out has shape",
        lambda e: fastgemm.matmul(e(2, 3), e(3, 4), out=e(2, 2)),
    ),
    "dtype of out": (ValueError, "out has dtype", lambda e: fastgemm.transpose(e(2, 3), out=e(3, 2).half())),
    "in place": (ValueError, "out has shape", lambda e: fastgemm.add_(e(3), e(2, 3))),
}


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("kind", ["meta", "fake"])
def test_bad_calls_are_refused_without_data(name, kind):
    error, match, call = ERRORS[name]
    with FakeTensorMode() if kind == "fake" else torch.device("meta"), pytest.raises(error, match=match):
        call(torch.empty)
