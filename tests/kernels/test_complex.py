"""Tests complex products and sums against complex128, by every kernel for the type of their real parts.

The real and imaginary parts of a product are sums of 2 K terms. So the bound is that of a real product with 2 K
(reference.py). For magnitudes, |a_re b_re| + |a_im b_im| <= |a| |b|.
"""

import functools
import math
from typing import Any

import fastgemm
import pytest
import torch
from fastgemm._errors import COMPLEX_PARTS
from fastgemm._introspect import knowledge, take_last_gemm_kernel
from pairwise import pairs
from reference import (
    DEVICES,
    OPERAND_ROUNDING,
    UNIT_ROUNDOFF,
    by_name,
    every_device,
    is_library,
    levels,
    row_id,
    rows,
)
from torch import Tensor

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

COMPLEX_OF = {part: dtype for dtype, part in COMPLEX_PARTS.items()}
ROWS = [
    (device, kernel, COMPLEX_OF[part])
    for device, kernel, part in rows("gemm", *DEVICES)
    if part in COMPLEX_OF and not is_library("gemm", device, kernel)
]
BY_TORCH = (torch.complex64, torch.complex128)
every_type = pytest.mark.parametrize("dtype", COMPLEX_PARTS, ids=row_id)
every_type_of_torch = pytest.mark.parametrize("dtype", BY_TORCH, ids=row_id)

OWN = 6  # all levels except 7, which may use torch's product
VIEWS = {
    "plain": lambda x: x,
    "column-major": lambda x: x.mT.contiguous().mT,
    "conjugated": lambda x: x.conj(),
    "conjugate transpose": lambda x: x.mT.contiguous().mH,
    "negative": lambda x: torch._neg_view(x),
    "every other column": lambda x: torch.stack([x, x + 1], -1).flatten(-2)[..., ::2],
}


def random_complex(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, dtype=torch.complex128).to(dtype)


def operands(m: int, n: int, k: int, dtype: torch.dtype, *batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """a (of a batch, if there is one), b, and a c with the result's shape."""
    shapes = (*batch, m, k), (k, n), (*batch, m, n)
    a, b, c = (random_complex(*shape, dtype=dtype) for shape in shapes)
    return a, b, c


def own_levels(device: str) -> list[int]:
    """The levels that never use torch's product."""
    return [level for level in levels("gemm", device) if level < 7]


def wide(x: Tensor) -> Tensor:
    return x.resolve_conj().resolve_neg().cpu().to(torch.complex128)


def assert_right(
    result: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    precision: str = "ieee",
) -> None:
    part = COMPLEX_PARTS[a.dtype]
    u = UNIT_ROUNDOFF[torch.float32 if part == torch.float16 else part]
    a, b = wide(a), wide(b)
    expected, magnitude = alpha * (a @ b), abs(alpha) * (a.abs() @ b.abs())
    if c is not None:
        expected, magnitude = expected + beta * wide(c), magnitude + abs(beta) * wide(c).abs()
    terms = 2 * a.shape[-1]
    rounded = UNIT_ROUNDOFF[part] if part == torch.float16 else 0.0
    of_operands = 2 * OPERAND_ROUNDING.get(precision, 0.0) * min(1, 16 / math.sqrt(terms))
    bound = (2 * u * (math.sqrt(terms) + 3) + of_operands) * magnitude + rounded * expected.abs()
    bound *= math.sqrt(2)  # real and imaginary part
    assert result.dtype == COMPLEX_OF[part]
    assert result.shape == expected.shape
    error = (wide(result) - expected).abs()
    assert bool((error <= bound).all()), f"{float((error / bound).nan_to_num().max()):.3g} of the bound"


@pytest.mark.parametrize(("device", "kernel", "dtype"), ROWS, ids=row_id)
def test_every_kernel(device, kernel, dtype):
    choice = by_name(kernel, COMPLEX_PARTS[dtype])
    for m, n, k in ((33, 41, 17), (1, 9, 130), (64, 8, 32)):
        a, b, _ = operands(m, n, k, dtype)
        try:
            result = fastgemm.matmul(a, b, **choice)
        except RuntimeError as error:  # for example of a kernel for few rows
            assert "cannot run" in str(error) or "takes" in str(error), error
            continue
        assert_right(result, a, b, precision=choice.get("precision", "ieee"))


@every_device
@pytest.mark.parametrize(("of_a", "of_b", "dtype"), pairs(VIEWS, VIEWS, COMPLEX_PARTS), ids=row_id)
def test_views(device, of_a, of_b, dtype):
    a, b, c = operands(10, 35, 14, dtype, 3)
    a, b, c = VIEWS[of_a](a), VIEWS[of_b](b), VIEWS[of_b](c)
    assert_right(fastgemm.gemm(a, b, c, alpha=-2.0, beta=0.5, level=OWN), a, b, c, -2.0, 0.5)
    row = c[0, :1].squeeze(0)
    assert_right(fastgemm.gemm(a, b, row, beta=3.0, level=OWN), a, b, row, 1.0, 3.0)
    plain = fastgemm.matmul(a, b, level=OWN)
    flagged = fastgemm.gemm(a.mT, b.mT, trans_a=True, trans_b=True, level=OWN)
    assert torch.equal(wide(flagged), wide(plain))
    for of_out in VIEWS.values():
        out = of_out(torch.full((3, 10, 35), complex(7, 7), dtype=dtype))
        fastgemm.matmul(a, b, out=out, level=OWN)
        assert_right(out, a, b)
    into = c.resolve_conj().resolve_neg().clone()
    fastgemm.gemm(a, b, into, beta=2.0, out=into, level=OWN)
    assert_right(into, a, b, c, 1.0, 2.0)


@every_device
@every_type
def test_batches_broadcast(device, dtype):
    a = random_complex(4, 1, 6, 5, dtype=dtype)
    for b in (
        random_complex(3, 5, 7, dtype=dtype),
        random_complex(5, 7, dtype=dtype).expand(4, 3, 5, 7),
        random_complex(3, 7, 5, dtype=dtype).expand(4, 3, 7, 5).mH,
    ):
        assert_right(fastgemm.matmul(a, b, level=OWN), a, b)
    vector = random_complex(5, dtype=dtype)
    for level in (OWN, None):
        assert_right(fastgemm.matmul(a, vector, level=level).unsqueeze(-1), a, vector.unsqueeze(-1))


@every_device
@every_type
def test_without_elements_or_terms(device, dtype):
    a, b, c = operands(2, 4, 3, dtype)
    assert fastgemm.matmul(a[:0], b).shape == (0, 4)
    assert torch.equal(wide(fastgemm.gemm(a[:, :0], b[:0], c, beta=2.0)), 2 * wide(c))
    assert_right(fastgemm.gemm(a, b, c * complex(math.nan, 0), beta=0.0), a, b)


@every_device
@every_type_of_torch
def test_the_product_is_one_of_real_matrices_bit_by_bit(device, dtype):
    a, b, _ = operands(30, 20, 50, dtype)
    doubled = torch.stack([b, torch.complex(-b.imag, b.real)], 1).flatten(0, 1)
    for level in own_levels(device):
        found = fastgemm.matmul(a, b, level=level)
        parts = torch.view_as_real(a).flatten(-2), torch.view_as_real(doubled).flatten(-2)
        real = fastgemm.matmul(*parts, level=level)
        assert torch.equal(torch.view_as_real(found).flatten(-2), real)
        assert torch.equal(found, fastgemm.matmul(a, b, level=level))


@every_device
def test_special_values_are_those_of_the_four_products(device):
    """(a + bi)(c + di) = (ac - bd) + (ad + bc)i, and each term follows IEEE arithmetic."""
    special = (0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 5e-324, 1e308)
    numbers = torch.tensor([complex(x, y) for x in special for y in special]).to(torch.complex128)
    x, y = numbers.unsqueeze(-1), numbers.unsqueeze(0)
    re = x.real * y.real - x.imag * y.imag
    im = x.real * y.imag + x.imag * y.real
    for level in own_levels(device):
        found = fastgemm.matmul(x, y, level=level)
        for part, expected in ((found.real, re), (found.imag, im)):
            assert torch.equal(part.isnan(), expected.isnan())
            same = expected.isnan() | (part == expected) | ((part - expected).abs() <= 1e-15 * expected.abs())
            assert bool(same.all())


# --- kernels that take complex numbers directly, and torch's product


def chosen(*operands: Tensor, **options: Any) -> tuple[str, Tensor]:
    """The kernel that computed a product, and the result."""
    result = fastgemm.gemm(*operands, **options)
    return take_last_gemm_kernel(), result


TILES = [(15, 17, 513), (131, 70, 1030), (40, 33, 2100), (3, 500, 64), (200, 190, 9)]


@pytest.mark.parametrize("kernel", ["pipelined", "invariant"])
@every_type_of_torch
def test_complex_tiles(dtype, kernel):
    """Tests edges of tiles, blocks of k, and parts of k for each thread."""
    for size, of_a, of_b in pairs(TILES, VIEWS, VIEWS):
        a, b, c = (
            view(x) for view, x in zip((VIEWS[of_a], *2 * [VIEWS[of_b]]), operands(*size, dtype), strict=True)
        )
        out = torch.zeros(*c.mT.shape, dtype=dtype).mT
        fastgemm.gemm(a, b, c, alpha=-2.0, beta=0.5, out=out, kernel=kernel)
        assert take_last_gemm_kernel() == kernel
        assert_right(out, a, b, c, -2.0, 0.5)
    for batch in (2, 9):
        a, b = random_complex(batch, 300, 40, dtype=dtype).mH, random_complex(batch, 300, 50, dtype=dtype)
        assert_right(fastgemm.matmul(a, b, kernel=kernel), a, b)


@every_type_of_torch
def test_where_memory_for_panels_is_short(dtype):
    a, b, _ = operands(200, 200, 200, dtype)
    try:
        fastgemm.tuning.limit_workspace(1000)
        assert_right(fastgemm.matmul(a, b), a, b)
        with pytest.raises(torch.OutOfMemoryError):
            fastgemm.matmul(a, b, kernel="pipelined")
    finally:
        fastgemm.tuning.limit_workspace(None)


@every_device
@pytest.mark.parametrize("choice", [{"kernel": "torch"}, {"level": 7, "kernel": "torch"}], ids=str)
@every_type_of_torch
def test_torchs_own_product(device, dtype, choice):
    """Tests all views of operands, addends, results and batches."""
    a, b, _ = operands(64, 32, 96, dtype)
    assert torch.equal(fastgemm.gemm(a, b, **choice), a @ b)  # for other views MKL may sum in another order
    for of_a, of_b in pairs(VIEWS.values(), VIEWS.values()):
        a, b, c = operands(10, 35, 14, dtype)
        a, b, c = of_a(a), of_b(b), of_b(c)
        for addend in (c, c[0]):
            name, found = chosen(a, b, addend, alpha=-2.0, beta=0.5, **choice)
            assert name == "torch"
            assert_right(found, a, b, addend, -2.0, 0.5)
        out = of_b(torch.zeros(10, 35, dtype=dtype))
        name, _ = chosen(a.mT, b.mT, trans_a=True, trans_b=True, out=out, **choice)
        assert name == "torch"
        assert_right(out, a, b)
    make = functools.partial(random_complex, dtype=dtype)
    a, b, c = of_a(make(4, 1, 10, 14)), of_b(make(3, 14, 35)), make(3, 10, 35)
    for many in (b, b[0], b[:1].expand(4, 3, 14, 35), of_b(make(2, 4, 3, 14, 35).mT).mT[1]):
        name, found = chosen(a, many, c[0], beta=2.0, **choice)
        assert name == "torch"
        assert_right(found, a, many, c[0], beta=2.0)
    into = c.clone()
    fastgemm.gemm(a[0], b, into, beta=2.0, out=into, **choice)
    assert_right(into, a[0], b, c, beta=2.0)
    out = torch.zeros(3, 35, 10, dtype=dtype).mT.conj()
    fastgemm.gemm(a[0], b, out=out, **choice)
    assert_right(out, a[0], b)


@every_device
@every_type_of_torch
@pytest.mark.parametrize("level", [None, 7])
def test_the_choice_left_open(device, dtype, level):
    """On a CPU torch's product is faster. Levels below 7 never use it."""
    a, b, _ = operands(70, 90, 50, dtype)
    name, found = chosen(a, b, level=level)
    assert_right(found, a, b)
    if device == "cpu":
        assert name == "torch"
    for below in own_levels(device):
        assert chosen(a, b, level=below)[0] not in ("torch", "")
    for empty in (a[:0], a[:, :0]):
        name, found = chosen(empty, b[: empty.shape[1]], level=OWN)
        assert name != "torch" and not found.any()
    assert not chosen(a * math.nan, b, alpha=0.0)[1].any()


@pytest.mark.skipif("cuda" not in DEVICES or knowledge() == "predicted", reason="a GPU that was measured")
@pytest.mark.parametrize(
    ("dtype", "size", "torchs"),
    [(torch.complex64, 2048, False), (torch.complex64, 256, True), (torch.complex128, 1024, True)],
)
def test_the_choice_on_a_gpu_that_was_measured(dtype, size, torchs):
    a, b = (random_complex(size, size, dtype=dtype).to("cuda") for _ in range(2))
    assert (chosen(a, b)[0] == "torch") == torchs
    if dtype == torch.complex64:
        assert chosen(a, b, precision="bf16x6")[0] != "torch"


@pytest.mark.parametrize("dtype", COMPLEX_PARTS, ids=row_id)
def test_what_torch_does_not_compute(dtype):
    a = random_complex(20, 20, dtype=dtype)
    torchs = torch.backends.mkldnn.matmul.fp32_precision
    if dtype == torch.complex32:
        with pytest.raises(
            RuntimeError, match="kernel 'torch' cannot run here: torch does not multiply complex32"
        ):
            fastgemm.matmul(a, a, kernel="torch")
        assert chosen(a, a)[0] not in ("torch", "")
    try:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        name, found = chosen(a, a)  # torch's complex products do not depend on the flag
        assert (name == "torch") == (dtype != torch.complex32)
        assert_right(found, a, a)
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = torchs


@every_type
def test_memory_that_starts_at_a_part(dtype):
    """Complex numbers in memory from outside torch may be aligned only for their parts."""
    part = dtype.itemsize // 2
    memory = torch.zeros(part + 6 * 5 * dtype.itemsize, dtype=torch.uint8)
    b = torch.frombuffer(memory.numpy(), dtype=dtype, offset=part).view(6, 5)
    b.copy_(random_complex(6, 5, dtype=dtype))
    a = random_complex(4, 6, dtype=dtype)
    for level in (OWN, None):
        name, found = chosen(a, b, level=level)
        assert name != "torch"  # torch may read whole numbers
        assert_right(found, a, b)
    with pytest.raises(RuntimeError, match="kernel 'torch' cannot run here: "):
        fastgemm.matmul(a, b, kernel="torch")


# --- sums, the table, and misuse


@every_device
@every_type
def test_sums(device, dtype):
    a = VIEWS["every other column"](random_complex(3, 4, 6, dtype=dtype))
    for b in (random_complex(4, 1, dtype=dtype), random_complex(6, dtype=dtype).conj()):
        result = fastgemm.add(a, b, alpha=-2.0)
        tolerance = {torch.complex32: 1e-2, torch.complex64: 1e-6, torch.complex128: 1e-14}[dtype]
        torch.testing.assert_close(wide(result), wide(a) - 2 * wide(b), rtol=tolerance, atol=tolerance)
        into = a.clone()
        fastgemm.add_(into, b, alpha=-2.0)
        assert torch.equal(wide(into), wide(result))


def test_the_kernel_table_knows_them():
    for dtype, part in COMPLEX_PARTS.items():
        for op in ("gemm", "add"):
            rows = fastgemm.kernels(op, dtype=part)
            if op == "gemm" and dtype == torch.complex32:
                rows = [row for row in rows if row.name != "torch"]  # which has no such products
            assert fastgemm.kernels(op, dtype=dtype) == rows != []


REFUSED = {  # wrong uses as in test_wrong_uses.py: complex numbers have separate checks
    "b has dtype torch.float32, but a has torch.complex64": lambda a: fastgemm.matmul(a, a.real),
    r"inner sizes differ: a is \(3, 3\), b is \(2, 3\)": lambda a: fastgemm.matmul(a, a[:2]),
    "accepted: torch.complex64": lambda a: fastgemm.matmul(a, a, out_dtype=torch.complex128),
    "c has dtype torch.float32, expected that of the result": lambda a: fastgemm.gemm(a, a, a.real),
    r"c has shape \(2, 3\), which does not broadcast": lambda a: fastgemm.gemm(a, a, a[:2]),
    "out has dtype torch.float32": lambda a: fastgemm.matmul(a, a, out=a.real.clone()),
    r"expected \(3, 3\)": lambda a: fastgemm.matmul(a, a, out=a[:2].clone()),
    "out overlaps a": lambda a: fastgemm.matmul(a, a.clone(), out=a),
    "out overlaps b": lambda a: fastgemm.matmul(a.clone(), a, out=a),
    "beta is 2 but there is no c": lambda a: fastgemm.gemm(a, a, beta=2.0),
    "is for float32 operands only": lambda a: fastgemm.matmul(a.cdouble(), a.cdouble(), precision="tf32"),
    "kernel 'torch' is of level 7, not 2": lambda a: fastgemm.matmul(a, a, level=2, kernel="torch"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_refusals(text):
    with pytest.raises(ValueError, match=text):
        REFUSED[text](random_complex(3, 3, dtype=torch.complex64))


def test_scales_are_real():
    a = random_complex(3, 3, dtype=torch.complex64)
    with pytest.raises(TypeError, match="alpha must be a float, got complex"):
        fastgemm.gemm(a, a, alpha=1j)


@every_type_of_torch
def test_rows_of_complex_products_that_do_not_depend_on_the_others(dtype):
    a, b, _ = operands(301, 90, 1100, dtype)
    whole = fastgemm.matmul(a, b, invariant=True)
    for some in (slice(0, 1), slice(7, 12), slice(100, 301)):
        assert torch.equal(fastgemm.matmul(a[some], b, invariant=True), whole[some])
    assert torch.equal(fastgemm.matmul(a, b.mT.contiguous().mT, invariant=True), whole)
