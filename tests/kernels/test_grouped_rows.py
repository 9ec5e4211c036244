"""Tests every CUDA row that takes groups of uneven size, on a GPU or on the simulator."""

import contextlib
import itertools
import math
import random

import fastgemm
import pytest
import torch
from reference import (
    DTYPES,
    assert_right,
    by_name,
    expected_gemm,
    name_of,
    needs_simulator,
    random_tensor,
)

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
pytestmark = [] if ON_GPU else needs_simulator

ROWS = [
    (row.name, dtype)
    for row in fastgemm.kernels("gemm", "cuda")
    if "m" in row.groups and (row.available or not ON_GPU)
    for dtype in DTYPES
    if row.takes(dtype, groups="m")
]
# Many groups are empty, some have one row more than a tile, and the last one ends before the last row.
SIZES = (3, 0, 0, 65, 130, 1, 0, 20)
REST = 9


def alternate_types(first):
    """Every second type of each kernel. Groups are found without regard to the type."""
    of_kernel = [list(rows) for _, rows in itertools.groupby(ROWS, lambda row: row[0])]
    found = [row for rows in of_kernel for row in rows[first % len(rows) :: 2]]
    return pytest.mark.parametrize(
        ("kernel", "dtype"), found, ids=lambda x: x if isinstance(x, str) else name_of(x)
    )


def grouped(a, b, offs=None, bias=None, **options):
    """fastgemm.grouped_mm by kernels of a GPU."""
    given = [x if x is None else x.to(DEVICE) for x in (a, b, offs, bias)]
    with contextlib.nullcontext() if ON_GPU else fastgemm.simulate():
        return fastgemm.grouped_mm(*given[:3], bias=given[3], **options).cpu()


def ends(sizes):
    return torch.tensor(list(itertools.accumulate(sizes)), dtype=torch.int32)


def choice(kernel, dtype):
    chosen = by_name(kernel, dtype)
    return chosen | {"out_dtype": torch.int32} if dtype in (torch.int8, torch.uint8) else chosen


def parts(sizes):
    offs = [0, *itertools.accumulate(sizes)]
    return [slice(*pair) for pair in itertools.pairwise(offs)]


def check_rows(a, b, sizes, bias=None, **options):
    result = grouped(a, b, ends(sizes), bias, **options)
    options.pop("kernel", None), options.pop("invariant", None)
    for i, rows in enumerate(parts(sizes)):
        one = bias if bias is None or bias.dim() == 1 else bias[i]
        assert_right(result[rows], expected_gemm(a[rows], b[i], one, **options), f"group {i}")
    assert not result[sum(sizes) :].any()
    return result


def check_k(a, b, sizes, **options):
    result = grouped(a, b, ends(sizes), **options)
    options.pop("kernel")
    for i, part in enumerate(parts(sizes)):
        assert_right(result[i], expected_gemm(a[:, part], b[part], **options), f"group {i}")


@pytest.fixture
def new_memory_is_nan():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@alternate_types(0)
def test_groups_of_rows(kernel, dtype):
    a = random_tensor(sum(SIZES) + REST, 72, dtype=dtype)
    if dtype.is_floating_point:
        a[-REST:] = math.nan  # rows of no group
    b = random_tensor(len(SIZES), 72, 40, dtype=dtype)
    check_rows(a, b, SIZES, **choice(kernel, dtype))
    check_rows(a.T.contiguous().T, b.mT.contiguous().mT, SIZES, **choice(kernel, dtype))


@alternate_types(1)
def test_groups_of_k(kernel, dtype):
    if kernel == "grouped_bf16x6" or (kernel == "grouped_mma" and dtype not in (BF16, F16)):
        pytest.skip("it takes groups of rows alone in this type")
    k = sum(SIZES) + REST
    a, b = random_tensor(k, 48, dtype=dtype).T, random_tensor(k, 40, dtype=dtype)
    check_k(a, b, SIZES, **choice(kernel, dtype))
    if kernel != "grouped_mma":
        check_k(a.contiguous(), b.T.contiguous().T, SIZES, **choice(kernel, dtype))


@pytest.mark.parametrize("kernel", ["small", "grouped_mma", "grouped_wgmma"])
def test_edges(kernel):
    """Odd sizes, any alignment, a bias, a wide result, one group and many."""
    random.seed(kernel)
    torch.manual_seed(1)
    for _ in range(4 if not ON_GPU else 40):
        groups, n, k = (
            random.choice((1, 2, 40)),
            random.choice((1, 7, 64, 129)),
            random.choice((1, 9, 64, 200)),
        )
        sizes = [random.choice((0, 0, 1, 2, 5, 30)) for _ in range(groups)]
        whole = random_tensor(sum(sizes) + 2, k + 3, dtype=BF16)
        a, b = whole[1:, 2 : 2 + k], random_tensor(groups, k, n + 1, dtype=BF16)[..., 1:]
        out_dtype = random.choice((BF16, F32))
        bias = random.choice((None, random_tensor(n, dtype=BF16), random_tensor(groups, n, dtype=BF16)))
        if bias is not None:
            bias = bias.to(out_dtype)
        check_rows(a, b, sizes, bias, kernel=kernel, out_dtype=out_dtype)


@pytest.mark.parametrize("kernel", ["small", "grouped_mma", "grouped_wgmma"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_other_groups_do_not_leak(kernel, value):
    """NaN and infinity in a group reach no other group's result."""
    sizes = (5, 70, 6)
    a, b = random_tensor(sum(sizes), 64, dtype=BF16), random_tensor(3, 64, 48, dtype=BF16)
    middle = parts(sizes)[1]
    plain = grouped(a, b, ends(sizes), kernel=kernel)
    a[middle] = value
    spoilt = grouped(a, b, ends(sizes), kernel=kernel)
    spoilt[middle] = plain[middle]
    assert torch.equal(spoilt, plain)
    x, y = random_tensor(sum(sizes), 48, dtype=BF16), random_tensor(sum(sizes), 40, dtype=BF16)
    plain = grouped(x.T, y, ends(sizes), kernel=kernel)
    x[middle], y[middle] = value, value
    spoilt = grouped(x.T, y, ends(sizes), kernel=kernel)
    assert torch.equal(spoilt[[0, 2]], plain[[0, 2]])


@pytest.mark.parametrize("dtype", [BF16, F32], ids=name_of)
def test_invariant_rows(dtype):
    """The bits of a row do not depend on the rows of its group, nor on other groups."""
    sizes = (70, 3, 0, 150)
    a, b = random_tensor(sum(sizes), 328, dtype=dtype), random_tensor(4, 328, 72, dtype=dtype)
    whole = grouped(a, b, ends(sizes), invariant=True)
    for first, count, i in ((0, 1, 0), (60, 10, 0), (70, 2, 1), (73, 150, 3)):
        alone = grouped(a[first : first + count], b[i : i + 1], ends([count]), invariant=True)
        assert torch.equal(alone, whole[first : first + count])


def test_groups_of_columns():
    sizes = (5, 0, 30)
    a, b = random_tensor(3, 20, 64, dtype=BF16), random_tensor(64, sum(sizes) + 3, dtype=BF16)
    result = grouped(a, b, ends(sizes))
    for i, columns in enumerate(parts(sizes)):
        assert_right(result[:, columns], expected_gemm(a[i], b[:, columns]), f"group {i}")
    assert not result[:, sum(sizes) :].any()


@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_activations_round_once(activation):
    sizes = (3, 40)
    a, b = random_tensor(43, 64, dtype=BF16), random_tensor(2, 64, 48, dtype=BF16)
    result = grouped(a, b, ends(sizes), activation=activation)
    exact = grouped(a, b, ends(sizes), out_dtype=F32)
    expected = getattr(torch.nn.functional, activation)(exact)
    torch.testing.assert_close(result, expected.bfloat16(), rtol=8e-3, atol=1e-6)


@pytest.mark.parametrize("along_k", [True, False])
@pytest.mark.parametrize("dtype", [BF16, F16], ids=name_of)
def test_gates(dtype, along_k):
    """silu(gate) * up of unrounded sums, with a bias for both, in narrow and wide tiles."""
    for sizes, n in (((3, 0, 20), 40), ((200, 70), 136), ((5, 9), 7)):
        rows = sum(sizes)
        a, b = (
            random_tensor(rows + 3, 264, dtype=dtype),
            random_tensor(len(sizes), 2 * n, 264, dtype=dtype).mT,
        )
        if not along_k:
            b = b.contiguous()
        bias = random_tensor(len(sizes), 2 * n, dtype=dtype)
        given = [x.to(DEVICE) for x in (a, b * 0.1, ends(sizes), bias)]
        with contextlib.nullcontext() if ON_GPU else fastgemm.simulate():
            result = torch.ops.fastgemm.grouped_mm(*given[:3], bias=given[3], activation="swiglu").cpu()
        assert result.shape == (rows + 3, n)
        for i, part in enumerate(parts(sizes)):
            sums = a[part].double() @ given[1][i].cpu().double() + bias[i].double()
            gate, up = sums.chunk(2, -1)
            torch.testing.assert_close(
                result[part].double(), torch.nn.functional.silu(gate) * up, rtol=8e-3, atol=1e-3
            )
        assert not result[rows:].any()


@pytest.mark.parametrize("activation", [None, "swiglu", "relu"])
@pytest.mark.parametrize("sizes", [(3, 0, 20), (200, 0, 70, 300)], ids=["narrow", "wide"])
def test_gathered_rows(sizes, activation):
    """Rows by index, some often and some never, of K that ends inside a stage; those of no row change no other."""
    m, n, k = 50, 48, 200
    a, b = random_tensor(m, k + 8, dtype=BF16)[:, :k], random_tensor(len(sizes), k, n, dtype=BF16)
    rows = torch.randint(m - 1, (sum(sizes) + 5,), dtype=torch.int32)
    a[-1] = math.nan
    given = [x.to(DEVICE) for x in (a, b, ends(sizes), rows)]
    for bias in (None, torch.randn(n, dtype=F32 if activation == "relu" else BF16).to(BF16)):
        of_n = None if bias is None else bias.to(DEVICE)
        with contextlib.nullcontext() if ON_GPU else fastgemm.simulate():
            got = torch.ops.fastgemm._gathered_mm(*given[:3], of_n, given[3], activation=activation).cpu()
        plain = torch.ops.fastgemm.grouped_mm
        with contextlib.nullcontext() if ON_GPU else fastgemm.simulate():
            wanted = plain(
                given[0][given[3].long()],
                *given[1:3],
                bias=of_n,
                activation=activation,
                impl=(None if activation == "swiglu" else "grouped_wgmma"),
            ).cpu()
        assert torch.equal(got, wanted)
    outside = rows.clone()
    outside[::7], outside[1::7] = -5, m
    with contextlib.nullcontext() if ON_GPU else fastgemm.simulate():
        other = torch.ops.fastgemm._gathered_mm(
            *given[:3], of_n, outside.to(DEVICE), activation=activation
        ).cpu()
    inside = (outside == rows).nonzero().flatten()
    assert torch.equal(other[inside], got[inside])


def test_rows_that_are_not_gathered():
    """Odd rows are copied first."""
    a, b = random_tensor(9, 33, dtype=BF16), random_tensor(2, 33, 40, dtype=BF16)
    rows, sizes = torch.randint(9, (12,)), (5, 7)
    given = [x.to(DEVICE) for x in (a, b, ends(sizes), rows)]
    with contextlib.nullcontext() if ON_GPU else fastgemm.simulate():
        with pytest.raises(RuntimeError, match="gathers rows of a in units of 16 bytes"):
            torch.ops.fastgemm._gathered_mm(*given[:3], None, given[3].int(), impl="grouped_wgmma")
        got = fastgemm.grouped_mm(*given[:3], rows=given[3]).cpu()
    for i, part in enumerate(parts(sizes)):
        assert_right(got[part], expected_gemm(a[rows][part], b[i]), f"group {i}")


@pytest.mark.parametrize("kernel", ["small", "grouped_mma", "grouped_wgmma"])
def test_shared_experts_and_wide_rests(kernel, new_memory_is_nan):
    """One matrix for all groups. The rows beyond the last end have more columns than a block has threads."""
    a, w = random_tensor(12, 64, dtype=BF16), random_tensor(64, 400, dtype=BF16)
    check_rows(a, w.expand(3, 64, 400), (2, 0, 5), kernel=kernel)
    check_rows(a, w.T.contiguous().T.expand(3, 64, 400), (2, 0, 5), kernel=kernel)


@pytest.mark.parametrize("shape", [(37, 17), (1, 33), (33, 1), (9, 64)], ids=str)
def test_groups_of_k_with_short_rows(shape):
    """Rows that are not aligned, and single rows and columns."""
    m, n = shape
    sizes = (3, 7, 0, 20)
    for kernel in ("small", "grouped_mma", "grouped_wgmma", None):
        for turned in (False, True):
            a, b = (
                random_tensor(sum(sizes) + 2, m, dtype=BF16).T,
                random_tensor(sum(sizes) + 2, n, dtype=BF16),
            )
            if turned:
                a, b = a.contiguous(), b.T.contiguous().T
            check_k(a, b, sizes, kernel=kernel)
    check_k(a[:, :1], b[:1], (0, 1, 0), kernel="grouped_mma")


def test_types_that_are_widened():
    """Mixed bytes, and int16 with sums of 64 bits."""
    sizes = (5, 0, 9)
    bytes_ = torch.uint8, torch.int8
    for types in (bytes_, bytes_[::-1]):
        a, b = random_tensor(16, 40, dtype=types[0]), random_tensor(3, 40, 24, dtype=types[1])
        check_rows(a, b, sizes, out_dtype=torch.int32)
    a, b = random_tensor(16, 40, dtype=torch.int16), random_tensor(3, 40, 24, dtype=torch.int16)
    check_rows(a, b, sizes, out_dtype=torch.int64)
    true = torch.rand(16, 40) > 0.5, torch.rand(3, 40, 24) > 0.5
    result = grouped(*true, ends(sizes))
    for i, part in enumerate(parts(sizes)):
        assert torch.equal(result[part], true[0][part].int() @ true[1][i].int())


def test_no_groups_and_many():
    a, b = random_tensor(4, 8, dtype=F32), random_tensor(8, 6, dtype=F32)
    for kernel in ("naive", "small", None):
        assert grouped(a, torch.empty(0, 8, 6), ends(()), kernel=kernel).eq(0).all()
        assert grouped(a, b, ends(()), kernel=kernel).shape == (0, 4, 6)
    many = 65_600
    result = grouped(a[:1], b[:, :1], torch.full((many,), 8, dtype=torch.int32), kernel="naive")
    assert result.shape == (many, 1, 1) and not result[1:].any()
    torch.testing.assert_close(result[0], a[:1] @ b[:, :1])


def test_wrong_ends_stay_inside():
    """Ends that descend or lie beyond the rows have no access out of bounds."""
    a, b = random_tensor(20, 64, dtype=BF16), random_tensor(4, 64, 48, dtype=BF16)
    for wrong in ((5, 3, 40, 60), (-4, 10, 2, 20), (2**31 - 1, 0, 0, 0)):
        for kernel in ("small", "grouped_mma", "grouped_wgmma"):
            grouped(a, b, torch.tensor(wrong, dtype=torch.int32), kernel=kernel)
