"""Meta and fake tensors refuse what real ones refuse, with the same type of exception, so far as no data is needed
to know it; and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import fastgemm
import pytest
import torch
from reference import DTYPES, every_device, rows
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

Make = Callable[..., Tensor]
KINDS = ("real", "meta", "fake")


@contextmanager
def tensors(kind: str) -> Iterator[Make]:
    """Gives what makes tensors of a kind, of zeros."""
    if kind == "fake":
        with FakeTensorMode():
            yield lambda *shape: torch.zeros(shape)
    else:
        yield lambda *shape: torch.zeros(shape, **({"device": "meta"} if kind == "meta" else {}))


def elsewhere(x: Tensor) -> Tensor:
    """The like of it on another device."""
    return torch.zeros_like(x, device="cpu" if x.device.type != "cpu" else "meta")


def raised(kind: str, call: Callable[[Make], object]) -> type[BaseException] | None:
    with tensors(kind) as make:
        try:
            call(make)
        except Exception as error:
            return type(error)
    return None


def many(x: Tensor) -> Tensor:
    """65 dimensions, one more than supported."""
    return x.reshape([1] * (65 - x.dim()) + list(x.shape))


def choices(
    call: Callable[..., Callable[[Make], object]],
) -> dict[str, tuple[type, Callable[[Make], object]]]:
    """Of level and kernel, whatever the op."""
    bad = {
        "level 0": (ValueError, {"level": 0}),
        "level 8": (ValueError, {"level": 8}),
        "level -1": (ValueError, {"level": -1}),
        "level 2**40": (ValueError, {"level": 2**40}),
        "level 2**64": (ValueError, {"level": 2**64}),
        "level -2**63": (ValueError, {"level": -(2**63)}),
        "level True": (TypeError, {"level": True}),
        "level False": (TypeError, {"level": False}),
        "level a string": (TypeError, {"level": "fast"}),
        "level a float": (TypeError, {"level": 1.5}),
        "kernel": (ValueError, {"kernel": "naife"}),
        "kernel ''": (ValueError, {"kernel": ""}),
        "kernel a number": (TypeError, {"kernel": 5}),
        "kernel of another level": (ValueError, {"kernel": "naive", "level": 2}),
        "kernel and level 0": (ValueError, {"kernel": "naive", "level": 0}),
    }
    return {name: (error, call(**options)) for name, (error, options) in bad.items()}


def product(function: Callable[..., Tensor]) -> dict[str, tuple[type, Callable[[Make], object]]]:
    f = function
    return {
        **choices(lambda **options: lambda e: f(e(3, 4), e(4, 5), **options)),
        **{
            f"{name}, nothing to multiply": case
            for name, case in choices(lambda **options: lambda e: f(e(0, 4), e(4, 5), **options)).items()
        },
        "inner sizes": (ValueError, lambda e: f(e(3, 4), e(3, 4))),
        "batches": (ValueError, lambda e: f(e(2, 3, 3), e(4, 3, 3))),
        "batches, one dimension of two": (ValueError, lambda e: f(e(5, 2, 3, 3), e(4, 1, 3, 3))),
        "dtypes": (ValueError, lambda e: f(e(3, 4), e(4, 5).double())),
        "float8": (TypeError, lambda e: f(e(3, 4).to(torch.float8_e5m2), e(4, 5).to(torch.float8_e5m2))),
        "uint16": (TypeError, lambda e: f(e(3, 4).to(torch.uint16), e(4, 5).to(torch.uint16))),
        "bytes and int16": (ValueError, lambda e: f(e(3, 4).byte(), e(4, 5).short())),
        "out_dtype of int16": (
            ValueError,
            lambda e: f(e(3, 4).short(), e(4, 5).short(), out_dtype=torch.int16),
        ),
        "out_dtype of int64": (
            ValueError,
            lambda e: f(e(3, 4).long(), e(4, 5).long(), out_dtype=torch.int32),
        ),
        "bool and float": (ValueError, lambda e: f(e(3, 4).bool(), e(4, 5))),
        "dtype of b alone": (TypeError, lambda e: f(e(3, 4), e(4, 5).to(torch.uint16))),
        "devices": (ValueError, lambda e: f(e(3, 4), elsewhere(e(4, 5)))),
        "no tensor": (TypeError, lambda e: f(e(3, 4), [1.0])),
        "sparse": (NotImplementedError, lambda e: f(e(3, 4).to_sparse(), e(4, 5))),
        "dimensions": (ValueError, lambda e: f(many(e(3, 4)), e(4, 5))),
        "dimensions of b": (ValueError, lambda e: f(e(3, 4), many(e(4, 5)))),
        "precision": (ValueError, lambda e: f(e(3, 4), e(4, 5), precision="high")),
        "precision ''": (ValueError, lambda e: f(e(3, 4), e(4, 5), precision="")),
        "precision a number": (TypeError, lambda e: f(e(3, 4), e(4, 5), precision=3)),
        "precision of float64": (
            ValueError,
            lambda e: f(e(3, 4).double(), e(4, 5).double(), precision="tf32"),
        ),
        "precision of int32": (ValueError, lambda e: f(e(3, 4).int(), e(4, 5).int(), precision="bf16x6")),
        "out_dtype": (ValueError, lambda e: f(e(3, 4), e(4, 5), out_dtype=torch.float64)),
        "out_dtype of int8": (ValueError, lambda e: f(e(3, 4).char(), e(4, 5).char(), out_dtype=torch.int8)),
        "out_dtype of float16": (
            ValueError,
            lambda e: f(e(3, 4).half(), e(4, 5).half(), out_dtype=torch.int32),
        ),
        "out, shape": (ValueError, lambda e: f(e(3, 4), e(4, 5), out=e(5, 3))),
        "out, rank": (ValueError, lambda e: f(e(3, 4), e(4, 5), out=e(15))),
        "out, dtype": (ValueError, lambda e: f(e(3, 4), e(4, 5), out=e(3, 5).half())),
        "out, device": (ValueError, lambda e: f(e(3, 4), e(4, 5), out=elsewhere(e(3, 5)))),
        "out, expanded": (ValueError, lambda e: f(e(3, 4), e(4, 5), out=e(1, 5).expand(3, 5))),
        "out, windows": (ValueError, lambda e: f(e(3, 4), e(4, 5), out=e(9).as_strided((3, 5), (2, 1)))),
        "out, no tensor": (TypeError, lambda e: f(e(3, 4), e(4, 5), out=[1.0])),
        "out, dimensions": (ValueError, lambda e: f(e(3, 4), e(4, 5), out=many(e(3, 5)))),
        "out is a": (ValueError, lambda e: (lambda a: f(a, e(3, 3), out=a))(e(3, 3))),
        "out is b": (ValueError, lambda e: (lambda b: f(e(3, 3), b, out=b))(e(3, 3))),
        "out is the transpose of b": (ValueError, lambda e: (lambda b: f(e(3, 3), b, out=b.t()))(e(3, 3))),
        "out and a share rows": (ValueError, lambda e: (lambda m: f(m[:3], e(4, 4), out=m[2:5]))(e(6, 4))),
        "out and a share columns": (
            ValueError,
            lambda e: (lambda m: f(m[:, :4], e(4, 4), out=m[:, 3:7]))(e(4, 8)),
        ),
        "out is another type's view of a": (
            ValueError,
            lambda e: (lambda a: f(a, e(2, 2).int(), out=a.view(torch.int32)))(e(2, 2).int()),
        ),
        "out and a gradient": (RuntimeError, lambda e: f(e(3, 4).requires_grad_(), e(4, 5), out=e(3, 5))),
    }


INT = (lambda e: e(3, 4).int(), lambda e: e(4, 5).int())
BAD: dict[str, dict[str, tuple[type, Callable[[Make], object]]]] = {
    "matmul": {
        **product(fastgemm.matmul),
        "a number": (ValueError, lambda e: fastgemm.matmul(e(), e(4, 5))),
        "vectors": (ValueError, lambda e: fastgemm.matmul(e(3), e(4))),
        "vector and matrix": (ValueError, lambda e: fastgemm.matmul(e(3), e(4, 5))),
        "out of a vector": (ValueError, lambda e: fastgemm.matmul(e(3, 4), e(4), out=e(3, 1))),
    },
    "gemm": {
        **product(fastgemm.gemm),
        "1-D": (ValueError, lambda e: fastgemm.gemm(e(4), e(4, 5))),
        "1-D b": (ValueError, lambda e: fastgemm.gemm(e(3, 4), e(4))),
        "inner sizes, transposed": (ValueError, lambda e: fastgemm.gemm(e(3, 4), e(4, 5), trans_a=True)),
        "inner sizes, both transposed": (
            ValueError,
            lambda e: fastgemm.gemm(e(3, 4), e(4, 5), trans_a=True, trans_b=True),
        ),
        "c, shape": (ValueError, lambda e: fastgemm.gemm(e(3, 4), e(4, 5), e(3, 4))),
        "c, size 0": (ValueError, lambda e: fastgemm.gemm(e(3, 4), e(4, 5), e(0, 5))),
        "c, larger than the result": (ValueError, lambda e: fastgemm.gemm(e(1, 4), e(4, 5), e(3, 5))),
        "c, rank": (ValueError, lambda e: fastgemm.gemm(e(3, 4), e(4, 5), e(1, 3, 5))),
        "c, dtype": (ValueError, lambda e: fastgemm.gemm(e(3, 4), e(4, 5), e(5).double())),
        "c, unsupported dtype": (ValueError, lambda e: fastgemm.gemm(e(3, 4), e(4, 5), e(5).bool())),
        "c of int8": (
            ValueError,
            lambda e: fastgemm.gemm(e(3, 4).char(), e(4, 5).char(), e(5).char()),
        ),
        "c, device": (ValueError, lambda e: fastgemm.gemm(e(3, 4), e(4, 5), elsewhere(e(5)))),
        "c, no tensor": (TypeError, lambda e: fastgemm.gemm(e(3, 4), e(4, 5), 2.0)),
        "c, unread, of a wrong shape": (ValueError, lambda e: fastgemm.gemm(e(3, 4), e(4, 5), e(4), beta=0)),
        "c overlaps out": (
            ValueError,
            lambda e: (lambda m: fastgemm.gemm(e(3, 4), e(4, 5), m[1:], out=m[:3]))(e(4, 5)),
        ),
        "c is the transpose of out": (
            ValueError,
            lambda e: (lambda c: fastgemm.gemm(e(3, 3), e(3, 3), c.t(), out=c))(e(3, 3)),
        ),
        "beta, no c": (ValueError, lambda e: fastgemm.gemm(e(3, 4), e(4, 5), beta=2)),
        "beta NaN, no c": (ValueError, lambda e: fastgemm.gemm(e(3, 4), e(4, 5), beta=float("nan"))),
        **{
            f"alpha {alpha} of integers": (
                ValueError,
                lambda e, alpha=alpha: fastgemm.gemm(INT[0](e), INT[1](e), alpha=alpha),
            )
            for alpha in (0.5, float("nan"), float("inf"), -float("inf"), 2**63, 1e19)
        },
        "beta of integers": (
            ValueError,
            lambda e: fastgemm.gemm(INT[0](e), INT[1](e), e(5).int(), beta=1.5),
        ),
        "alpha a string": (TypeError, lambda e: fastgemm.gemm(e(3, 4), e(4, 5), alpha="2")),
        "alpha a tensor": (TypeError, lambda e: fastgemm.gemm(e(3, 4), e(4, 5), alpha=e())),
    },
    "transpose": {
        **choices(lambda **options: lambda e: fastgemm.transpose(e(3, 4), **options)),
        "1-D": (ValueError, lambda e: fastgemm.transpose(e(3))),
        "a number": (ValueError, lambda e: fastgemm.transpose(e())),
        "dimensions": (ValueError, lambda e: fastgemm.transpose(many(e(3, 4)))),
        "no tensor": (TypeError, lambda e: fastgemm.transpose([1.0])),
        "sparse": (NotImplementedError, lambda e: fastgemm.transpose(e(3, 4).to_sparse())),
        "out, shape": (ValueError, lambda e: fastgemm.transpose(e(3, 4), out=e(3, 4))),
        "out, dtype": (ValueError, lambda e: fastgemm.transpose(e(3, 4), out=e(4, 3).int())),
        "out, device": (ValueError, lambda e: fastgemm.transpose(e(3, 4), out=elsewhere(e(4, 3)))),
        "out, expanded": (ValueError, lambda e: fastgemm.transpose(e(3, 4), out=e(4, 1).expand(4, 3))),
        "out is a": (ValueError, lambda e: (lambda a: fastgemm.transpose(a, out=a))(e(3, 3))),
        "out and a gradient": (
            RuntimeError,
            lambda e: fastgemm.transpose(e(3, 4).requires_grad_(), out=e(4, 3)),
        ),
    },
    "add": {
        **choices(lambda **options: lambda e: fastgemm.add(e(3, 4), e(4), **options)),
        "a level without a rung": (RuntimeError, lambda e: fastgemm.add(e(3, 4), e(4), level=3)),
        "level 6": (RuntimeError, lambda e: fastgemm.add(e(3, 4), e(4), level=6)),
        "level 7": (RuntimeError, lambda e: fastgemm.add(e(3, 4), e(4), level=7)),
        "level 7 of nothing": (RuntimeError, lambda e: fastgemm.add(e(0, 4), e(4), level=7)),
        "shapes": (ValueError, lambda e: fastgemm.add(e(3, 4), e(3))),
        "dtypes": (ValueError, lambda e: fastgemm.add(e(3, 4), e(4).half())),
        "float8": (TypeError, lambda e: fastgemm.add(*[e(3).to(torch.float8_e5m2)] * 2)),
        "uint16": (TypeError, lambda e: fastgemm.add(e(3).to(torch.uint16), e(3).to(torch.uint16))),
        "bool": (TypeError, lambda e: fastgemm.add(e(3).bool(), e(3).bool())),
        "uint8 and int8": (ValueError, lambda e: fastgemm.add(e(3).byte(), e(3).char())),
        "devices": (ValueError, lambda e: fastgemm.add(e(3), elsewhere(e(3)))),
        "dimensions": (ValueError, lambda e: fastgemm.add(e(4), many(e(4)))),
        "alpha of integers": (ValueError, lambda e: fastgemm.add(e(3).int(), e(3).int(), alpha=0.5)),
        "infinite alpha of integers": (
            ValueError,
            lambda e: fastgemm.add(e(3).int(), e(3).int(), alpha=float("inf")),
        ),
        "alpha a tensor": (TypeError, lambda e: fastgemm.add(e(3), e(3), alpha=e())),
        "out, shape": (ValueError, lambda e: fastgemm.add(e(3, 4), e(4), out=e(4))),
        "out, dtype": (ValueError, lambda e: fastgemm.add(e(3), e(3), out=e(3).half())),
        "out, expanded": (ValueError, lambda e: fastgemm.add(e(3), e(3), out=e(1).expand(3))),
        "out overlaps b": (ValueError, lambda e: (lambda x: fastgemm.add(e(3), x[1:], out=x[:3]))(e(4))),
    },
    "add_": {
        **choices(lambda **options: lambda e: fastgemm.add_(e(3, 4), e(4), **options)),
        "shape": (ValueError, lambda e: fastgemm.add_(e(4), e(3, 4))),
        "shape, a gradient required": (ValueError, lambda e: fastgemm.add_(e(4), e(3, 4).requires_grad_())),
        "shape of one element": (ValueError, lambda e: fastgemm.add_(e(1), e(4))),
        "expanded": (ValueError, lambda e: fastgemm.add_(e(1, 4).expand(3, 4), e(4))),
        "overlap": (ValueError, lambda e: (lambda x: fastgemm.add_(x[1:], x[:3]))(e(4))),
        "dtypes": (ValueError, lambda e: fastgemm.add_(e(3), e(3).half())),
        "a leaf": (RuntimeError, lambda e: fastgemm.add_(e(3).requires_grad_(), e(3))),
    },
}


@every_device
@pytest.mark.parametrize(
    ("function", "name"), [(f, n) for f in BAD for n in BAD[f]], ids=lambda text: text.replace(" ", "_")
)
def test_the_same_exception_with_and_without_data(function, name, device):
    error, call = BAD[function][name]
    assert {kind: raised(kind, call) for kind in KINDS} == dict.fromkeys(KINDS, error)


GOOD: dict[str, Callable[[Make], object]] = {
    "out is c": lambda e: (lambda c: fastgemm.gemm(e(3, 4), e(4, 5), c, out=c))(e(3, 5)),
    "beta 0, no c": lambda e: fastgemm.gemm(e(3, 4), e(4, 5), beta=0),
    "c unread": lambda e: fastgemm.gemm(e(3, 4), e(4, 5), e(5), beta=0),
    "c of one element": lambda e: fastgemm.gemm(e(2, 3, 4), e(4, 5), e(1, 1)),
    "whole alpha": lambda e: fastgemm.gemm(INT[0](e), INT[1](e), alpha=-3.0),
    "out beside a in one matrix": lambda e: (lambda m: fastgemm.matmul(m[:, :4], e(4, 4), out=m[:, 4:]))(
        e(4, 8)
    ),
    "out below a in one matrix": lambda e: (lambda m: fastgemm.matmul(m[:4], e(4, 4), out=m[4:]))(e(8, 4)),
    "out with a leading dimension": lambda e: fastgemm.matmul(e(3, 4), e(4, 5), out=e(3, 9)[:, 2:7]),
    "out transposed": lambda e: fastgemm.matmul(e(3, 4), e(4, 5), out=e(5, 3).t()),
    "out of nothing, expanded": lambda e: fastgemm.matmul(e(0, 4), e(4, 5), out=e(1, 5).expand(0, 5)),
    "K = 0": lambda e: fastgemm.matmul(e(3, 0), e(0, 5), level=3),
    "batch of 0": lambda e: fastgemm.matmul(e(0, 3, 4), e(1, 4, 5)),
    "64 dimensions": lambda e: fastgemm.matmul(many(e(3, 4))[0], e(4, 5)),
    "ieee of integers": lambda e: fastgemm.matmul(INT[0](e), INT[1](e), precision="ieee"),
    "complex transpose": lambda e: fastgemm.transpose(e(3, 4).to(torch.complex128), level=5),
    "add, out is a and b": lambda e: (lambda a: fastgemm.add(a, a, out=a))(e(3, 4)),
    "add_ of itself": lambda e: (lambda a: fastgemm.add_(a, a))(e(3, 4)),
    "add_ of a row of itself": lambda e: fastgemm.add_(e(3, 4), e(1, 4)),
}


@every_device
@pytest.mark.parametrize("name", GOOD)
def test_what_works_with_data_works_without(name, device):
    assert {kind: raised(kind, GOOD[name]) for kind in KINDS} == dict.fromkeys(KINDS)


def choice_calls(op: str, dtype: torch.dtype, **choice: Any) -> Callable[[Make], object]:
    function = {"gemm": fastgemm.gemm, "transpose": fastgemm.transpose, "add": fastgemm.add}[op]

    def call(make: Make) -> object:
        x = make(4, 4).to(dtype)
        return function(x, **choice) if op == "transpose" else function(x, x, **choice)

    return call


@pytest.mark.parametrize("op", ["gemm", "transpose", "add"])
def test_every_level_and_kernel_of_every_dtype(op):
    """So far as the kernel table tells: left out are torch's row, which refuses by its flags, too, and those that
    this CPU cannot run.
    """
    names = {name for device, name, _ in rows(op, "cpu") if name != "torch"}
    names |= {row.name for row in fastgemm.kernels(op, "cuda")} - {
        row.name for row in fastgemm.kernels(op, "cpu")
    }
    given = [{"level": level} for level in range(9)]
    given += [{"kernel": name} for name in sorted(names)]
    given += [{"kernel": name, "level": 2} for name in sorted(names)]
    if op == "gemm":
        given += [{**c, "precision": p} for c in given for p in ("tf32", "bf16x6")]
    wrong = {}
    for dtype in DTYPES:
        for choice in given:
            call = choice_calls(op, dtype, **choice)
            real, fake = raised("real", call), raised("fake", call)
            if real is not fake:
                wrong[f"{dtype} {choice}"] = (real, fake)
    assert wrong == {}


def test_the_ops_themselves_refuse_as_the_functions_do():
    """torch.ops.fastgemm, which a graph calls without the public functions."""
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
        assert {kind: raised(kind, call) for kind in KINDS} == dict.fromkeys(KINDS, ValueError), name
