"""Tests compiled calls with sizes that a graph learns only when it runs (_ops/sizes.py)."""

import fastgemm
import pytest
import torch

ENDS = torch.tensor([1, 1, 5], dtype=torch.int32)
PACKED = fastgemm.quantize_weight(torch.ones(6, 32), "int8")
# (function, shapes, the operands and dimensions of sizes that are equal and that no graph knows)
UNKNOWN = {
    "rows": (lambda x, w, r: fastgemm.linear(x, w, residual=r), [(5, 8), (6, 8), (5, 6)], [(0, 0), (2, 0)]),
    "batches": (
        lambda x, w, r: fastgemm.linear(x, w, activation="gelu", residual=r),
        [(4, 5, 8), (6, 8), (4, 5, 6)],
        [(0, 0), (2, 0)],
    ),
    "packed": (
        lambda x, r: fastgemm.linear(x, PACKED, residual=r),
        [(4, 5, 32), (4, 5, 6)],
        [(0, 0), (1, 0)],
    ),
    "columns": (fastgemm.linear, [(5, 8), (6, 8), (6,)], [(1, 0), (2, 0)]),
    "gates": (lambda x, w: fastgemm.linear(x, w, activation="swiglu"), [(5, 8), (6, 8)], [(1, 0)]),
    "gated rows": (
        lambda x, w, r: fastgemm.linear(x, w, activation="swiglu", residual=r),
        [(5, 8), (6, 8), (5, 3)],
        [(0, 0), (2, 0)],
    ),
    "groups": (
        lambda a, b, bias: fastgemm.grouped_mm(a, b, ENDS, bias=bias),
        [(6, 8), (3, 8, 4), (3, 4)],
        [(1, 2), (2, 1)],
    ),
    "out": (lambda a, b, out: fastgemm.matmul(a, b, out=out), [(5, 8), (8, 6), (5, 6)], [(0, 0), (2, 0)]),
    "out, a view": (
        lambda a, b, out: fastgemm.matmul(a, b, out=out[:]),
        [(5, 8), (8, 6), (5, 6)],
        [(0, 0), (2, 0)],
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_sizes_that_no_graph_knows(name):
    function, shapes, marks = UNKNOWN[name]
    tensors = [torch.randn(shape, requires_grad=not name.startswith("out")) for shape in shapes]
    for i, dim in marks:
        torch._dynamo.decorators.mark_unbacked(tensors[i], dim)
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    found, expected = compiled(*tensors), function(*tensors)
    torch.testing.assert_close(found, expected)
    if not name.startswith("out"):
        grads = [torch.autograd.grad(y.sin().sum(), tensors) for y in (found, expected)]
        torch.testing.assert_close(*grads)


@pytest.mark.parametrize("activation", [None, "swiglu"])
@pytest.mark.parametrize("dims", [2, 3])
def test_rows_by_index(dims, activation):
    """The graph itself checks that they are as many."""

    def run(x, i, w, r, j):
        x, r = x[i.nonzero().squeeze(-1)], r[j.nonzero().squeeze(-1)]
        return fastgemm.linear(x, w, activation=activation, residual=r)

    lead, n = (9, 4)[: dims - 1], 3 if activation else 6
    x, w, r = torch.randn(*lead, 8), torch.randn(6, 8), torch.randn(*lead, n)
    first, last = torch.arange(9) < 3, torch.arange(9) > 5
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x, first, w, r, last), run(x, first, w, r, last))
        with pytest.raises(RuntimeError, match="Eq"):
            compiled(x, first, w, r, ~last)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    "recipes", [("row", "row"), ("1x128", "128x128"), ("1x32", "1x32"), ("tensor", "row")]
)
@pytest.mark.parametrize("marks", [((0, 0), (2, 0)), ((1, 0),), ((0, 1), (1, 1))])
def test_scaled_sizes_that_no_graph_knows(marks, recipes, named):
    """Rows, columns, and K."""
    names = {"recipe_a": recipes[0], "recipe_b": recipes[1]} if named else {}

    def run(x, w, residual):
        (a, scale_a), (b, scale_b) = map(fastgemm.quantize_fp8, (x, w), recipes)
        scale_b = scale_b.mT if scale_b.dim() else scale_b
        return fastgemm.scaled_mm(
            a, b.mT, scale_a, scale_b, residual=residual, out_dtype=torch.float32, **names
        )

    given = torch.randn(6, 256), torch.randn(140, 256), torch.randn(6, 140)
    for i, dim in marks:
        torch._dynamo.decorators.mark_unbacked(given[i], dim)
    torch._dynamo.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*given), run(*given))
    rows, columns, k = ((1, 140, 256), (6, 1, 256), (6, 140, 100))[[(0, 0), (1, 0), (0, 1)].index(marks[0])]
    others = torch.randn(rows, k), torch.randn(columns, k), torch.randn(rows, columns)
    if marks != ((1, 0),):  # whose residual has a size that the graph knows
        assert torch.equal(compiled(*others), run(*others))


def test_scaled_rows_by_index():
    def run(x, mask, w):
        a, scale_a = fastgemm.quantize_fp8(x[mask.nonzero().squeeze(-1)], "row")
        b, scale_b = fastgemm.quantize_fp8(w, "row")
        return fastgemm.scaled_mm(a, b.mT, scale_a, scale_b.mT)

    torch._dynamo.reset()
    x, w = torch.randn(9, 128), torch.randn(64, 128)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(run, fullgraph=True)
        for rows in (3, 1, 0, 9):
            mask = torch.arange(9) < rows
            assert torch.equal(compiled(x, mask, w), run(x, mask, w))
