"""Tests torch.matmul's shape rules, and results that share memory with an operand."""

import fastgemm
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import assert_right, check_gemm, every_device, expected_gemm

SIZES = st.integers(0, 5)
A, B = torch.ones(3, 4), torch.ones(4, 5)


@st.composite
def batch_shapes(draw, rank_a, rank_b):
    """Two batch shapes that broadcast."""
    a, b = [], []
    for _ in range(max(rank_a, rank_b)):
        size = draw(st.integers(0, 3))
        which = draw(st.sampled_from(["both", "a", "b"]))
        a.append(1 if which == "b" else size)
        b.append(1 if which == "a" else size)
    return tuple(a[len(a) - rank_a :]), tuple(b[len(b) - rank_b :])


@st.composite
def matmul_shapes(draw):
    m, n, k = draw(SIZES), draw(SIZES), draw(SIZES)
    rank_a, rank_b = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    batch_a, batch_b = draw(batch_shapes(max(rank_a - 2, 0), max(rank_b - 2, 0)))
    return (k,) if rank_a == 1 else (*batch_a, m, k), (k,) if rank_b == 1 else (*batch_b, k, n)


@every_device
@given(shapes=matmul_shapes(), with_out=st.booleans())
def test_shapes_and_values_equal_torch_matmul(shapes, with_out):
    a, b = (
        torch.randint(-9, 10, shape).double() for shape in shapes
    )  # integers in float64 are exact in any order
    expected = torch.matmul(a, b)
    out = torch.full_like(expected, torch.nan) if with_out else None
    result = fastgemm.matmul(a, b, out=out)
    assert result.shape == expected.shape
    assert torch.equal(result, expected)
    assert out is None or result is out


@given(shapes=matmul_shapes(), wrong=st.integers(1, 3))
def test_shapes_that_torch_refuses_are_refused(shapes, wrong):
    a, b = torch.ones(shapes[0]), torch.ones(shapes[1])
    inner = a.shape[-1] + wrong
    b = torch.ones(inner) if b.dim() == 1 else torch.ones(*shapes[1][:-2], inner, 2)
    with pytest.raises(RuntimeError):
        torch.matmul(a, b)
    with pytest.raises(ValueError, match="inner sizes differ"):
        fastgemm.matmul(a, b)


@every_device
@given(
    batch=st.lists(st.integers(1, 3), max_size=3),
    c_rank=st.integers(0, 5),
    drop=st.lists(st.booleans(), min_size=5, max_size=5),
    trans=st.tuples(st.booleans(), st.booleans()),
)
def test_gemm_broadcasts_c(batch, c_rank, drop, trans):
    a, b = torch.randn(*batch, 3, 4), torch.randn(4, 5)
    shape = (*batch, 3, 5)[-c_rank:] if c_rank else ()
    c = torch.randn([1 if d else s for s, d in zip(shape, drop, strict=False)])
    a, b = a.mT.contiguous() if trans[0] else a, b.mT.contiguous() if trans[1] else b
    check_gemm(a, b, c, alpha=2, beta=-1, trans_a=trans[0], trans_b=trans[1])


@every_device
def test_large_batch_rank():
    a, b = torch.randn(*[1] * 20, 2, 3, 4), torch.randn(*[1] * 18, 5, 1, 1, 4, 6)
    assert torch.equal(fastgemm.matmul(a.round(), b.round()), torch.matmul(a.round(), b.round()))


# out= and memory that is shared


@every_device
@pytest.mark.parametrize("at", [1, 15])
def test_out_must_not_overlap_an_operand_by_a_row_or_an_element(at):
    memory, other = torch.arange(64.0), torch.ones(4, 4)
    shared, out = memory[:16].view(4, 4), memory[at : at + 16].view(4, 4)
    for name, call in {
        "a": lambda: fastgemm.matmul(shared, other, out=out),
        "b": lambda: fastgemm.matmul(other, shared, out=out),
        "c": lambda: fastgemm.gemm(other, other, shared, out=out),
        "b ": lambda: fastgemm.add(other, shared, out=out),
    }.items():
        with pytest.raises(ValueError, match=f"out overlaps {name.strip()} in memory"):
            call()
    check_gemm(shared, other, out=memory[16:32].view(4, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_row_times_a_column_is_torchs_dot_product(dtype):
    """The column as a matrix with rows of one number would have other bits, and take 10 to 50 times as long."""
    x, w = torch.randn(1, 5000, dtype=dtype), torch.randn(1, 5000, dtype=dtype)
    expected = x @ w.mT
    assert torch.equal(fastgemm.matmul(x, w.mT, kernel="torch"), expected)
    assert torch.equal(fastgemm.matmul(x[0], w[0], kernel="torch"), expected[0, 0])
    x, w = torch.randn(3, 1, 5000, dtype=dtype), torch.randn(3, 1, 5000, dtype=dtype)
    for a, b in ((x, w.mT), (x, w.view(3, 5000, 1)), (x.view(3, 5000, 1).mT, w.mT)):
        assert torch.equal(fastgemm.matmul(a, b, kernel="torch"), torch.bmm(x, w.mT))


@every_device
@pytest.mark.parametrize("kernel", ["torch", "cublaslt_1", None])
@pytest.mark.parametrize("shape", [(1, 48, 96), (40, 9, 1), (3, 1, 48, 96), (3, 6, 7, 8)])
def test_libraries_add_to_a_result_in_place(shape, kernel, device):
    """This includes a result of one row. A library must not read the row as a bias while it writes it."""
    if device == "cpu" and kernel == "cublaslt_1":
        pytest.skip("cuBLASLt is for GPUs")
    *batch, m, k, n = shape
    a, b, c = torch.randn(*batch, m, k), torch.randn(*batch, k, n), torch.randn(*batch, m, n)
    expected = expected_gemm(a, b, c)
    fastgemm.gemm(a, b, c, kernel=kernel, out=c)
    assert_right(c, expected)


@every_device
def test_disjoint_interleaved_blocks_are_no_overlap():
    base = torch.randn(16, 64)
    a, out = base[:, :16], base[:, 20:36]
    check_gemm(a, torch.randn(16, 16), out=out)
    a, out = base[:, 20:36], base[:, 4:20]
    check_gemm(torch.randn(16, 16), a, out=out)
    with pytest.raises(ValueError, match="out overlaps"):
        fastgemm.matmul(base[:, :16], torch.randn(16, 16), out=base[:, 15:31])
    with pytest.raises(ValueError, match="out overlaps"):  # the end of a row runs into the next row's start
        fastgemm.matmul(
            base[:8, 56:].t(), torch.randn(8, 16), out=base.flatten()[60:][: 8 * 64].view(8, 64)[:, :16]
        )


def test_unavailable_precision_names_what_can_run():
    for precision in ("tf32", "bf16x3", "fp16x3"):
        with pytest.raises(RuntimeError, match=r"torch.*cannot run here: .*levels that can"):
            fastgemm.matmul(A, B, precision=precision, kernel="torch")
