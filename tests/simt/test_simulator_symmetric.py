"""Tests the row ``symmetric`` on the simulator: kernels for triangles, blocks by other rows, and the mirror."""

from typing import Any

import fastgemm
import numpy
import pytest
import torch
from fastgemm._explain.run import load_simulator
from fastgemm._introspect import take_last_gemm_kernel
from pairwise import pairs
from reference import check_gemm, is_symmetric, needs_simulator, random_tensor, row_id, simulated_launches

pytestmark = needs_simulator

FLOATS = [(torch.bfloat16, None), (torch.float16, None), (torch.float32, "tf32"), (torch.float32, None)]
FLOATS += [(torch.float64, None)]
EVERY_TYPE = [*FLOATS, (torch.int8, None), (torch.int32, None), (torch.int64, None)]
RUN = {"kernel": "symmetric"}


def matrix(*shape: int, dtype: torch.dtype, columns: bool = False) -> torch.Tensor:
    a = random_tensor(*shape, dtype=dtype)
    return a.mT.contiguous().mT if columns else a


def launched(n: int, k: int, dtype: torch.dtype, multiprocessors: int = 3, **options: Any) -> list[str]:
    """The kernels that a symmetric product launches on Hopper. None of them runs."""
    a = torch.zeros(n, k, dtype=dtype)
    simulator = load_simulator()
    simulator.begin(True, True, multiprocessors=multiprocessors, max_blocks=0, capability=90, run=False)
    try:
        fastgemm.gemm(a, a.mT, **RUN, **options)
        assert take_last_gemm_kernel() == "symmetric"
    finally:
        found = simulator.end()
    return [launch["kernel"] for launch in found]


@pytest.mark.parametrize(
    "shape, columns, dtype",
    pairs(
        [(264, 136), (392, 96), (520, 72), (1304, 72), (1160, 64), (2, 392, 96)],
        [False, True],
        [torch.bfloat16, torch.float16],
    ),
    ids=row_id,
)
def test_kernels_that_store_both_triangles(shape, columns, dtype):
    a = matrix(*shape, dtype=dtype, columns=columns)
    n, k = shape[-2:]
    c = random_tensor(n, n, dtype=dtype)
    c = c.tril() + c.tril(-1).mT
    with fastgemm.simulate():
        assert is_symmetric(check_gemm(a, a.mT, c, alpha=0.5, beta=2.0, symmetric=True, **RUN))
        if columns:
            expected = fastgemm.gemm(a, a.mT, c.expand(*a.shape[:-2], n, n), symmetric=True, **RUN)
            into = c.expand(*a.shape[:-2], n, n).contiguous()
            fastgemm.gemm(a, a.mT, into, out=into, symmetric=True, **RUN)
            assert torch.equal(into, expected)
    assert launched(n, k, dtype) == ["wgmma_specialized"]


def test_tiles_of_192_columns_that_store_both_triangles():
    """Each warp stores three boxes. A GPU with 19 multiprocessors uses such tiles for 768 x 768."""
    a = matrix(768, 96, dtype=torch.bfloat16)
    with simulated_launches(19):
        assert is_symmetric(check_gemm(a, a.mT, **RUN))
    assert launched(768, 96, torch.bfloat16, 19) == ["wgmma_specialized"]


def test_a_pass_mirrors_what_no_kernel_does():
    """For rows of C that the TMA cannot write, and for results of 4 bytes."""
    assert launched(260, 64, torch.bfloat16, multiprocessors=132)[-1] == "mirror"
    assert launched(264, 128, torch.float32, multiprocessors=132)[-1] == "mirror"


@pytest.mark.parametrize(
    "gpu, type, n, columns", pairs([None, "A100"], EVERY_TYPE, [130, 257], [False, True]), ids=str
)
def test_simulated(gpu, type, n, columns):
    dtype, precision = type
    a = matrix(n, 72, dtype=dtype, columns=columns)
    with fastgemm.simulate(gpu):
        result = check_gemm(a, a.mT, precision=precision, **RUN)
        assert is_symmetric(result)
        c = random_tensor(n, n, dtype=result.dtype)
        sums = fastgemm.gemm(a, a.mT, c.clone(), precision=precision, symmetric=True, **RUN)
    assert is_symmetric(sums)


@pytest.mark.parametrize(
    "type, n",
    [*((type, 1300) for type in FLOATS[:4]), (FLOATS[0], 1299), (FLOATS[3], 1153), (FLOATS[4], 1299)],
    ids=str,
)
def test_triangles_of_hopper(type, n):
    """Sizes at which one launch computes the triangle. The tile grid is folded, so some tiles are outside."""
    dtype, precision = type
    by_residues = precision is None and dtype in (torch.float32, torch.float64)
    k = 256 if by_residues and dtype == torch.float32 and n == 1300 else 128 if by_residues else 72
    kernel = "bf16x6" if n == 1153 else "crt" if by_residues else "wgmma_specialized"
    a = random_tensor(n, k, dtype=dtype)
    with fastgemm.simulate():
        result = check_gemm(a, a.mT, precision=precision, **RUN)
    assert is_symmetric(result)
    assert kernel in launched(n, k, dtype, precision=precision)


@pytest.mark.parametrize(
    "dtype, n, k",
    [(torch.complex64, 200, 48), (torch.complex128, 200, 48), (torch.complex128, 390, 128)],
    ids=str,
)
def test_simulated_hermitian(dtype, n, k):
    a = torch.randn(n, k, dtype=dtype)
    with fastgemm.simulate():
        result = fastgemm.gemm(a, a.mH, **RUN)
    assert is_symmetric(result, result.mH.resolve_conj())
    torch.testing.assert_close(result, a @ a.mH, rtol=1e-5, atol=1e-4)


def test_bits_of_the_general_product():
    """Both have the same bits if neither splits a sum."""
    a = matrix(1300, 64, dtype=torch.bfloat16)
    with fastgemm.simulate():
        half = fastgemm.matmul(a, a.mT, **RUN)
        whole = fastgemm.matmul(a, a.mT, kernel="wgmma_specialized")
    assert torch.equal(half.tril(), whole.tril())


def test_explain():
    report = fastgemm.explain("gemm", shape=(128, 128, 64), **RUN)
    assert report.kernel == "symmetric" and not report.problems
    with pytest.raises(ValueError, match="for square results, got M = 128 and N = 64"):
        fastgemm.explain("gemm", shape=(128, 64, 64), **RUN)
    assert [launch.kernel for launch in report.launches][-1] == "mirror"


@pytest.mark.parametrize("gpu", ["H200", "A100"])
def test_no_terms_simulated(gpu):
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bfloat16):
        a, c = torch.zeros(9, 4, dtype=dtype), random_tensor(9, 9, dtype=dtype)
        with fastgemm.simulate(gpu):
            assert not fastgemm.gemm(a[:, :0], a[:, :0].mT, **RUN).any()
            sums = fastgemm.gemm(a, a.mT, c, alpha=0.0, symmetric=True, **RUN)
        assert torch.equal(sums, c.tril() + c.tril(-1).mT)


def test_complex_numbers_that_begin_anywhere():
    """The numbers are aligned only for their parts, as in memory from outside torch."""
    a = torch.randn(70, 20, dtype=torch.complex128)
    memory = numpy.zeros(16 * 70 * 70 + 32, dtype=numpy.uint8)
    start = 8 + -memory.ctypes.data % 16
    out = torch.from_numpy(memory[start : start + 16 * 70 * 70].view(numpy.complex128).reshape(70, 70))
    assert out.data_ptr() % 16 == 8
    with fastgemm.simulate():
        fastgemm.gemm(a, a.mH, symmetric=True, out=out, **RUN)
    assert is_symmetric(out, out.mH.resolve_conj())
    torch.testing.assert_close(out, a @ a.mH)
