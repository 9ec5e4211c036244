"""The row ``symmetric`` on the simulator: kernels of triangles, blocks by other rows, and the mirror."""

from __future__ import annotations

from typing import Any

import fastgemm
import numpy
import pytest
import torch
from fastgemm._explain.run import load_simulator
from reference import check_gemm, is_symmetric, needs_simulator, random_tensor, row_id

pytestmark = needs_simulator

SIMULATED = [
    (torch.bfloat16, None),
    (torch.float16, None),
    (torch.float32, "tf32"),
    (torch.float32, None),
    (torch.float64, None),
    (torch.int8, None),
    (torch.int32, None),
    (torch.int64, None),
]


@pytest.mark.parametrize("n, k", [(1300, 128), (1153, 100)])
def test_triangles_of_planes(n, k):
    a = random_tensor(n, k, dtype=torch.float32)
    with fastgemm.simulate():
        assert is_symmetric(check_gemm(a, a.mT, kernel="symmetric"))
    assert "bf16x6" in launched(n, k, torch.float32, multiprocessors=3)


def launched(
    n: int, k: int, dtype: torch.dtype, multiprocessors: int, capability: int = 90, **options: Any
) -> list[str]:
    """The kernels that a symmetric product launches on a GPU, none of which runs."""
    a = torch.zeros(n, k, dtype=dtype)
    simulator = load_simulator()
    simulator.begin(
        True, True, multiprocessors=multiprocessors, max_blocks=0, capability=capability, run=False
    )
    try:
        fastgemm.gemm(a, a.mT, kernel="symmetric", **options)
    finally:
        found = simulator.end()
    assert {launch["row"] for launch in found} == {"symmetric"}
    return [launch["kernel"] for launch in found]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=row_id)
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize(
    "shape", [(264, 136), (392, 96), (520, 64), (1304, 72), (1160, 64), (2, 392, 96)], ids=str
)
def test_kernels_that_store_both_triangles(shape, columns, dtype):
    a = random_tensor(*shape, dtype=dtype)
    if columns:
        a = a.mT.contiguous().mT
    n, k = shape[-2:]
    c = random_tensor(n, n, dtype=dtype)
    c = c.tril() + c.tril(-1).mT
    with fastgemm.simulate():
        assert is_symmetric(check_gemm(a, a.mT, kernel="symmetric"))
        how = {"kernel": "symmetric", "symmetric": True}
        assert is_symmetric(check_gemm(a, a.mT, c, alpha=0.5, beta=2.0, **how))
        expected = fastgemm.gemm(a, a.mT, c.expand(*a.shape[:-2], n, n), **how)
        into = c.expand(*a.shape[:-2], n, n).contiguous()
        fastgemm.gemm(a, a.mT, into, out=into, **how)
    assert torch.equal(into, expected)
    assert launched(n, k, dtype, multiprocessors=3) == ["wgmma_specialized"]


def test_tiles_of_192_columns_that_store_both_triangles():
    """Three boxes of a warp each: a GPU of 19 multiprocessors takes such tiles for 768 x 768."""
    a = random_tensor(768, 64, dtype=torch.bfloat16)
    simulator = load_simulator()
    simulator.begin(count=False, raise_problems=True, multiprocessors=19, max_blocks=0, capability=90)
    try:
        result = fastgemm.gemm(a, a.mT, kernel="symmetric")
    finally:
        simulator.end()
    assert is_symmetric(result) and launched(768, 64, torch.bfloat16, 19) == ["wgmma_specialized"]
    torch.testing.assert_close(result.double(), a.double() @ a.double().mT, rtol=4e-3, atol=1e-3)


def test_a_pass_mirrors_what_no_kernel_does():
    """Rows of C that the TMA cannot write, results of 4 bytes."""
    assert launched(260, 64, torch.bfloat16, multiprocessors=132)[-1] == "mirror"
    assert launched(264, 128, torch.float32, multiprocessors=132)[-1] == "mirror"


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("n", [130, 257])
@pytest.mark.parametrize("dtype, precision", SIMULATED, ids=row_id)
@pytest.mark.parametrize("gpu", [None, "A100"])
def test_simulated(gpu, dtype, precision, n, columns):
    a = random_tensor(n, 72, dtype=dtype)
    if columns:
        a = a.mT.contiguous().mT
    with fastgemm.simulate(gpu):
        result = check_gemm(a, a.mT, kernel="symmetric", precision=precision)
        assert is_symmetric(result)
        c = random_tensor(n, n, dtype=result.dtype)
        sums = fastgemm.gemm(a, a.mT, c.clone(), kernel="symmetric", precision=precision, symmetric=True)
    assert is_symmetric(sums)


@pytest.mark.parametrize("dtype, precision", SIMULATED[:5], ids=row_id)
@pytest.mark.parametrize("n", [1300, 1299])
def test_triangles_of_hopper(n, dtype, precision):
    """Large enough that one launch computes the triangle: tiles are folded, some lie outside."""
    kernel = "crt" if precision is None and dtype in (torch.float32, torch.float64) else "wgmma_specialized"
    k = 1024 if kernel == "crt" and dtype == torch.float32 else 128 if kernel == "crt" else 64
    a = random_tensor(n, k, dtype=dtype)
    with fastgemm.simulate():
        result = check_gemm(a, a.mT, kernel="symmetric", precision=precision)
    assert is_symmetric(result)
    assert kernel in launched(n, k, dtype, multiprocessors=3, precision=precision)


@pytest.mark.parametrize(
    "dtype, n, k",
    [(torch.complex64, 200, 48), (torch.complex128, 200, 48), (torch.complex128, 390, 128)],
    ids=str,
)
def test_simulated_hermitian(dtype, n, k):
    a = torch.randn(n, k, dtype=dtype)
    with fastgemm.simulate():
        result = fastgemm.gemm(a, a.mH, kernel="symmetric")
    assert is_symmetric(result, result.mH.resolve_conj())
    torch.testing.assert_close(result, a @ a.mH, rtol=1e-5, atol=1e-4)


def test_bits_of_the_general_product():
    """Where neither splits a sum."""
    a = random_tensor(1300, 64, dtype=torch.bfloat16)
    with fastgemm.simulate():
        half = fastgemm.matmul(a, a.mT, kernel="symmetric")
        whole = fastgemm.matmul(a, a.mT, kernel="wgmma_specialized")
    assert torch.equal(half.tril(), whole.tril())


def test_explain():
    report = fastgemm.explain("gemm", kernel="symmetric", shape=(128, 128, 64))
    assert report.kernel == "symmetric" and not report.problems
    with pytest.raises(ValueError, match="for square results, got M = 128 and N = 64"):
        fastgemm.explain("gemm", kernel="symmetric", shape=(128, 64, 64))
    assert [launch.kernel for launch in report.launches][-1] == "mirror"


@pytest.mark.parametrize("gpu", ["H200", "A100"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bfloat16], ids=row_id)
def test_no_terms_simulated(gpu, dtype):
    a, c = torch.zeros(9, 4, dtype=dtype), random_tensor(9, 9, dtype=dtype)
    with fastgemm.simulate(gpu):
        assert not fastgemm.gemm(a[:, :0], a[:, :0].mT, kernel="symmetric").any()
        sums = fastgemm.gemm(a, a.mT, c, alpha=0.0, kernel="symmetric", symmetric=True)
    assert torch.equal(sums, c.tril() + c.tril(-1).mT)


def test_complex_numbers_that_begin_anywhere():
    """At a multiple of a part, as memory from outside torch may."""
    a = torch.randn(70, 20, dtype=torch.complex128)
    memory = numpy.zeros(16 * 70 * 70 + 32, dtype=numpy.uint8)
    start = 8 + -memory.ctypes.data % 16
    out = torch.from_numpy(memory[start : start + 16 * 70 * 70].view(numpy.complex128).reshape(70, 70))
    assert out.data_ptr() % 16 == 8
    with fastgemm.simulate():
        fastgemm.gemm(a, a.mH, symmetric=True, kernel="symmetric", out=out)
    torch.testing.assert_close(out, a @ a.mH)
