"""Tests that queries about a product (its key, its kernel) agree with its run, for all strides, sizes and
batches."""

import random

import fastgemm
import pytest
import torch
from fastgemm import tuning
from reference import every_device, kernels_that_ran, levels, name_of, random_tensor
from vendor_rows import BATCHES, INNER, SIZES, operand

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=name_of)
CASES = 150


@pytest.fixture(autouse=True)
def no_measurements():
    tuning.clear_cache()
    yield
    tuning.clear_cache()


def random_operands(dtype, batches=BATCHES):
    batch, m, n, k = random.choice(batches), random.choice(SIZES), random.choice(SIZES), random.choice(INNER)
    return operand(batch, (m, k), dtype), operand(batch, (k, n), dtype)


def described(*tensors):
    return [(tuple(t.shape), t.stride()) for t in tensors if t is not None]


@every_device
@DTYPES
def test_a_patch_counts_what_ran(device, dtype):
    for _ in range(CASES):
        batch = random.choice([(), (3,)])
        a, b = (x.expand(*batch, -1, -1) for x in random_operands(dtype, [batch]))
        c = random_tensor(b.shape[-1], dtype=dtype).expand(*a.shape[:-1], -1)
        op = random.choice([None, torch.baddbmm if batch else torch.addmm])
        level = random.choice([None, *levels("gemm", device)])
        with fastgemm.patch(level) as routed:
            ran = kernels_that_ran(lambda: op(c, a, b) if op else a @ b)  # noqa: B023
        assert set(routed.kernels) == set(ran), (level, op, described(a, b, c))


@every_device
@DTYPES
def test_what_was_measured_is_used(device, dtype):
    """autotune stores results under the key that the op looks up, even if a copy or a merged batch changes
    the key."""
    for _ in range(CASES):
        a, b = random_operands(dtype, [(), (), (2,), (3,)])
        tuning._remember(tuning.gemm_key(a, b), "naive", tuning.environment(device))
        assert set(kernels_that_ran(lambda: fastgemm.matmul(a, b))) == {"naive"}, described(a, b)  # noqa: B023


@every_device
def test_what_was_measured_of_transpositions_is_used(device):
    for _ in range(CASES):
        a, _ = random_operands(torch.float32, [(), (2,), (3,)])
        tuning._remember(tuning.transpose_key(a), "naive", tuning.environment(device))
        ran = kernels_that_ran(lambda: fastgemm.transpose(a), op="transpose")  # noqa: B023
        assert set(ran) == {"naive"}, described(a)


@pytest.mark.parametrize(
    "a",
    [
        torch.randn(4, 16, 12)[:, ::2, ::2],
        torch.randn(4, 16, 12)[:, :1],
        torch.randn(4, 9, 12)[:, :, :1],
        torch.randn(9, 4, 12).transpose(0, 1),
    ],
    ids=["scattered", "one row", "one column", "rows of several members"],
)
def test_a_batch_times_one_matrix_is_tuned(a):
    b = torch.randn(a.shape[-1], 7)
    tuned = fastgemm.autotune(a, b, budget=0.01, save=False)
    assert set(kernels_that_ran(lambda: fastgemm.matmul(a, b))) == {tuned.kernel}


def test_one_row_of_each_member_is_one_product():
    """The last token of every sequence times the weights is a product with one row for each sequence."""
    hidden, weights = torch.randn(5, 9, 16), torch.randn(16, 7)
    for a in (hidden[:, -1:], hidden[:, :1].expand(-1, 1, -1), torch.randn(1, 16, 5).permute(2, 0, 1)):
        assert tuning.gemm_key(a, weights)[-4:] == (1, 5, 7, 16)
        torch.testing.assert_close(fastgemm.matmul(a, weights), a @ weights, rtol=1e-4, atol=1e-4)
