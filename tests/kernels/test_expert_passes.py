"""Tests the passes around products of experts (csrc/core/experts.h) on a CPU, the simulator and a GPU."""

import contextlib

import pytest
import torch
from reference import needs_simulator, simulated_launches

ON_GPU = torch.cuda.is_available()
OF_GPU = "cuda" if ON_GPU else pytest.param("simulator", marks=needs_simulator)
everywhere = pytest.mark.parametrize("place", ["cpu", OF_GPU])
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
UNIT = {torch.float64: 2**-52, torch.float32: 2**-23, torch.float16: 2**-11, torch.bfloat16: 2**-8}
ops = torch.ops.fastgemm


def run(op, place, *given):
    given = [x.to(place) if place == "cuda" and isinstance(x, torch.Tensor) else x for x in given]
    with simulated_launches(count=False) if place == "simulator" else contextlib.nullcontext():
        result = op(*given)
    return tuple(x.cpu() for x in result) if isinstance(result, tuple) else result.cpu()


@everywhere
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize(
    ("tokens", "chosen", "experts"),
    [(1, 1, 1), (70, 3, 5), (9, 8, 300), (400, 2, 1030), (5, 2, 0), (0, 2, 4)],
)
def test_routes(place, dtype, tokens, chosen, experts):
    """A stable sort by expert; ids of no expert come last. 1030 experts are more than a block has threads."""
    ids = torch.randint(-1, experts + 1, (tokens, chosen + 1), dtype=dtype)[:, 1:]
    if dtype == torch.int64 and tokens > 1:
        ids[0, 0] = 2**40
    order, rows, ends, places = run(ops._route_tokens, place, ids, experts)
    bucket = torch.where((ids < 0) | (ids >= experts), experts, ids).flatten()
    expected = bucket.sort(stable=True)
    assert torch.equal(order.long(), expected.indices) and torch.equal(rows, order // chosen)
    kinds = torch.arange(experts, dtype=dtype)
    assert torch.equal(ends.long(), torch.searchsorted(expected.values, kinds, right=True))
    assert torch.equal(order[places.flatten().long()], torch.arange(tokens * chosen, dtype=torch.int32))
    assert all(x.dtype == torch.int32 for x in (order, rows, ends, places))


def test_too_many_experts():
    with pytest.raises(ValueError, match="there may be up to 8191 experts"):
        ops._route_tokens(torch.zeros(2, 2, dtype=torch.int64), 8192)


@everywhere
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("tokens", "chosen", "columns", "pitch"), [(3, 2, 64, 64), (5, 8, 37, 41), (1, 1, 1, 1), (2, 3, 600, 604)]
)
def test_sums_and_gradients(place, dtype, tokens, chosen, columns, pitch):
    """Rows at any pitch, in vectors and one by one; weights of another type, and none."""
    y = torch.randn(tokens * chosen, pitch).to(dtype)[:, :columns]
    places = torch.randperm(tokens * chosen, dtype=torch.int32).view(tokens, chosen)
    weights = torch.rand(tokens, chosen)
    picked = y.double()[places.long()]
    wide, bound = weights.double().unsqueeze(-1), (chosen + 2) * UNIT[dtype]
    for given, exact in ((weights, picked * wide), (weights.bfloat16(), None), (None, picked)):
        if exact is None:
            exact = picked * given.double().unsqueeze(-1)
        got = run(ops._combine_rows, place, y, places, given)
        assert got.dtype == dtype and got.shape == (tokens, columns)
        assert ((got.double() - exact.sum(1)).abs() <= bound * exact.abs().sum(1)).all()
    grad = torch.randn(tokens, pitch).to(dtype)[:, :columns]
    of_y, of_weights = run(ops._combine_gradients, place, grad, y, places, weights, True, True)
    of_pairs = wide * grad.double().unsqueeze(1)
    torch.testing.assert_close(of_y[places.long()].double(), of_pairs, rtol=2 * UNIT[dtype], atol=1e-7)
    terms = picked * grad.double().unsqueeze(1)
    error = (of_weights.double() - terms.sum(-1)).abs()
    assert of_weights.dtype == weights.dtype and of_y.shape == y.shape
    assert (error <= (columns + 2) * 2**-23 * terms.abs().sum(-1)).all()
    only = run(ops._combine_gradients, place, grad, y, places, weights, False, True)
    assert only[0].numel() == 0 and torch.equal(only[1], of_weights)
    only = run(ops._combine_gradients, place, grad, y, places, weights, True, False)
    assert only[1].numel() == 0 and torch.equal(only[0], of_y)


def test_what_does_not_fit():
    y, places = torch.randn(6, 4), torch.zeros(3, 2, dtype=torch.int32)
    for given, text in (
        ((y[:5], places, None), "places must be int32 with 2 dimensions and a place for each row"),
        ((y, places.long(), None), "places must be int32"),
        ((y, places, torch.rand(2, 3)), r"weights has shape \(2, 3\), expected \(3, 2\)"),
        ((y, places, places), "weights must be of a floating-point type"),
        ((y.int(), places, None), "y must be of a floating-point type"),
    ):
        with pytest.raises(ValueError, match=text):
            ops._combine_rows(*given)
    with pytest.raises(ValueError, match=r"grad has shape \(3, 5\)"):
        ops._combine_gradients(torch.randn(3, 5), y, places, torch.rand(3, 2), True, True)
    with pytest.raises(ValueError, match="ids must be int32 or int64 with 2 dimensions"):
        ops._route_tokens(torch.zeros(4, dtype=torch.int64), 3)
