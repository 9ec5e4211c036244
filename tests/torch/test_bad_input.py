"""Bad input, case by case. Every message names the argument, what came and what is accepted."""

from __future__ import annotations

import fastgemm
import pytest
import torch

A, B, ROW = torch.ones(3, 4), torch.ones(4, 5), torch.ones(5)
SCALE = torch.tensor(2.0, requires_grad=True)  # torch would convert it to a number, and lose its gradient
COMPLEX, INT64, UINT16 = torch.complex64, torch.int64, torch.uint16


def sparse():
    return torch.ones(3, 4).to_sparse()


def quantized():
    return torch.quantize_per_tensor(torch.ones(3, 4), 0.1, 0, torch.quint8)


BAD_OPERANDS = [
    ("not a tensor", lambda f: f([[1.0]], B), TypeError, r"a must be a torch\.Tensor, got list"),
    ("not a tensor either", lambda f: f(A, 3), TypeError, r"b must be a torch\.Tensor, got int"),
    ("None", lambda f: f(None, B), TypeError, r"a must be a torch\.Tensor, got NoneType"),
    ("inner sizes", lambda f: f(A, A), ValueError, r"inner sizes differ: a is \(3, 4\), b is \(3, 4\)"),
    (
        "dtypes",
        lambda f: f(A, B.double()),
        ValueError,
        r"b has dtype torch\.float64.*a has torch\.float32.*equal",
    ),
    (
        "half and float",
        lambda f: f(A.half(), B),
        ValueError,
        r"b has dtype torch\.float32.*a has torch\.float16",
    ),
    ("complex and real", lambda f: f(A.to(COMPLEX), B), ValueError, r"b has dtype torch\.float32.*complex64"),
    (
        "uint16",
        lambda f: f(A.to(UINT16), B.to(UINT16)),
        TypeError,
        r"a has dtype torch\.uint16.*accepted.*int32",
    ),
    (
        "uint8 and int64",
        lambda f: f(A.byte(), B.to(INT64)),
        ValueError,
        r"b has dtype torch\.int64.*a has torch\.uint8",
    ),
    ("sparse", lambda f: f(sparse(), B), NotImplementedError, r"a has layout torch\.sparse_coo; only dense"),
    ("sparse CSR", lambda f: f(A, B.to_sparse_csr()), NotImplementedError, r"b has layout torch\.sparse_csr"),
    ("quantized", lambda f: f(quantized(), B), NotImplementedError, r"a is quantized"),
    (
        "devices",
        lambda f: f(A, B.to("meta")),
        ValueError,
        r"all tensors must be on one device.*a on cpu.*b on meta",
    ),
    ("level 0", lambda f: f(A, B, level=0), ValueError, r"level must be 1 to 7 or None, got 0"),
    ("level 8", lambda f: f(A, B, level=8), ValueError, r"level must be 1 to 7 or None, got 8"),
    ("negative level", lambda f: f(A, B, level=-1), ValueError, r"level must be 1 to 7 or None, got -1"),
    (
        "huge level",
        lambda f: f(A, B, level=2**40),
        ValueError,
        r"level must be 1 to 7 or None, got 1099511627776",
    ),
    ("level no integer", lambda f: f(A, B, level="fast"), TypeError, r"level.*str"),
    ("level a float", lambda f: f(A, B, level=1.5), TypeError, r"level.*float"),
    (
        "kernel",
        lambda f: f(A, B, kernel="microkernal"),
        ValueError,
        r"unknown kernel 'microkernal'.*nearest.*'microkernel'",
    ),
    ("empty kernel", lambda f: f(A, B, kernel=""), ValueError, r"unknown kernel ''"),
    ("kernel no string", lambda f: f(A, B, kernel=5), TypeError, r"kernel.*int"),
    (
        "kernel and level",
        lambda f: f(A, B, kernel="naive", level=2),
        ValueError,
        r"'naive' is of level 1, not 2",
    ),
    ("precision", lambda f: f(A, B, precision="high"), ValueError, r"precision must be 'ieee'.*got 'high'"),
    (
        "precision of float64",
        lambda f: f(A.double(), B.double(), precision="tf32"),
        ValueError,
        r"float32 operands only",
    ),
    (
        "out_dtype",
        lambda f: f(A, B, out_dtype=torch.float64),
        ValueError,
        r"out_dtype=torch\.float64 .* accepted: torch\.float32",
    ),
    (
        "out_dtype int8",
        lambda f: f(A.char(), B.char(), out_dtype=torch.int8),
        ValueError,
        r"accepted: torch\.int32",
    ),
    (
        "out shape",
        lambda f: f(A, B, out=torch.ones(5, 3)),
        ValueError,
        r"out has shape \(5, 3\), expected \(3, 5\)",
    ),
    (
        "out rank",
        lambda f: f(A, B, out=torch.ones(15)),
        ValueError,
        r"out has shape \(15,\), expected \(3, 5\)",
    ),
    (
        "out dtype",
        lambda f: f(A, B, out=torch.ones(3, 5).half()),
        ValueError,
        r"out has dtype torch\.float16, expected torch\.float32",
    ),
    (
        "out int8",
        lambda f: f(A.char(), B.char(), out=torch.ones(3, 5).char()),
        ValueError,
        r"out has dtype torch\.int8, expected torch\.int32",
    ),
    (
        "out device",
        lambda f: f(A, B, out=torch.ones(3, 5, device="meta")),
        ValueError,
        r"one device.*out on meta",
    ),
    (
        "out expanded",
        lambda f: f(A, B, out=torch.ones(1, 5).expand(3, 5)),
        ValueError,
        r"out has elements that share memory",
    ),
    ("out no tensor", lambda f: f(A, B, out=[1.0]), TypeError, r"out must be a torch\.Tensor, got list"),
    (
        "out sparse",
        lambda f: f(A, B, out=torch.ones(3, 5).to_sparse()),
        NotImplementedError,
        r"out has layout",
    ),
]


@pytest.mark.parametrize("function", [fastgemm.matmul, fastgemm.gemm])
@pytest.mark.parametrize(
    ("call", "kind", "message"), [c[1:] for c in BAD_OPERANDS], ids=[c[0] for c in BAD_OPERANDS]
)
def test_bad_input(function, call, kind, message):
    with pytest.raises(kind, match=message) as caught:
        call(function)
    assert caught.type is kind


BAD_GEMM = [
    (
        "1-D",
        lambda: fastgemm.gemm(A[0], B),
        ValueError,
        r"a must have at least 2 dimensions, got shape \(4,\)",
    ),
    (
        "1-D b",
        lambda: fastgemm.gemm(A, B[:, 0]),
        ValueError,
        r"b must have at least 2 dimensions, got shape \(4,\)",
    ),
    (
        "inner, flags",
        lambda: fastgemm.gemm(A, B, trans_a=True),
        ValueError,
        r"a \(transposed\) is \(3, 4\), b is",
    ),
    (
        "c shape",
        lambda: fastgemm.gemm(A, B, torch.ones(3, 4)),
        ValueError,
        r"c has shape \(3, 4\).*broadcast to \(3, 5\)",
    ),
    (
        "c rank",
        lambda: fastgemm.gemm(A, B, torch.ones(2, 3, 5)),
        ValueError,
        r"c has shape \(2, 3, 5\).*broadcast",
    ),
    (
        "c dtype",
        lambda: fastgemm.gemm(A, B, torch.ones(5).double()),
        ValueError,
        r"c has dtype torch\.float64.*torch\.float32",
    ),
    (
        "c of int8",
        lambda: fastgemm.gemm(A.char(), B.char(), torch.ones(5).char()),
        ValueError,
        r"c has dtype torch\.int8.*torch\.int32",
    ),
    (
        "c device",
        lambda: fastgemm.gemm(A, B, torch.ones(5, device="meta")),
        ValueError,
        r"one device.*c on meta",
    ),
    ("c no tensor", lambda: fastgemm.gemm(A, B, 2.0), TypeError, r"c must be a torch\.Tensor, got float"),
    ("beta, no c", lambda: fastgemm.gemm(A, B, beta=2), ValueError, r"beta is 2.* but there is no c"),
    (
        "alpha of integers",
        lambda: fastgemm.gemm(A.int(), B.int(), alpha=0.5),
        ValueError,
        r"alpha must be a whole number.*0\.5",
    ),
    (
        "beta of integers",
        lambda: fastgemm.gemm(A.int(), B.int(), torch.ones(5).int(), beta=1.5),
        ValueError,
        r"beta must be a whole number",
    ),
    (
        "alpha NaN, int",
        lambda: fastgemm.gemm(A.int(), B.int(), alpha=float("nan")),
        ValueError,
        r"alpha must be a whole number",
    ),
    ("alpha a string", lambda: fastgemm.gemm(A, B, alpha="2"), TypeError, r"alpha"),
    (
        "alpha a tensor",
        lambda: fastgemm.gemm(A, B, alpha=SCALE),
        TypeError,
        r"alpha must be.*alpha\.item\(\)",
    ),
    (
        "beta a tensor",
        lambda: fastgemm.gemm(A, B, ROW, beta=SCALE),
        TypeError,
        r"beta must be.*beta\.item\(\)",
    ),
    (
        "alpha a tensor, a gradient required",
        lambda: fastgemm.gemm(A.clone().requires_grad_(), B, alpha=SCALE),
        TypeError,
        r"alpha must be a number",
    ),
    (
        "alpha a tensor, out=",
        lambda: fastgemm.gemm(A, B, alpha=SCALE.detach(), out=torch.empty(4, 5)),
        TypeError,
        r"alpha must be a number",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), [c[1:] for c in BAD_GEMM], ids=[c[0] for c in BAD_GEMM])
def test_bad_gemm_input(call, kind, message):
    with pytest.raises(kind, match=message) as caught:
        call()
    assert caught.type is kind


def test_matmul_refuses_scalars():
    for a, b in [(torch.tensor(1.0), B), (A, torch.tensor(1.0))]:
        with pytest.raises(ValueError, match="at least 1 dimension"):
            fastgemm.matmul(a, b)


BAD_TRANSPOSE = [
    (
        "1-D",
        lambda: fastgemm.transpose(A[0]),
        ValueError,
        r"a must have at least 2 dimensions, got shape \(4,\)",
    ),
    ("no tensor", lambda: fastgemm.transpose([[1]]), TypeError, r"a must be a torch\.Tensor, got list"),
    ("sparse", lambda: fastgemm.transpose(sparse()), NotImplementedError, r"a has layout"),
    ("quantized", lambda: fastgemm.transpose(quantized()), NotImplementedError, r"a is quantized"),
    ("level", lambda: fastgemm.transpose(A, level=9), ValueError, r"level must be 1 to 7 or None, got 9"),
    (
        "kernel",
        lambda: fastgemm.transpose(A, kernel="simt"),
        ValueError,
        r"unknown kernel 'simt'.*nearest.*'simd'",
    ),
    (
        "out shape",
        lambda: fastgemm.transpose(A, out=torch.ones(3, 4)),
        ValueError,
        r"out has shape \(3, 4\), expected \(4, 3\)",
    ),
    (
        "out dtype",
        lambda: fastgemm.transpose(A, out=torch.ones(4, 3).int()),
        ValueError,
        r"out has dtype torch\.int32, expected torch\.float32",
    ),
    (
        "out device",
        lambda: fastgemm.transpose(A, out=torch.ones(4, 3, device="meta")),
        ValueError,
        r"one device",
    ),
]


@pytest.mark.parametrize(
    ("call", "kind", "message"), [c[1:] for c in BAD_TRANSPOSE], ids=[c[0] for c in BAD_TRANSPOSE]
)
def test_bad_transpose_input(call, kind, message):
    with pytest.raises(kind, match=message) as caught:
        call()
    assert caught.type is kind


BAD_ADD = [
    ("shapes", lambda f: f(A, B), ValueError, r"shapes of a \(3, 4\) and b \(4, 5\) do not broadcast"),
    (
        "dtypes",
        lambda f: f(A, A.double()),
        ValueError,
        r"b has dtype torch\.float64, but a has torch\.float32",
    ),
    ("dtype", lambda f: f(A.to(UINT16), A.to(UINT16)), TypeError, r"a has dtype torch\.uint16"),
    ("no tensor", lambda f: f(A, 1.0), TypeError, r"b must be a torch\.Tensor, got float"),
    ("sparse", lambda f: f(sparse(), A), NotImplementedError, r"a has layout"),
    ("alpha", lambda f: f(A.int(), A.int(), alpha=0.5), ValueError, r"alpha must be a whole number"),
    ("alpha a tensor", lambda f: f(A.clone(), A, alpha=SCALE), TypeError, r"alpha must be.*alpha\.item\(\)"),
    ("level", lambda f: f(A, A, level=9), ValueError, r"level must be 1 to 7 or None, got 9"),
    ("kernel", lambda f: f(A, A, kernel="naiv"), ValueError, r"unknown kernel 'naiv'.*'naive"),
    ("device", lambda f: f(A, A.to("meta")), ValueError, r"one device"),
]


@pytest.mark.parametrize("function", [fastgemm.add, fastgemm.add_])
@pytest.mark.parametrize(("call", "kind", "message"), [c[1:] for c in BAD_ADD], ids=[c[0] for c in BAD_ADD])
def test_bad_add_input(function, call, kind, message):
    with pytest.raises(kind, match=message) as caught:
        call(function)
    assert caught.type is kind


def test_add_in_place_does_not_grow_a():
    with pytest.raises(ValueError, match=r"out has shape \(1, 4\), expected \(3, 4\)|a has shape"):
        fastgemm.add_(torch.ones(1, 4), A)
    with pytest.raises(ValueError, match="share memory"):
        fastgemm.add_(torch.ones(1, 4).expand(3, 4), A)


def test_bad_input_leaves_out_untouched():
    out = torch.full((3, 5), 7.0)
    for options in ({"level": 9}, {"kernel": "none"}, {"precision": "low"}):
        with pytest.raises(ValueError):
            fastgemm.matmul(A, B, out=out, **options)
    with pytest.raises(ValueError):
        fastgemm.matmul(A, A, out=out)
    assert (out == 7).all()
