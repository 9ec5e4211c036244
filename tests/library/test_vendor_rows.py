"""Tests rows of vendors' libraries with poisoned results, for all types, strides, batches and sizes of 1."""

import pytest
import torch
from reference import DTYPES, check_gemm, every_device, name_of, poisoned, random_tensor, row_id
from vendor_rows import check_free_choice, check_row, library_rows

CASES = 120
HALF = torch.float16, torch.bfloat16
ROWS = pytest.mark.parametrize(("device", "kernel", "dtype"), library_rows(), ids=row_id)


@ROWS
def test_random_products(kernel, dtype):
    taken = check_row(kernel, dtype, CASES)
    assert taken > 0 or kernel not in ("torch", "cublaslt_1")
    # A library refuses int8 products in layouts that it lacks, and cuBLASLt's later candidates may not exist.
    assert taken > (0.2 if dtype != torch.int8 and kernel == "torch" else -1) * CASES


@every_device
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_free_choice(dtype):
    check_free_choice(dtype, CASES)


@ROWS
@pytest.mark.parametrize("flags", [(False, False), (True, False), (False, True), (True, True)])
def test_sizes_of_one(kernel, dtype, flags):
    """The stride of a dimension of size 1 must have no effect, with and without a batch."""
    trans_a, trans_b = flags
    sizes = [(7, 16, 1), (1, 16, 7), (7, 1, 16), (1, 1, 7), (7, 1, 1), (1, 16, 1), (1, 1, 1), (24, 16, 8)]
    for m, n, k in sizes:
        for batch_a, batch_b in [((), ()), ((2,), ()), ((2,), (2,)), ((), (2,)), ((3, 2), ())]:
            a = random_tensor(*batch_a, *((k, m) if trans_a else (m, k)), dtype=dtype)
            b = random_tensor(*batch_b, *((n, k) if trans_b else (k, n)), dtype=dtype)
            for views in (a, b), (a.mT.contiguous().mT, b), (a, b.mT.contiguous().mT):
                try:
                    check_gemm(*views, trans_a=trans_a, trans_b=trans_b, kernel=kernel)
                except RuntimeError as refusal:
                    assert f"kernel '{kernel}' cannot run here: " in str(refusal)


@pytest.mark.parametrize(
    "device, kernel, dtype", [row for row in library_rows() if row[2] in HALF], ids=row_id
)
def test_a_sum_is_rounded_once(kernel, dtype):
    """c almost cancels the product. If the product is rounded before c is added, mostly this error remains."""
    for m, n, k in [(64, 64, 64), (128, 1024, 256), (33, 40, 64), (64, 33, 33), (32, 1, 64), (1, 64, 64)]:
        for batch in ((), (3,)):
            a, b = random_tensor(*batch, m, k, dtype=dtype), random_tensor(*batch, k, n, dtype=dtype)
            a[..., :] = a[..., :1, :]  # then one row of c cancels every row of the product
            product = (a.double() @ b.double()).to(dtype)
            first = product[(0,) * len(batch)]
            for c in (-product, -product[..., :1, :], -first[0], -first[:1, :1], -first[:, :1]):
                for beta in (None, 0.5):
                    try:
                        check_gemm(a, b, c, beta=beta, kernel=kernel)
                    except RuntimeError as refusal:
                        assert f"kernel '{kernel}' cannot run here: " in str(refusal)


def test_poison_shows():
    """The tests above depend on this: an unwritten result must be recognized as wrong."""
    a, b = random_tensor(3, 2, dtype=torch.int8), random_tensor(2, 4, dtype=torch.int8)
    untouched = poisoned(3, 4, dtype=torch.int32)
    assert not torch.equal(untouched, a.int() @ b.int())
