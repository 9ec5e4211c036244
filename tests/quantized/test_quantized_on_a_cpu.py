"""Tests products with packed weights on a CPU, by every row and level. Blocks of weights, bounds of memory and all
pairs of codes and scales are tested in tests/cpp/packed_weights_test.cpp."""

from collections.abc import Iterator

import fastgemm
import pytest
import torch
from fastgemm import _introspect
from fastgemm.bench import using_threads
from fit_cpu_costs import PROCESSORS
from torch import Tensor
from weights import KINDS, kind_id, random_weight, values

ROWS = [row for row in fastgemm.kernels("gemm", "cpu") if row.available and "int4" in row.codes]
TYPES = (torch.bfloat16, torch.float16, torch.float32)
# One row of the weight, an odd K, groups that end within a line of codes, and several panels of scales.
SHAPES = [(1, 77), (70, 200), (37, 387), (67, 2200)]


def rows_of_x(m: int, k: int, dtype: torch.dtype) -> Tensor:
    """Rows with gaps between them. The first one begins at an odd address."""
    return torch.randn(m + 1, 2 * k + 3).to(dtype)[1:, 3 : k + 3]


def check(result: Tensor, x: Tensor, weight: Tensor) -> None:
    exact = x.double() @ weight.mT
    size = x.double().abs() @ weight.abs().mT
    unit = torch.finfo(x.dtype).eps
    # The weight may be rounded once, the result is rounded once, and sums are float32.
    bound = size * (unit + x.shape[1] * 2**-24) + 1e-6
    assert result.dtype == x.dtype
    error = (result.double() - exact).abs()
    assert (error <= bound).all(), (error / bound).max()


@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_rows(row, kind):
    """Each kind with two of the shapes, which differ from row to row."""
    place = ROWS.index(row) + KINDS.index(kind)
    for i, (n, k) in enumerate(SHAPES):
        if (i + place) % 2:
            continue
        q = random_weight(n, k, kind)
        weight = values(q)
        for j, m in enumerate(((1, 20), (3, 130), (2, 9), (7,))[i]):
            if row.level < 4 and m * n * k > 10**6:
                continue
            dtype = TYPES[(i + j) % 3] if row.takes(torch.float32, "int4") else torch.bfloat16
            x = rows_of_x(m, k, dtype) / 16
            check(fastgemm.linear(x, q, kernel=row.name), x, weight)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_x_in_columns(row):
    q = random_weight(40, 130, KINDS[1])
    dtype = torch.float32 if row.takes(torch.float32, "int4") else torch.bfloat16
    for x in (torch.randn(130, 5), torch.randn(130, 40), torch.randn(3, 130, 7)):
        x = x.to(dtype).mT
        result = fastgemm.linear(x, q, kernel=row.name)
        check(result.flatten(0, -2), x.flatten(0, -2), values(q))


@pytest.mark.parametrize("level", range(1, 8))
def test_levels(level):
    for dtype in TYPES:
        q = random_weight(40, 130, KINDS[1])
        x = rows_of_x(5, 130, dtype)
        check(fastgemm.linear(x, q, level=level), x, values(q))


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[4], KINDS[-1]], ids=kind_id)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_nan_and_infinity(row, kind):
    n, k = 40, 300
    x = torch.randn(6, k).bfloat16()
    x[1, 7], x[3, 299], x[4, 0] = torch.nan, torch.inf, -torch.inf
    q = random_weight(n, k, kind)
    exact = x.double() @ values(q).mT
    assert torch.equal(fastgemm.linear(x, q, kernel=row.name).isfinite(), exact.isfinite())
    special = [x for x in (torch.nan, torch.inf) if kind[1] != "e4m3" or x != torch.inf]
    for number in special:
        q = random_weight(n, k, kind)
        q.scales[5, -1] = number
        result = fastgemm.linear(x[:1], q, kernel=row.name)
        assert result.isfinite().sum() == n - 1 and not result[0, 5].isfinite()


@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
def test_streamed_rows_do_not_depend_on_each_other(kind):
    n, k = 67, 2200
    q = random_weight(n, k, kind)
    for dtype in TYPES:
        x = rows_of_x(130, k, dtype)
        whole = fastgemm.linear(x, q, kernel="streamed_weights")
        for m in (1, 2, 3, 5, 9, 64, 65):
            assert torch.equal(fastgemm.linear(x[:m], q, kernel="streamed_weights"), whole[:m])
        assert torch.equal(
            fastgemm.linear(x[:3], q, invariant=True), fastgemm.linear(x, q, invariant=True)[:3]
        )


def test_streamed_weights_finish_their_results():
    q = random_weight(67, 300, KINDS[0])
    x, bias, residual = torch.randn(3, 300), torch.randn(67), torch.randn(67, 3).mT
    result = fastgemm.linear(x, q, bias, activation="gelu", residual=residual, kernel="streamed_weights")
    exact = torch.nn.functional.gelu(x.double() @ values(q).mT + bias.double()) + residual.double()
    torch.testing.assert_close(result.double(), exact, rtol=1e-4, atol=1e-3)


@pytest.fixture(params=[PROCESSORS["without_tiles"], PROCESSORS["zen4"]], ids=["intel", "amd"])
def described(request) -> Iterator[None]:
    """Describes this processor as one whose kernels are predicted differently, with one thread."""
    _introspect.set_cpu(request.param)
    with using_threads(1):
        yield
    _introspect.set_cpu(None)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[4]], ids=kind_id)
@pytest.mark.parametrize("dtype", TYPES)
def test_the_weight_is_streamed_for_few_rows_and_a_long_k(dtype, kind, described):
    """Where k is short, a sum of lanes for each number of the result takes longer than the products."""

    def streams(m: int, n: int, k: int) -> bool:
        fastgemm.linear(torch.randn(m, k).to(dtype), random_weight(n, k, kind))
        return _introspect.take_last_gemm_kernel() == "streamed_weights"

    assert all(streams(m, 1024, 2048) for m in (1, 2, 4))
    assert not any(streams(m, n, k) for m, n, k in ((16, 2048, 16), (100, 2048, 16), (1000, 512, 8)))


# The last one is divided among threads.
@pytest.mark.parametrize(("m", "n", "k"), [(37, 2, 257), (37, 10, 257), (37, 70, 257), (151, 1002, 8)])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh", "swiglu"])
def test_rows_with_an_activation_and_a_gradient_do_not_depend_on_each_other(activation, dtype, m, n, k):
    x, w = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
    grad = torch.randn(m, n // 2 if activation == "swiglu" else n).to(dtype)

    def results(weight: Tensor, rows: slice) -> Tensor:
        part = x[rows].clone().requires_grad_()
        y = fastgemm.linear(part, weight, activation=activation, invariant=True)
        y.backward(grad[rows])
        return torch.cat((y.detach(), part.grad), 1)

    for weight in (w, fastgemm.quantize_weight(w, "int4")):
        whole = results(weight, slice(None))
        for i in range(m):
            assert torch.equal(results(weight, slice(i, i + 1))[0], whole[i])


def test_rows_of_a_layer_with_an_activation():
    layer = fastgemm.nn.Linear(96, 5, activation="silu", kernel="invariant").requires_grad_(False)
    fastgemm.nn.quantize(layer)
    x = torch.randn(37, 96)
    for call in (layer, torch.fx.symbolic_trace(layer)):
        assert torch.equal(torch.cat([call(row) for row in x.split(1)]), call(x))
