"""Tests bad input, case by case. A message names the argument, the wrong value and the accepted values.

Meta and fake tensors are refused with the same type of exception, unless the check needs data.
"""

import re
from collections.abc import Callable, Iterator

import fastgemm
import pytest
import torch
from reference import every_device
from torch import Tensor
from without_data import error_of, raised

# The message, and a call of a function f: with valid tensors a and b, or with tensors that e makes.
Cases = dict[type[Exception], list[tuple[str, Callable[..., object]]]]
FITTING = {"matmul": ((3, 4), (4, 5)), "gemm": ((3, 4), (4, 5)), "transpose": ((3, 4), ())}
FITTING |= {"add": ((3, 4), (4,)), "add_": ((3, 4), (4,))}
NAN, INF = float("nan"), float("inf")


def many(x: Tensor) -> Tensor:
    """A tensor with 65 dimensions, one more than supported."""
    return x.reshape([1] * (65 - x.dim()) + list(x.shape))


def elsewhere(x: Tensor) -> Tensor:
    """A similar tensor on another device."""
    return torch.zeros_like(x, device="cpu" if x.device.type != "cpu" else "meta")


def float8(x: Tensor) -> Tensor:
    return x.to(torch.float8_e5m2)


def uint16(x: Tensor) -> Tensor:
    return x.to(torch.uint16)


LEVEL, NO_LEVEL = "level must be 1 to 7 or None, got {}", "level must be an int or None, got {}"
# Wrong levels and kernels, for every function.
CHOICES = [
    *((ValueError, LEVEL.format(n), {"level": n}) for n in (0, 8, -1, 2**40, 2**64, -(2**63))),
    *((TypeError, NO_LEVEL.format(type(n).__name__), {"level": n}) for n in (True, False, "fast", 1.5)),
    (ValueError, "unknown kernel 'naife'", {"kernel": "naife"}),
    (ValueError, "the nearest names are 'naive'", {"kernel": "naife"}),
    (ValueError, "unknown kernel ''", {"kernel": ""}),
    (TypeError, "kernel must be a str or None, got int", {"kernel": 5}),
    (ValueError, "kernel 'naive' is of level 1, not 2", {"kernel": "naive", "level": 2}),
    (ValueError, LEVEL.format(0), {"kernel": "naive", "level": 0}),
]
ONE_DEVICE, DIMENSIONS = "all tensors must be on one device", "65 dimensions; at most 64 are supported"
SHARED, GRADIENT = "out has elements that share memory", "out= does not support automatic differentiation"
OVERLAP, BATCHES = "out overlaps {} in memory", "batch dimensions of a {} and b {} do not broadcast"
WHOLE, ITEM = " must be a whole number of 64 bits for integer operands, got ", "pass alpha.item()"
PRODUCT: Cases = {
    TypeError: [
        ("a must be a torch.Tensor, got list", lambda f, a, b, e: f([[1.0]], b)),
        ("a must be a torch.Tensor, got NoneType", lambda f, a, b, e: f(None, b)),
        ("b must be a torch.Tensor, got int", lambda f, a, b, e: f(a, 3)),
        ("out must be a torch.Tensor, got list", lambda f, a, b, e: f(a, b, out=[1.0])),
        ("a has dtype torch.float8_e5m2", lambda f, a, b, e: f(float8(a), float8(b))),
        ("a has dtype torch.uint16, which is not", lambda f, a, b, e: f(uint16(a), uint16(b))),
        ("not supported; accepted: float64, float32", lambda f, a, b, e: f(uint16(a), uint16(b))),
        ("b has dtype torch.uint16", lambda f, a, b, e: f(a, uint16(b))),
        ("precision must be a str or None, got int", lambda f, a, b, e: f(a, b, precision=3)),
    ],
    NotImplementedError: [("a has layout torch.sparse_coo", lambda f, a, b, e: f(a.to_sparse(), b))],
    RuntimeError: [(GRADIENT, lambda f, a, b, e: f(a.requires_grad_(), b, out=e(3, 5)))],
    ValueError: [
        ("inner sizes differ: a is (3, 4), b is (3, 4)", lambda f, a, b, e: f(a, a)),
        (BATCHES.format((2, 3, 3), (4, 3, 3)), lambda f, a, b, e: f(e(2, 3, 3), e(4, 3, 3))),
        (BATCHES.format((5, 2, 3, 3), (4, 1, 3, 3)), lambda f, a, b, e: f(e(5, 2, 3, 3), e(4, 1, 3, 3))),
        ("float64, but a has torch.float32; they must be equal", lambda f, a, b, e: f(a, b.double())),
        ("b has dtype torch.float32, but a has torch.float16", lambda f, a, b, e: f(a.half(), b)),
        ("b has dtype torch.float32, but a has torch.complex64", lambda f, a, b, e: f(a.cfloat(), b)),
        ("b has dtype torch.int64, but a has torch.uint8", lambda f, a, b, e: f(a.byte(), b.long())),
        ("b has dtype torch.int16, but a has torch.uint8", lambda f, a, b, e: f(a.byte(), b.short())),
        ("a has dtype torch.bool; accepted are float64", lambda f, a, b, e: f(a.bool(), b)),
        (ONE_DEVICE + ", got a on cpu, b on meta", lambda f, a, b, e: f(a, elsewhere(b))),
        (DIMENSIONS, lambda f, a, b, e: f(many(a), b)),
        (DIMENSIONS, lambda f, a, b, e: f(a, many(b))),
        (DIMENSIONS, lambda f, a, b, e: f(a, b, out=many(e(3, 5)))),
        ("precision must be 'ieee', 'tf32'", lambda f, a, b, e: f(a, b, precision="high")),
        ("or None, got ''", lambda f, a, b, e: f(a, b, precision="")),
        ("'tf32' is for float32 operands", lambda f, a, b, e: f(a.double(), b.double(), precision="tf32")),
        ("'bf16x6' is for float32 operands", lambda f, a, b, e: f(a.int(), b.int(), precision="bf16x6")),
        ("out_dtype=torch.float64 is not available", lambda f, a, b, e: f(a, b, out_dtype=torch.float64)),
        ("accepted: torch.int32", lambda f, a, b, e: f(a.char(), b.char(), out_dtype=torch.int8)),
        ("torch.float16 and torch.float32", lambda f, a, b, e: f(a.half(), b.half(), out_dtype=torch.int32)),
        ("torch.int32 and torch.int64", lambda f, a, b, e: f(a.short(), b.short(), out_dtype=torch.int16)),
        ("accepted: torch.int64", lambda f, a, b, e: f(a.long(), b.long(), out_dtype=torch.int32)),
        ("out has shape (5, 3), expected (3, 5)", lambda f, a, b, e: f(a, b, out=e(5, 3))),
        ("out has shape (15,), expected (3, 5)", lambda f, a, b, e: f(a, b, out=e(15))),
        ("float16, expected torch.float32", lambda f, a, b, e: f(a, b, out=e(3, 5).half())),
        ("int8, expected torch.int32", lambda f, a, b, e: f(a.char(), b.char(), out=e(3, 5).char())),
        (ONE_DEVICE, lambda f, a, b, e: f(a, b, out=elsewhere(e(3, 5)))),
        (SHARED, lambda f, a, b, e: f(a, b, out=e(1, 5).expand(3, 5))),
        (SHARED, lambda f, a, b, e: f(a, b, out=e(9).as_strided((3, 5), (2, 1)))),
        (OVERLAP.format("a"), lambda f, a, b, e: f(x := e(3, 3), e(3, 3), out=x)),
        (OVERLAP.format("b"), lambda f, a, b, e: f(e(3, 3), x := e(3, 3), out=x)),
        (OVERLAP.format("b"), lambda f, a, b, e: f(e(3, 3), x := e(3, 3), out=x.t())),
        (OVERLAP.format("a"), lambda f, a, b, e: f((x := e(6, 4))[:3], e(4, 4), out=x[2:5])),
        (OVERLAP.format("a"), lambda f, a, b, e: f((x := e(4, 8))[:, :4], e(4, 4), out=x[:, 3:7])),
        (OVERLAP.format("a"), lambda f, a, b, e: f(x := e(2, 2).int(), x * 0, out=x.view(torch.int32))),
    ],
}
OF_ONE: dict[str, Cases] = {
    "matmul": {
        ValueError: [
            ("operands must have at least 1 dimension, got 0 and 2", lambda f, a, b, e: f(e(), b)),
            ("at least 1 dimension, got 2 and 0", lambda f, a, b, e: f(a, e())),
            ("inner sizes differ: a is (1, 3), b is (4, 1)", lambda f, a, b, e: f(e(3), e(4))),
            ("inner sizes differ: a is (1, 3), b is (4, 5)", lambda f, a, b, e: f(e(3), b)),
            ("out has shape (3, 1, 1), expected (3, 1)", lambda f, a, b, e: f(a, e(4), out=e(3, 1))),
        ]
    },
    "gemm": {
        ValueError: [
            ("a must have at least 2 dimensions, got shape (4,)", lambda f, a, b, e: f(e(4), b)),
            ("b must have at least 2 dimensions, got shape (4,)", lambda f, a, b, e: f(a, e(4))),
            ("a (transposed) is (3, 4), b is (4, 5)", lambda f, a, b, e: f(a, b, trans_a=True)),
            ("inner sizes differ", lambda f, a, b, e: f(a, b, trans_a=True, trans_b=True)),
            ("c has shape (3, 4)", lambda f, a, b, e: f(a, b, e(3, 4))),
            ("broadcast to (3, 5)", lambda f, a, b, e: f(a, b, e(0, 5))),
            ("broadcast to (1, 5)", lambda f, a, b, e: f(e(1, 4), b, e(3, 5))),
            ("c has shape (1, 3, 5)", lambda f, a, b, e: f(a, b, e(1, 3, 5))),
            ("c has shape (4,)", lambda f, a, b, e: f(a, b, e(4), beta=0)),
            ("c has dtype torch.float64", lambda f, a, b, e: f(a, b, e(5).double())),
            ("c has dtype torch.bool", lambda f, a, b, e: f(a, b, e(5).bool())),
            ("c has dtype torch.int8", lambda f, a, b, e: f(a.char(), b.char(), e(5).char())),
            (ONE_DEVICE, lambda f, a, b, e: f(a, b, elsewhere(e(5)))),
            (OVERLAP.format("c"), lambda f, a, b, e: f(a, b, (x := e(4, 5))[1:], out=x[:3])),
            (OVERLAP.format("c"), lambda f, a, b, e: f(e(3, 3), e(3, 3), (x := e(3, 3)).t(), out=x)),
            ("beta is 2", lambda f, a, b, e: f(a, b, beta=2)),
            ("but there is no c", lambda f, a, b, e: f(a, b, beta=NAN)),
            ("alpha" + WHOLE + "0.5", lambda f, a, b, e: f(a.int(), b.int(), alpha=0.5)),
            ("alpha" + WHOLE + "nan", lambda f, a, b, e: f(a.int(), b.int(), alpha=NAN)),
            ("alpha" + WHOLE + "inf", lambda f, a, b, e: f(a.int(), b.int(), alpha=INF)),
            ("alpha" + WHOLE + "-inf", lambda f, a, b, e: f(a.int(), b.int(), alpha=-INF)),
            ("alpha" + WHOLE + "9223372036854775808", lambda f, a, b, e: f(a.int(), b.int(), alpha=2**63)),
            ("alpha" + WHOLE + "1e+19", lambda f, a, b, e: f(a.int(), b.int(), alpha=1e19)),
            ("beta" + WHOLE + "1.5", lambda f, a, b, e: f(a.int(), b.int(), e(5).int(), beta=1.5)),
        ],
        TypeError: [
            ("c must be a torch.Tensor, got float", lambda f, a, b, e: f(a, b, 2.0)),
            ("alpha must be a float, got str", lambda f, a, b, e: f(a, b, alpha="2")),
            # torch would convert this tensor to a number, and lose its gradient.
            (ITEM, lambda f, a, b, e: f(a, b, alpha=e().requires_grad_())),
            ("pass beta.item()", lambda f, a, b, e: f(a, b, e(5), beta=e().requires_grad_())),
            ("alpha must be a number", lambda f, a, b, e: f(a.requires_grad_(), b, alpha=e())),
            ("alpha must be a number", lambda f, a, b, e: f(a, b, alpha=e(), out=e(3, 5))),
        ],
    },
    "transpose": {
        ValueError: [
            ("a must have at least 2 dimensions, got shape (3,)", lambda f, a, b, e: f(e(3))),
            ("a must have at least 2 dimensions, got shape ()", lambda f, a, b, e: f(e())),
            (DIMENSIONS, lambda f, a, b, e: f(many(a))),
            ("out has shape (3, 4), expected (4, 3)", lambda f, a, b, e: f(a, out=e(3, 4))),
            ("torch.int32, expected torch.float32", lambda f, a, b, e: f(a, out=e(4, 3).int())),
            (ONE_DEVICE, lambda f, a, b, e: f(a, out=elsewhere(e(4, 3)))),
            (SHARED, lambda f, a, b, e: f(a, out=e(4, 1).expand(4, 3))),
            (OVERLAP.format("a"), lambda f, a, b, e: f(x := e(3, 3), out=x)),
            (OVERLAP.format("a"), lambda f, a, b, e: f(x := e(3, 3), out=x.t())),
        ],
        TypeError: [("a must be a torch.Tensor, got list", lambda f, a, b, e: f([1.0]))],
        NotImplementedError: [("a has layout torch.sparse_coo", lambda f, a, b, e: f(a.to_sparse()))],
        RuntimeError: [(GRADIENT, lambda f, a, b, e: f(a.requires_grad_(), out=e(4, 3)))],
    },
    "add": {
        RuntimeError: [
            ("level 3 cannot run add on cpu in float32", lambda f, a, b, e: f(a, b, level=3)),
            ("there is no such rung. Levels that can: 1, 2, 4, 5", lambda f, a, b, e: f(a, b, level=6)),
            ("level 7 cannot run add", lambda f, a, b, e: f(a, b, level=7)),
            ("level 7 cannot run add", lambda f, a, b, e: f(e(0, 4), b, level=7)),
            (GRADIENT, lambda f, a, b, e: f(a.requires_grad_(), b, out=e(3, 4))),
        ],
        ValueError: [
            ("out has shape (4,), expected (3, 4)", lambda f, a, b, e: f(a, b, out=e(4))),
            ("out has dtype torch.float16", lambda f, a, b, e: f(a, b, out=e(3, 4).half())),
            (SHARED, lambda f, a, b, e: f(e(3), e(3), out=e(1).expand(3))),
            (OVERLAP.format("b"), lambda f, a, b, e: f(e(3), (x := e(4))[1:], out=x[:3])),
        ],
    },
    "add_": {
        ValueError: [
            ("a has shape (4,), expected (3, 4)", lambda f, a, b, e: f(b, a)),
            ("a has shape (4,), expected (3, 4)", lambda f, a, b, e: f(b, a.requires_grad_())),
            ("a has shape (1,), expected (4,)", lambda f, a, b, e: f(e(1), b)),
            (SHARED.replace("out", "a"), lambda f, a, b, e: f(e(1, 4).expand(3, 4), b)),
            (OVERLAP.format("b").replace("out", "a"), lambda f, a, b, e: f((x := e(4))[1:], x[:3])),
        ],
        RuntimeError: [("a leaf Variable that requires grad", lambda f, a, b, e: f(a.requires_grad_(), b))],
    },
}
SUM: Cases = {
    ValueError: [
        ("shapes of a (3, 4) and b (3,) do not broadcast", lambda f, a, b, e: f(a, e(3))),
        ("torch.float16, but a has torch.float32; they must be equal", lambda f, a, b, e: f(a, b.half())),
        ("b has dtype torch.int8, but a has torch.uint8", lambda f, a, b, e: f(a.byte(), b.char())),
        (ONE_DEVICE, lambda f, a, b, e: f(a, elsewhere(b))),
        (DIMENSIONS, lambda f, a, b, e: f(a, many(b))),
        ("alpha" + WHOLE + "0.5", lambda f, a, b, e: f(a.int(), b.int(), alpha=0.5)),
        ("alpha" + WHOLE + "inf", lambda f, a, b, e: f(a.int(), b.int(), alpha=INF)),
    ],
    TypeError: [
        ("b must be a torch.Tensor, got float", lambda f, a, b, e: f(a, 1.0)),
        ("a has dtype torch.float8_e5m2", lambda f, a, b, e: f(float8(a), float8(b))),
        ("a has dtype torch.uint16", lambda f, a, b, e: f(uint16(a), uint16(b))),
        ("a has dtype torch.bool", lambda f, a, b, e: f(a.bool(), b.bool())),
        (ITEM, lambda f, a, b, e: f(a, b, alpha=e())),
    ],
    NotImplementedError: [("a has layout torch.sparse_coo", lambda f, a, b, e: f(a.to_sparse(), b))],
}
SHARED_BY = {"matmul": PRODUCT, "gemm": PRODUCT, "transpose": {}, "add": SUM, "add_": SUM}


def every_case() -> Iterator[tuple[str, type[Exception], str, Callable[..., object]]]:
    for name in FITTING:
        for cases in SHARED_BY[name], OF_ONE[name]:
            yield from ((name, error, text, call) for error in cases for text, call in cases[error])
        for error, text, choice in CHOICES:
            if name == "transpose":
                yield name, error, text, lambda f, a, b, e, c=choice: f(a, **c)
                continue
            yield name, error, text, lambda f, a, b, e, c=choice: f(a, b, **c)
            if SHARED_BY[name] is PRODUCT:  # also with empty operands
                yield name, error, text, lambda f, a, b, e, c=choice: f(e(0, 4), b, **c)


CASES = list(every_case())


@every_device
@pytest.mark.parametrize(
    ("name", "error", "text", "call"), CASES, ids=[f"{name}: {text}" for name, _, text, _ in CASES]
)
def test_bad_input(name, error, text, call, device):
    def refused(e):
        return call(getattr(fastgemm, name), *(e(*shape) for shape in FITTING[name]), e)

    said = str(error_of("real", refused))
    assert text in said or device != "cpu"  # some messages depend on this
    assert said.startswith(f"fastgemm.{name}: ") or "leaf Variable" in said, said
    assert raised(refused) == {"real": error, "meta": error, "fake": error}


@pytest.mark.parametrize("function", [fastgemm.matmul, fastgemm.gemm, fastgemm.transpose])
def test_layouts_and_types_that_exist_with_data_alone(function):
    a, b = torch.ones(3, 4), torch.ones(4, 5)
    others = [b] if function is not fastgemm.transpose else []
    with pytest.raises(NotImplementedError, match="a is quantized"):
        function(torch.quantize_per_tensor(a, 0.1, 0, torch.quint8), *others)
    if others:
        with pytest.raises(NotImplementedError, match=r"b has layout torch\.sparse_csr"):
            function(a, b.to_sparse_csr())
        with pytest.raises(NotImplementedError, match="out has layout"):
            function(a, b, out=torch.ones(3, 5).to_sparse())


def test_bad_input_leaves_out_untouched():
    a, b, out = torch.ones(3, 4), torch.ones(4, 5), torch.full((3, 5), 7.0)
    for options in ({"level": 9}, {"kernel": "none"}, {"precision": "low"}):
        with pytest.raises(ValueError):
            fastgemm.matmul(a, b, out=out, **options)
    with pytest.raises(ValueError):
        fastgemm.matmul(a, a, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    "dtype", (torch.bool, torch.int8, torch.int32, torch.uint16, torch.float8_e4m3fn, torch.float8_e5m2fnuz)
)
def test_linear_names_a_wrong_type_and_those_that_it_takes(dtype, device, invariant):
    x, w = torch.ones(3, 4, device=device).to(dtype), torch.ones(5, 4, device=device).to(dtype)
    accepted = "float64, float32, float16, bfloat16, complex128, complex64 and complex32"
    text = re.escape(f"fastgemm.linear: input has dtype {dtype}; accepted are {accepted} (")
    with pytest.raises(ValueError, match=f"^{text}"):
        fastgemm.linear(x, w, invariant=invariant)


def test_errors_name_every_type():
    x = torch.ones(3, 3)
    for dtype in (torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fnuz, torch.float8_e8m0fnu):
        with pytest.raises(ValueError, match=f"bias has dtype {re.escape(str(dtype))}, expected"):
            fastgemm.linear(x, x, x[0].to(dtype))
