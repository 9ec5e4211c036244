"""Tests symmetric results: the row ``symmetric``, the products that use it, and its guarantees.

Values must obey the bounds of the general product. In addition the result must be symmetric bit for bit, only one
triangle of an addend may count, and certain products must be recognized as symmetric.
"""

from typing import Any

import fastgemm
import pytest
import torch
from fastgemm._introspect import take_last_gemm_kernel
from pairwise import pairs
from reference import (
    DEVICES,
    DTYPES,
    assert_right,
    check_gemm,
    expected_gemm,
    is_symmetric,
    levels,
    random_tensor,
    row_id,
)
from torch import Tensor

FLOATS = (torch.float64, torch.float32, torch.bfloat16)
COMPLEX = (torch.complex64, torch.complex128)
SHAPES = [(1, 1), (1, 5), (63, 64), (65, 129), (130, 1), (257, 40), (300, 70)]
# Rows that the TMA can write. The kernel stores 16-bit results twice, in boxes (mirrored_store.cuh).
TMA_SHAPES = [(264, 72), (520, 64), (1304, 64)]
every_device = pytest.mark.parametrize("device", DEVICES)
every_type = pytest.mark.parametrize("dtype", DTYPES, ids=row_id)


def random(*shape: int, dtype: torch.dtype, device: str = "cpu") -> Tensor:
    if dtype.is_complex:
        return torch.randn(*shape, dtype=dtype).to(device)
    return random_tensor(*shape, dtype=dtype).to(device)


def own_kernel(dtype: torch.dtype) -> dict[str, Any]:
    """int16 has its own kernels if the result is int32. Otherwise it is widened to int64."""
    return {"kernel": "symmetric"} | ({"out_dtype": torch.int32} if dtype == torch.int16 else {})


@every_type
@every_device
def test_values_and_symmetry(device, dtype):
    for shape in SHAPES + TMA_SHAPES * (device == "cuda"):
        a = random(*shape, dtype=dtype, device=device)
        assert is_symmetric(check_gemm(a, a.mT, **own_kernel(dtype))), shape


@every_type
@every_device
def test_layouts(device, dtype):
    for a in (
        random(70, 140, dtype=dtype).mT,
        random(280, 70, dtype=dtype)[::2],
        random(140, 70, dtype=dtype)[:, ::2],
        random(3, 140, 70, dtype=dtype),
        random(6, 131, 9, dtype=dtype).view(2, 3, 131, 9).transpose(0, 1),
        random(1, 140, 70, dtype=dtype).expand(2, 140, 70),
    ):
        a = a.to(device)
        assert is_symmetric(check_gemm(a, a.mT, **own_kernel(dtype))), a.stride()


@every_device
def test_out(device):
    a = torch.randn(2, 150, 40, device=device)
    for x, out in (
        (a[0], torch.full((150, 150), torch.nan, device=device).mT),
        (a[0], torch.full((150, 160), torch.nan, device=device)[:, :150]),
        (a, torch.full((150, 2, 150), torch.nan, device=device).transpose(0, 1)),
    ):
        check_gemm(x, x.mT, kernel="symmetric", out=out)
        assert is_symmetric(out)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex32, *COMPLEX], ids=row_id)
def test_the_upper_triangle_is_a_copy_of_the_lower_one(dtype):
    """It is copied in tiles of 16 to 64 numbers, of which some are not whole."""
    for n in (1, 2, 3, 15, 17, 33, 63, 64, 65, 95, 128, 131, 257):
        if dtype.is_complex:
            x = torch.randn(2, n, n, dtype=torch.complex64).to(dtype)
        else:
            x = random_tensor(2, n, n, dtype=dtype)
        out = torch.ones(2, n, n + 3, dtype=x.dtype if dtype.is_complex else fastgemm.matmul(x, x).dtype)
        one = torch.eye(n, dtype=torch.float32).to(dtype)
        fastgemm.gemm(x, one.expand(2, n, n), out=out[..., :n], symmetric=True)
        found = torch.view_as_real(out) if dtype.is_complex else out[..., None]
        lower, upper = found[..., :n, :], found[..., :n, :].transpose(1, 2)
        below = torch.ones(n, n, dtype=torch.bool).tril(-1)
        plain = torch.view_as_real(x) if dtype.is_complex else x[..., None]
        assert torch.equal(lower[:, below].to(plain.dtype), plain[:, below])
        assert torch.equal(lower[:, below][..., 0], upper[:, below][..., 0])
        if dtype.is_complex:
            assert torch.equal(lower[:, below][..., 1], -upper[:, below][..., 1])
            assert (torch.diagonal(found[..., :n, 1], dim1=1, dim2=2) == 0).all()
        assert (found[..., n:, 0] == 1).all()


# --- what the caller promises


CHOICES = {"free": {}, "level 3": {"level": 3}, "symmetric": {"kernel": "symmetric"}}


@pytest.mark.parametrize(
    "dtype, choice, columns, in_place", pairs(FLOATS, CHOICES, [False, True], [False, True]), ids=row_id
)
@every_device
def test_only_the_lower_triangle_of_c_counts(device, dtype, choice, columns, in_place):
    x = random(140, 140, dtype=torch.float64)
    x = (x + x.mT).to(dtype).to(device)
    c = random(140, 140, dtype=dtype, device=device)
    mirrored = c.tril() + c.tril(-1).mT
    c = c.tril() + torch.full_like(c, torch.nan).triu(1).nan_to_num(nan=1e3)
    c[0, 139] = torch.nan
    if columns:
        c = c.mT.contiguous().mT
    options = {"alpha": 0.5, "beta": 2.0} | CHOICES[choice]
    result = fastgemm.gemm(x, x, c, symmetric=True, out=c if in_place else None, **options)
    assert is_symmetric(result)
    assert_right(result, expected_gemm(x, x, mirrored, alpha=0.5, beta=2.0))


@every_device
def test_every_level_gives_an_exactly_symmetric_result(device):
    x = torch.randn(131, 131, device=device)
    x = x + x.mT
    for level in levels("gemm", device):
        assert is_symmetric(check_gemm(x, x, symmetric=True, level=level)), level


@every_device
def test_no_terms(device):
    a, c = torch.empty(70, 0, device=device), torch.randn(70, 70, device=device)
    for choice in ({}, {"kernel": "symmetric"}, {"level": 1}):
        assert torch.equal(fastgemm.gemm(a, a.mT, symmetric=True, **choice), torch.zeros_like(c))
        sums = fastgemm.gemm(a, a.mT, c, symmetric=True, **choice)
        assert torch.equal(sums, c.tril() + c.tril(-1).mT)
    assert fastgemm.gemm(a[:0], a[:0].mT, symmetric=True).shape == (0, 0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32], ids=row_id)
def test_short_of_workspace(dtype):
    """The result is right, or the call raises. c is in the memory of the result and must never be added
    twice."""
    a, c = random_tensor(900, 200, dtype=dtype), random_tensor(900, 900, dtype=dtype)
    expected = fastgemm.gemm(a, a.mT, c.tril() + c.tril(-1).mT, level=3)
    try:
        for limit in (1 << 10, 1 << 16, 1 << 19, 1 << 21, 1 << 22, 1 << 23):
            fastgemm.tuning.limit_workspace(limit)
            torch.testing.assert_close(fastgemm.gemm(a, a.mT, c, symmetric=True), expected)
            out = c.clone()
            try:
                fastgemm.gemm(a, a.mT, out, symmetric=True, out=out)
            except (RuntimeError, MemoryError) as refusal:
                assert "memory" in str(refusal)
            else:
                torch.testing.assert_close(out, expected)
    finally:
        fastgemm.tuning.limit_workspace(None)


@every_device
def test_not_finite(device):
    a = torch.randn(150, 30, device=device)
    a[3, 4], a[140, 2], a[77, 0] = torch.nan, torch.inf, -torch.inf
    result = fastgemm.matmul(a, a.mT, kernel="symmetric")
    assert is_symmetric(result.nan_to_num(nan=12345.0))
    expected = (a.double() @ a.double().mT).float()
    assert torch.equal(result.isnan(), expected.isnan())
    assert torch.equal(result.isposinf(), expected.isposinf())
    assert torch.equal(result.isneginf(), expected.isneginf())


# --- complex


@pytest.mark.parametrize("choice", [{}, {"kernel": "symmetric"}, {"level": 2}], ids=str)
@pytest.mark.parametrize("dtype", COMPLEX, ids=row_id)
@every_device
def test_hermitian(device, dtype, choice):
    a = random(140, 33, dtype=dtype, device=device)
    result = fastgemm.gemm(a, a.mH, symmetric=True, **choice)
    assert is_symmetric(result, result.mH.resolve_conj())
    assert not result.diagonal().imag.any()
    wide = a.to(torch.complex128)
    torch.testing.assert_close(result.to(torch.complex128), wide @ wide.mH, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("size, conjugated, dtype", pairs([140, 400], [False, True], COMPLEX), ids=row_id)
@every_device
def test_complex_products_are_recognized(device, size, conjugated, dtype):
    a = random(2, size, 33, dtype=dtype, device=device)
    b = a.mH if conjugated else a.mT
    wide = a.to(torch.complex128)
    for choice in ({}, {"kernel": "symmetric"}):
        result = fastgemm.matmul(a, b, **choice)
        torch.testing.assert_close(
            result.to(torch.complex128), wide @ (wide.mH if conjugated else wide.mT), rtol=1e-5, atol=1e-4
        )
        if choice or (device == "cpu" and size == 400):
            assert is_symmetric(result, result.mH.resolve_conj() if conjugated else result.mT)


@pytest.mark.parametrize(
    "shape, conjugated, dtype",
    pairs(
        [(1, 1), (2, 3), (4, 4), (5, 7), (8, 65), (33, 100), (3, 5, 7), (2, 16, 9)], [False, True], COMPLEX
    ),
    ids=row_id,
)
def test_small_complex_results_are_exact_on_a_cpu(shape, conjugated, dtype):
    """MKL leaves rounding errors of 1e-8 in the imaginary parts of the diagonal."""

    def exact(result):
        transposed = result.mH.resolve_conj() if conjugated else result.mT
        return is_symmetric(result, transposed) and not (conjugated and result.diagonal(0, -2, -1).imag.any())

    a = random(*shape, dtype=dtype)
    b = a.mH if conjugated else a.mT
    assert exact(fastgemm.matmul(a, b)) and exact(fastgemm.gemm(a, b)) and exact(fastgemm.matmul(b, a))
    with fastgemm.patch():
        assert exact(a @ b)
    if not conjugated:
        return
    c = fastgemm.matmul(a, b)
    for choice in ({}, *({"level": level} for level in range(1, 8))):
        assert exact(fastgemm.gemm(a, b, symmetric=True, **choice)), choice
        assert exact(fastgemm.gemm(a, b, c, alpha=0.5, beta=2.0, symmetric=True, **choice)), choice


@pytest.mark.parametrize("batch, size", [(10, 64), (3, 400), (500, 3)])
@pytest.mark.parametrize("dtype", COMPLEX, ids=row_id)
def test_a_batch_that_shares_a_complex_operand(dtype, batch, size):
    """The matrices must not be merged into one tall matrix, as for results that are not known to be
    symmetric."""
    a = random(batch, size, size, dtype=dtype)
    a = a + a.mH
    shared = 2 * torch.eye(size, dtype=dtype)
    room = torch.zeros(batch + 2, size, size, dtype=dtype)
    fastgemm.gemm(a, shared, symmetric=True, out=room[1:-1])
    torch.testing.assert_close(room[1:-1], 2 * a)
    assert not room[0].any() and not room[-1].any()


# --- which products are recognized


def ran(*operands: Tensor, **options: Any) -> str:
    take_last_gemm_kernel()
    fastgemm.gemm(*operands, **options)
    return take_last_gemm_kernel()


def test_recognized_on_a_cpu():
    """From a few hundred rows on, half of the work is faster. The choice is predicted."""
    a = torch.randn(1500, 1500)
    assert ran(a, a.mT) == "symmetric"
    assert ran(a.mT, a) == "symmetric"
    assert ran(a, a, trans_b=True) == "symmetric"
    assert ran(a, a, trans_a=True, alpha=3.0) == "symmetric"
    assert ran(a.expand(2, 1500, 1500), a.expand(2, 1500, 1500).mT) == "symmetric"
    assert ran(a[:, :700], a[:, :700].mT, level=None) == "symmetric"
    with fastgemm.patch() as routed:
        assert is_symmetric(a @ a.T)
    assert routed.kernels == {"symmetric": 1}


def test_not_recognized():
    a = torch.randn(1500, 1500)
    for operands, options in [
        ((a, a), {}),
        ((a, a.mT.clone()), {}),
        ((a, a), {"trans_a": True, "trans_b": True}),
        ((a[:750], a[750:].mT), {}),
        ((a[:, :700], a[:, 1:701].mT), {}),
        ((a, a.mT, a), {}),
        ((a, a.mT), {"level": 5}),
    ]:
        assert ran(*operands, **options) != "symmetric"
    small = torch.randn(8, 8)
    assert ran(small, small.mT) != "symmetric"


def test_plans_tell_one_matrix_from_two():
    """Calls with the same signature and alignment, whose operands share memory or do not."""
    a, b = torch.randn(2, 320, 320)
    for _ in range(2):
        assert is_symmetric(fastgemm.matmul(a, a.mT, kernel="symmetric"))
        with pytest.raises(RuntimeError, match="not known to be symmetric"):
            fastgemm.matmul(a, b.mT, kernel="symmetric")


def test_misuse():
    a, b = torch.randn(6, 5), torch.randn(5, 7)
    with pytest.raises(RuntimeError, match="b is not a's transpose, in the same memory"):
        fastgemm.gemm(a, b, kernel="symmetric")
    with pytest.raises(RuntimeError, match="not known to be symmetric"):
        fastgemm.gemm(a, a.mT, torch.randn(6, 6), kernel="symmetric")
    assert fastgemm.gemm(a, a.mT, level=6, kernel="symmetric").shape == (6, 6)
    with pytest.raises(ValueError, match="'symmetric' is of level 6, not 5"):
        fastgemm.gemm(a, a.mT, level=5, kernel="symmetric")


# --- torch's features


def test_gradients_are_those_of_the_general_product():
    a = torch.randn(40, 23, dtype=torch.float64, requires_grad=True)
    c = torch.randn(40, 40, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(40, 40, dtype=torch.float64)
    found, expected = [], []
    for symmetric, into in ((True, found), (False, expected)):
        result = fastgemm.gemm(a, a.mT, c, alpha=0.5, symmetric=symmetric)
        into += torch.autograd.grad(result, (a, c), weight)
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y)


def test_gradients_of_the_kernel_by_name():
    """Gradients are general products, which the kernel ``symmetric`` would refuse."""
    a = torch.randn(40, 23, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(40, 40, dtype=torch.float64)
    expected = (weight + weight.mT) @ a.detach()
    for options in ({}, {"symmetric": True}):
        result = fastgemm.gemm(a, a.mT, kernel="symmetric", **options)
        (found,) = torch.autograd.grad(result, a, weight)
        torch.testing.assert_close(found, expected)

        def loss(x, options=options):
            return (fastgemm.gemm(x, x.mT, kernel="symmetric", **options) * weight).sum()

        torch.testing.assert_close(torch.func.grad(loss)(a.detach()), expected)
        _, tangent = torch.func.jvp(loss, (a.detach(),), (a.detach(),))
        torch.testing.assert_close(tangent, (expected * a.detach()).sum())


def test_opcheck_compile_and_func():
    a = torch.randn(40, 40)
    torch.library.opcheck(torch.ops.fastgemm.gemm.default, (a, a.mT), {"symmetric": True})
    compiled = torch.compile(lambda x: fastgemm.gemm(x, x.mT, symmetric=True), backend="aot_eager")
    assert is_symmetric(compiled(a))
    with pytest.raises(Exception, match="square results"):
        torch.compile(lambda x, y: fastgemm.gemm(x, y, symmetric=True), backend="aot_eager")(a[:20], a)
    batch = torch.randn(3, 20, 6)
    mapped = torch.func.vmap(lambda x: fastgemm.gemm(x, x.mT, symmetric=True))(batch)
    torch.testing.assert_close(mapped, batch @ batch.mT)
    _, tangent = torch.func.jvp(lambda x: fastgemm.gemm(x, x.mT, symmetric=True), (a,), (a.mT.clone(),))
    torch.testing.assert_close(tangent, a.mT @ a.mT + a @ a)
