"""Tests the row ``invariant`` on the simulator: the kernels that it launches for few and many rows, and that bits
do not change."""

from collections.abc import Callable, Sequence

import fastgemm
import pytest
import torch
from fastgemm._explain.run import load_simulator
from fastgemm._introspect import take_last_gemm_kernel
from pairwise import pairs
from reference import assert_right, expected_gemm, needs_simulator, row_id
from torch import Tensor

pytestmark = needs_simulator

HALF = [(torch.bfloat16, None), (torch.float16, None)]
EVERY_TYPE = [*HALF, (torch.float32, None), (torch.float32, "tf32"), (torch.float64, None)]


def launched(m: int, n: int, k: int, dtype: torch.dtype, capability: int = 90, precision: str | None = None):
    """The kernels that a product launches on a GPU, and their blocks. None of them runs."""
    a, b = torch.zeros(m, k, dtype=dtype), torch.zeros(n, k, dtype=dtype)
    simulator = load_simulator()
    simulator.begin(True, True, multiprocessors=132, max_blocks=0, capability=capability, run=False)
    try:
        fastgemm.gemm(a, b, trans_b=True, precision=precision, invariant=True)
        assert take_last_gemm_kernel() == "invariant"
    finally:
        found = simulator.end()
    return [(launch["kernel"], launch["grid"][0]) for launch in found]


def test_few_rows_take_a_tile_a_multiprocessor():
    assert launched(8, 4096, 4096, torch.bfloat16) == [("decode", 128)]
    assert launched(64, 14336, 64, torch.bfloat16) == [("decode", 128)]
    assert launched(1, 8192, 64, torch.float16) == [("decode", 128)]
    assert launched(256, 4096, 64, torch.bfloat16) == [("decode", 128)]
    assert launched(2048, 4096, 64, torch.bfloat16)[-1][0] == "wgmma_specialized"
    assert launched(8, 4096, 64, torch.bfloat16, capability=80)[-1][0] == "mma_sync"
    assert launched(8, 4096, 4096, torch.float32) == [("cut", 8), ("decode_planes", 128)]
    assert launched(1, 14336, 128, torch.float32)[-1] == ("decode_planes", 132)
    assert launched(8, 4096, 4096, torch.float32, precision="tf32") == [("decode", 128)]


def test_float32_of_more_rows_or_very_long_sums_is_cut_in_memory():
    """bf16x6 sums a k above 16384 in several launches, and their sums are rounded in between."""
    assert launched(256, 4096, 256, torch.float32) == [("cut", 256), ("decode_planes", 132)]
    for m, k in ((257, 256), (8, 16416)):
        assert [name for name, _ in launched(m, 4096, k, torch.float32)][:2] == ["cut", "bf16x6"]


@pytest.mark.parametrize("dtype, precision", EVERY_TYPE, ids=row_id)
@pytest.mark.parametrize("capability", [80, 90])
def test_no_tile_is_shared(capability, dtype, precision):
    """A kernel that shares tiles needs cleared flags, by a launch before it or by more blocks in one."""
    for m in (1, 70, 200, 1000, 4096):
        names = [name for name, _ in launched(m, 1000, 1024, dtype, capability, precision)]
        assert "row_copies" not in names and "split_k" not in names


def same_bits(x: Tensor, y: Tensor) -> bool:
    return torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))


def check_rows(product: Callable[[Tensor], Tensor], a: Tensor, parts: Sequence[list[int]]) -> Tensor:
    """Checks that products of some rows equal the rows of ``product(a)``, and returns ``product(a)``. A GPU must
    be simulated."""
    whole = product(a)
    for rows in parts:
        assert same_bits(product(a[rows]), whole[rows]), rows
    return whole


PARTS = [3], [150, 7, 64], [*range(60, 140)]


@pytest.mark.parametrize(
    "gpu, type, size, trans_b",
    pairs([None, "A100"], EVERY_TYPE, [(40, 100), (130, 264)], [False, True]),
    ids=str,
)
def test_rows_have_the_same_bits(gpu, type, size, trans_b):
    (dtype, precision), (n, k) = type, size
    a = torch.randn(200, k, dtype=torch.float64).to(dtype)
    b = torch.randn(*((n, k) if trans_b else (k, n)), dtype=torch.float64).to(dtype)
    c = torch.randn(n, dtype=torch.float64).to(dtype)
    how = {"alpha": 0.5, "beta": 2.0, "precision": precision}
    with fastgemm.simulate(gpu):
        whole = check_rows(lambda x: fastgemm.gemm(x, b, c, trans_b=trans_b, invariant=True, **how), a, PARTS)
    assert_right(whole, expected_gemm(a, b.mT if trans_b else b, c.expand(200, n), **how))


def small_rows(a, b):
    """Rows and columns that are scaled before they are split, in one tile with others that are not scaled."""
    a[5] *= 1e-38
    a[7, 3], b[4] = 1e-42, b[4] * 1e-39


def wide_rows(a, b):
    """A row that no scale fits, so its sums are computed again."""
    a[5, 0], a[5, 3] = 1e30, 1e-42


def wild_rows(a, b):
    a[5, 3], a[150, 2], a[64], b[3] = float("inf"), float("nan"), 1e38, 3e38


@pytest.mark.parametrize(
    "change, trans_b, alpha", pairs([small_rows, wide_rows, wild_rows], [False, True], [1, 0.3, 1e20])
)
def test_planes_have_the_same_bits_wherever_they_are_cut(change, trans_b, alpha):
    """decode_planes computes few rows, and bf16x6 computes 300 rows."""
    a, b = torch.randn(300, 130), torch.randn(50, 130)
    change(a, b)
    b = b if trans_b else b.mT.contiguous()
    with fastgemm.simulate():
        check_rows(
            lambda x: fastgemm.gemm(x, b, trans_b=trans_b, alpha=alpha, invariant=True),
            a,
            ([5], [7, 150, 64], [*range(140)]),
        )


@pytest.mark.parametrize("n, trans_b", [(288, False), (336, True)])
def test_wide_tiles_of_planes(n, trans_b):
    """There are 6 tiles of 48 or 56 columns: two for each multiprocessor of the simulated GPU."""
    a, b = torch.randn(270, 200), torch.randn(n, 200)
    a[3], b[100] = a[3] * 1e-38, float("nan")
    b = b if trans_b else b.mT.contiguous()
    with fastgemm.simulate():
        product = lambda x: fastgemm.gemm(x, b, trans_b=trans_b, invariant=True)  # noqa: E731
        whole = check_rows(product, a, ([3], [7, 150, 3], [*range(64)]))
    assert_right(whole, expected_gemm(a, b.mT if trans_b else b))


@pytest.mark.parametrize(
    "k, m, trans_b",
    [
        *((40, 30, False), (1024, 64, True), (2080, 8, False), (2080, 64, True)),
        *((2144, 30, True), (2144, 8, False), (2176, 64, False), (2176, 30, True)),
    ],
)
def test_teams_add_chunks_in_turn(k, m, trans_b):
    """Two tiles for each multiprocessor. There are as many chunks of k as teams, more, or fewer; the last chunk
    has fewer stages. If a column needs a scale, all tiles of its block are computed again."""
    a, b = torch.randn(m, k), torch.randn(*((336, k) if trans_b else (k, 336)))
    weights = b if trans_b else b.mT
    product = lambda x: fastgemm.gemm(x, b, trans_b=trans_b, invariant=True)  # noqa: E731
    with fastgemm.simulate():
        plain = product(a)
        weights[200] *= 1e-39
        whole = check_rows(product, a, [[5]])
    others = [i for i in range(336) if i != 200]
    assert torch.equal(whole[:, others], plain[:, others])
    assert_right(whole, expected_gemm(a, weights.mT))


@pytest.mark.parametrize("shared", ["a", "b", "neither"])
def test_batches_of_planes(shared):
    """Rows at any address are copied. A multiprocessor has several tiles, and some of them are scaled."""
    a, b = torch.randn(5, 70, 131), torch.randn(5, 131, 100)
    a[2, 5] *= 1e-39
    a, b = (a[:1].expand(5, -1, -1) if shared == "a" else a), (b[0] if shared == "b" else b)
    c = torch.randn(5, 70, 100)
    how = {"alpha": 0.5, "beta": 2.0}
    with fastgemm.simulate():
        whole = fastgemm.gemm(a, b, c, invariant=True, **how)
        for i in (0, 2, 4):
            one = fastgemm.gemm(a[i], b if b.dim() == 2 else b[i], c[i], invariant=True, **how)
            assert same_bits(one, whole[i])
    assert_right(whole, expected_gemm(a, b, c, **how))


@pytest.mark.parametrize("n", [40, 130, 500])
def test_tf32_of_few_rows(n):
    """decode computes few rows, and wgmma_specialized computes many."""
    a, b = torch.randn(400, 136), torch.randn(n, 136)
    product = lambda x: fastgemm.gemm(x, b, trans_b=True, precision="tf32", invariant=True)  # noqa: E731
    with fastgemm.simulate():
        whole = check_rows(product, a, ([5], [7, 150, 64], [*range(60)]))
    assert_right(whole, expected_gemm(a, b.mT, precision="tf32"))
    assert launched(8, n, 136, torch.float32, precision="tf32")[0][0] == "decode"


@pytest.mark.parametrize("gpu", [None, "A100"])
def test_wild_rows_do_not_reach_the_others(gpu):
    a, b, c = torch.randn(40, 120), torch.randn(120, 50), torch.randn(40, 50)
    other = a.clone()
    other[5, 3], other[17] = float("inf"), 1e38
    tame = [i for i in range(40) if i not in (5, 17)]
    with fastgemm.simulate(gpu):
        for addend in (None, c):
            clean, wild = (fastgemm.gemm(x, b, addend, invariant=True) for x in (a, other))
            assert torch.equal(wild[tame], clean[tame])
            assert torch.equal(wild[5].isfinite(), (other[5] @ b).isfinite())
