"""Tests meta and fake tensors: shapes, dtypes and strides without data, kernels or a GPU.

They must accept and refuse the same calls as real tensors. Errors that no kernel decides: test_bad_input.py.
"""

from collections.abc import Callable
from typing import Any

import fastgemm
import pytest
import torch
from reference import DTYPES, every_device, kernels_that_ran, rows
from test_compile import ops, samples
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from without_data import KINDS, Make, error_of, raised


def test_fake_results_match_real_ones():
    """Compares shape, dtype and strides of meta tensors, which reach no kernel."""
    for op, arguments, keywords in samples():
        if "out" in keywords or op is ops.add_.default:
            continue
        real = op(*arguments, **keywords)
        on_meta = {name: x.to("meta") if isinstance(x, torch.Tensor) else x for name, x in keywords.items()}
        fake = op(*(x.to("meta") if isinstance(x, torch.Tensor) else x for x in arguments), **on_meta)
        pairs = zip(fake, real, strict=True) if isinstance(real, tuple) else [(fake, real)]
        for x, y in pairs:
            assert (x.shape, x.dtype, x.stride()) == (y.shape, y.dtype, y.stride()), (op, keywords)


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
    """Meta and fake tensors must have the properties of real results, and no kernel may run."""
    a, b = torch.zeros(5, 7, dtype=dtype), torch.zeros(7, 4, dtype=dtype)
    if dtype == torch.int8 and name in ("gemm", "out"):
        pytest.skip("int8 products are int32, but c and out of these calls are not")
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
        a = torch.empty(2**20, 2**12, device="cuda", dtype=torch.bfloat16)  # 8 GiB that are never allocated
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


# Messages of meta tensors differ, because they do not reach C++.
ERRORS = {
    "inner sizes differ: 3 and 4": lambda e: fastgemm.matmul(e(2, 3), e(4, 5)),
    "batches of (2,) and (4,) do not broadcast": lambda e: fastgemm.matmul(e(2, 3, 3), e(4, 3, 3)),
    "dtypes differ: torch.float32 and torch.float64": lambda e: fastgemm.matmul(e(3, 3), e(3, 3).double()),
    "at least 2 dimensions": lambda e: fastgemm.transpose(e(3)),
    "c has shape (4, 4), which does not broadcast": lambda e: fastgemm.gemm(e(2, 3), e(3, 2), e(4, 4)),
    "c has dtype torch.float16": lambda e: fastgemm.gemm(e(2, 3), e(3, 2), e(2, 2).half()),
    "alpha must be a whole number": lambda e: fastgemm.gemm(e(2, 2).int(), e(2, 2).int(), alpha=1.5),
    "out_dtype=torch.float16 is not": lambda e: fastgemm.matmul(e(2, 2), e(2, 2), out_dtype=torch.float16),
    "out has shape (2, 2), expected (2, 4)": lambda e: fastgemm.matmul(e(2, 3), e(3, 4), out=e(2, 2)),
    "there is no gemm kernel 'naife'": lambda e: fastgemm.matmul(e(2, 2), e(2, 2), kernel="naife"),
    "level 3 cannot run add": lambda e: fastgemm.add(e(3), e(3), level=3),
}


@pytest.mark.parametrize("text", ERRORS)
@pytest.mark.parametrize("kind", ["meta", "fake"])
def test_messages_about_bad_input(text, kind):
    assert text in str(error_of(kind, ERRORS[text]))


GOOD: dict[str, Callable[[Make], object]] = {
    "out is c": lambda e: fastgemm.gemm(e(3, 4), e(4, 5), x := e(3, 5), out=x),
    "beta 0, no c": lambda e: fastgemm.gemm(e(3, 4), e(4, 5), beta=0),
    "c unread": lambda e: fastgemm.gemm(e(3, 4), e(4, 5), e(5), beta=0),
    "c of one element": lambda e: fastgemm.gemm(e(2, 3, 4), e(4, 5), e(1, 1)),
    "whole alpha": lambda e: fastgemm.gemm(e(3, 4).int(), e(4, 5).int(), alpha=-3.0),
    "out beside a in one matrix": lambda e: fastgemm.matmul((x := e(4, 8))[:, :4], e(4, 4), out=x[:, 4:]),
    "out below a in one matrix": lambda e: fastgemm.matmul((x := e(8, 4))[:4], e(4, 4), out=x[4:]),
    "out with a leading dimension": lambda e: fastgemm.matmul(e(3, 4), e(4, 5), out=e(3, 9)[:, 2:7]),
    "out transposed": lambda e: fastgemm.matmul(e(3, 4), e(4, 5), out=e(5, 3).t()),
    "out of nothing, expanded": lambda e: fastgemm.matmul(e(0, 4), e(4, 5), out=e(1, 5).expand(0, 5)),
    "K = 0": lambda e: fastgemm.matmul(e(3, 0), e(0, 5), level=3),
    "batch of 0": lambda e: fastgemm.matmul(e(0, 3, 4), e(1, 4, 5)),
    "64 dimensions": lambda e: fastgemm.matmul(e(*[1] * 62, 3, 4), e(4, 5)),
    "ieee of integers": lambda e: fastgemm.matmul(e(3, 4).int(), e(4, 5).int(), precision="ieee"),
    "complex transpose": lambda e: fastgemm.transpose(e(3, 4).to(torch.complex128), level=5),
    "add, out is a and b": lambda e: fastgemm.add(x := e(3, 4), x, out=x),
    "add_ of itself": lambda e: fastgemm.add_(x := e(3, 4), x),
    "add_ of a row of itself": lambda e: fastgemm.add_(e(3, 4), e(1, 4)),
}


@every_device
@pytest.mark.parametrize("name", GOOD)
def test_calls_that_work_with_data_work_without(name, device):
    assert raised(GOOD[name]) == dict.fromkeys(KINDS)


def choice_calls(op: str, dtype: torch.dtype, **choice: Any) -> Callable[[Make], object]:
    function = {"gemm": fastgemm.gemm, "transpose": fastgemm.transpose, "add": fastgemm.add}[op]

    def call(make: Make) -> object:
        x = make(4, 4).to(dtype)
        return function(x, **choice) if op == "transpose" else function(x, x, **choice)

    return call


@pytest.mark.parametrize("op", ["gemm", "transpose", "add"])
def test_every_level_and_kernel_of_every_dtype(op):
    """Tests refusals that follow from the kernel table. torch's row is left out, because it also depends on flags,
    and so are rows that this CPU cannot run. Whether a level or precision may be given with a kernel depends on
    the kernel's name.
    """
    on_cpu = {row.name for row in fastgemm.kernels(op, "cpu")}
    names = {name for device, name, _ in rows(op, "cpu") if name != "torch"}
    names |= {row.name for row in fastgemm.kernels(op, "cuda")} - on_cpu
    given = [{"level": level} for level in range(9)] + [{"kernel": name} for name in sorted(names)]
    calls = [(dtype, choice) for dtype in DTYPES for choice in given]
    more = [{"level": 2}, {"precision": "tf32"}, {"precision": "bf16x6"}][: 3 if op == "gemm" else 1]
    calls += [(torch.float32, choice | each) for choice in given for each in more]
    wrong = {}
    for dtype, choice in calls:
        call = choice_calls(op, dtype, **choice)
        real, fake = type(error_of("real", call)), type(error_of("fake", call))
        if real is not fake:
            wrong[f"{dtype} {choice}"] = (real, fake)
    assert wrong == {}


def test_the_ops_themselves_refuse_as_the_functions_do():
    """Tests torch.ops.fastgemm, which graphs call without the public functions."""
    ops = torch.ops.fastgemm
    calls: dict[str, Callable[[Make], object]] = {
        "level": lambda e: ops._gemm(e(3, 4), e(4, 5), level=0),
        "kernel": lambda e: ops.gemm(e(3, 4), e(4, 5), impl="naife"),
        "precision": lambda e: ops.gemm(e(3, 4), e(4, 5), precision="high"),
        "batches": lambda e: ops._matmul(e(2, 3, 3), e(4, 3, 3)),
        "transpose": lambda e: ops._transpose(e(3, 4), level=8),
        "add": lambda e: ops.add.out(e(3), e(3), level=9, out=e(3)),
        "add_": lambda e: ops.add_(e(3), e(3), impl="naife"),
    }
    for name, call in calls.items():
        assert raised(call) == dict.fromkeys(KINDS, ValueError), name
