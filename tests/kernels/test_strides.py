"""Tests arbitrary strides by as_strided, which slicing cannot make, also with overlaps inside an operand."""

import fastgemm
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import DTYPES, check_gemm, every_device, levels, poisoned, random_tensor, result_dtype

SIZES = st.integers(0, 40)
STRIDES = st.sampled_from([0, 1, 1, 2, 3, 7, 40, 41, 64])


@st.composite
def operands(draw, *sizes, dtype):
    """A tensor of these sizes with arbitrary strides over fresh memory. Elements may share memory."""
    strides = [draw(STRIDES) for _ in sizes]
    offset = draw(st.integers(0, 9))
    room = offset + 1 + sum(max(size - 1, 0) * stride for size, stride in zip(sizes, strides, strict=True))
    return random_tensor(room, dtype=dtype).as_strided(sizes, strides, offset)


@st.composite
def outputs(draw, *sizes, dtype):
    """A poisoned tensor of these sizes without shared elements, in any order of dimensions, with gaps."""
    order = draw(st.permutations(range(len(sizes))))
    strides, step = [0] * len(sizes), draw(st.integers(1, 2))
    for d in order:
        strides[d] = step
        step *= max(sizes[d], 1) + draw(st.integers(0, 3))
    offset = draw(st.integers(0, 9))
    return poisoned(offset + step * 2 + 1, dtype=dtype).as_strided(sizes, strides, offset)


def seeded(seed: int) -> None:
    torch.manual_seed(seed)  # so that hypothesis can repeat failures


@every_device
@settings(max_examples=60)
@given(data=st.data(), dtype=st.sampled_from(DTYPES), m=SIZES, n=SIZES, k=SIZES, seed=st.integers(0, 2**32))
def test_gemm(device, data, dtype, m, n, k, seed):
    seeded(seed)
    a, b = data.draw(operands(m, k, dtype=dtype)), data.draw(operands(k, n, dtype=dtype))
    kind = result_dtype(dtype)
    out = data.draw(outputs(m, n, dtype=kind))
    c = data.draw(st.none() | operands(m, n, dtype=kind))
    alpha = data.draw(st.sampled_from([1, 1, -2]))
    level = data.draw(st.sampled_from([None, *levels("gemm", device)]))
    check_gemm(a, b, c, alpha=alpha, out=out, level=level)


@every_device
@settings(max_examples=60)
@given(
    data=st.data(),
    dtype=st.sampled_from(DTYPES),
    batch=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    sizes=st.tuples(*[st.integers(1, 9)] * 3),
    seed=st.integers(0, 2**32),
)
def test_batched_gemm(device, data, dtype, batch, sizes, seed):
    seeded(seed)
    m, n, k = sizes
    a = data.draw(operands(*batch, m, k, dtype=dtype))
    b = data.draw(operands(*batch[data.draw(st.integers(0, len(batch))) :], k, n, dtype=dtype))
    out = data.draw(outputs(*batch, m, n, dtype=result_dtype(dtype)))
    check_gemm(a, b, out=out, level=data.draw(st.sampled_from([None, *levels("gemm", device)])))


def bytes_allocated(call) -> int:
    """The bytes that torch's allocators allocate while ``call`` runs, including freed ones."""
    with torch.profiler.profile(profile_memory=True) as profile:
        call()
    events = profile.profiler.kineto_results.events()
    return sum(max(event.nbytes(), 0) for event in events if event.name() == "[memory]")


@every_device
@pytest.mark.parametrize("batch", [(64,), (4, 16)], ids=str)
@pytest.mark.parametrize("repeats", [True, False])
def test_what_repeats_is_copied_once(batch, repeats):
    """Operands without a unit stride are copied. If an expanded batch must be copied, only the matrices
    before the expansion are copied."""
    members = 1 if repeats else batch[0]
    rows, cols = 150, 130
    a = torch.randn(members, *[1] * (len(batch) - 1), 2 * rows, 2 * cols)[..., ::2, ::2].expand(
        *batch, -1, -1
    )
    b = torch.randn(2 * cols, 40)[::2, ::2]
    copies = 4 * (members * rows * cols + b.numel())
    for call in (
        lambda: fastgemm.matmul(a, b, level=1),
        lambda: fastgemm.matmul(b.mT, a.mT, level=1),
        lambda: fastgemm.transpose(a, level=1),
    ):
        result = call()
        assert bytes_allocated(call) <= result.nbytes + copies + 4096
    torch.testing.assert_close(fastgemm.matmul(a, b), a @ b, rtol=1e-4, atol=1e-3)
    assert torch.equal(fastgemm.transpose(a), a.mT)


@every_device
def test_a_column_major_out_of_a_transpose_is_written_in_place():
    """It went through a new tensor and a copy, which took 15 times as long as torch's copy."""
    for source in (torch.randn(300, 200), torch.randn(200, 300).mT, torch.randn(4, 300, 200)):
        out = torch.empty(source.shape).mT
        assert bytes_allocated(lambda a=source, into=out: fastgemm.transpose(a, out=into)) < out.nbytes // 2
        assert torch.equal(out, source.mT)


@pytest.mark.parametrize("shape", [(150, 130), (3, 150, 130)], ids=str)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_torch_writes_a_column_major_complex_out_in_place(shape, dtype):
    *batch, m, n = shape
    a, b = torch.randn(*batch, m, 7, dtype=dtype), torch.randn(*batch, 7, n, dtype=dtype)
    for x, y in ((a, b), (a.mT.contiguous().mT, b), (a, b.mT.contiguous().mT)):
        out, expected = torch.empty(*batch, n, m, dtype=dtype).mT, x @ y
        used = bytes_allocated(lambda x=x, y=y, into=out: fastgemm.matmul(x, y, out=into, kernel="torch"))
        assert used < out.nbytes // 2
        torch.testing.assert_close(out, expected)
        fastgemm.gemm(x, y, out, alpha=2.0, beta=-1.0, out=out, kernel="torch")
        torch.testing.assert_close(out, expected)
    gram = torch.empty(*batch, m, m, dtype=dtype).mT
    fastgemm.matmul(a, a.mH, out=gram)
    torch.testing.assert_close(gram, a @ a.mH)


@every_device
@settings(max_examples=60)
@given(
    data=st.data(),
    dtype=st.sampled_from(DTYPES),  # 1, 2, 4 and 8 bytes
    shape=st.lists(st.integers(0, 5), max_size=2),
    rows=st.integers(0, 70),
    cols=st.integers(0, 70),
    seed=st.integers(0, 2**32),
)
def test_transpose(device, data, dtype, shape, rows, cols, seed):
    seeded(seed)
    a = data.draw(operands(*shape, rows, cols, dtype=dtype))
    out = data.draw(outputs(*shape, cols, rows, dtype=dtype))
    level = data.draw(st.sampled_from([None, *levels("transpose", device)]))
    fastgemm.transpose(a, level=level, out=out)
    assert torch.equal(out, a.mT), (a.stride(), out.stride())


@every_device
@settings(max_examples=60)
@given(
    data=st.data(),
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(0, 9), max_size=4),
    keep=st.tuples(*[st.lists(st.booleans(), min_size=4, max_size=4)] * 2),
    seed=st.integers(0, 2**32),
)
def test_add(data, dtype, shape, keep, seed):
    seeded(seed)
    a, b = (
        data.draw(
            operands(*[s if k or s == 0 else 1 for s, k in zip(shape, kept, strict=False)], dtype=dtype)
        )
        for kept in keep
    )
    expected = a + b
    out = data.draw(outputs(*expected.shape, dtype=dtype))
    fastgemm.add(a, b, out=out, level=data.draw(st.sampled_from([None, 1, 2, 4, 5])))
    assert torch.equal(out, expected), (a.stride(), b.stride(), out.stride())
