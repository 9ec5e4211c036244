"""Tests each keyword argument with sharded operands. Every rule must handle all arguments of its ops."""

import inspect
from collections.abc import Sequence
from typing import Any

import pytest
import torch

if not torch.distributed.is_available():
    pytest.skip("this torch is built without torch.distributed", allow_module_level=True)

import fastgemm
from fastgemm import distributed
from sharding import cases, mesh_of, parsed, place, placements, raised, run

M, K = 7, 11


@pytest.mark.parametrize(
    ("rule", "op"),
    [
        ("_gemm_rules", "gemm"),
        ("_gemm_rules", "_gemm"),
        ("_linear_rules", "linear"),
        ("_linear_rules", "_fused_linear"),
        ("_grouped_rules", "grouped_mm"),
        ("_grouped_rules", "_grouped_mm"),
        ("_transpose_rules", "transpose"),
        ("_transpose_rules", "_transpose"),
        ("_add_rules", "add"),
        ("_add_rules", "_add"),
        ("_add_in_place_rules", "add_"),
    ],
)
def test_a_rule_names_the_arguments_of_its_ops(rule, op):
    taken = inspect.signature(getattr(distributed, rule)).parameters.values()
    assert not [p.name for p in taken if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    given = getattr(torch.ops.fastgemm, op).default._schema.arguments
    assert len(given) == len(taken)
    assert {a.name for a in given if a.kwarg_only} == {p.name for p in taken if p.kind is p.KEYWORD_ONLY}


def check_symmetric(
    case: str,
    shape: Sequence[int],
    *,
    mesh: Sequence[int] = (2,),
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> None:
    """Checks ``a @ a.mH`` with a sharded as in the case, plus a symmetric c if the case has two operands."""
    (where, *of_c), result, moves = parsed(case)
    on = mesh_of(*mesh)
    torch.manual_seed(len(where))  # random_tensor has no complex numbers
    a = torch.randn(shape, dtype=dtype)
    exact = a.to(torch.complex128) @ a.mH.to(torch.complex128) * options.get("alpha", 1)
    operands = [place(a, on, where)]
    # torch cannot redistribute lazy conjugates.
    operands.append(place(a.conj().resolve_conj(), on, where) if dtype.is_complex else operands[0])
    if of_c:
        c = torch.randn(shape[-2], shape[-2])
        operands.append(place(c + c.T, on, *of_c))
        exact += options["beta"] * (c + c.T)
    got = run(lambda: fastgemm.gemm(*operands, trans_b=True, symmetric=True, **options), moves)
    if result is not None:
        assert list(got.placements) == placements(result), f"{got.placements} instead of {result}"
    full = got.full_tensor().cpu()
    torch.testing.assert_close(full, exact.to(dtype) if dtype.is_complex else exact.real.to(dtype))
    if mesh == (2,):  # the all-reduce may add more than two (i, j) and (j, i) in different orders
        assert full.equal(full.mH), "it is not exactly symmetric"


def check_symmetric_by_promise(n: int) -> None:
    """Checks sums whose summands on the devices are not symmetric: only their lower triangles count."""
    on = mesh_of(2)
    p = torch.randn(n, n, dtype=torch.float64)
    p = p + p.T
    q = p @ p + 2 * p  # a polynomial of p, so that p @ q is symmetric
    for (of_p, of_q), result, moves in map(
        parsed, cases("S1, S0 -> P; P, R -> P; R, avg -> avg; S0, R => ?")
    ):
        placed = place(p, on, of_p), place(q, on, of_q)
        got = run(lambda placed=placed: fastgemm.gemm(*placed, symmetric=True), moves)
        assert result is None or list(got.placements) == placements(result), got.placements
        full = got.full_tensor().cpu()
        torch.testing.assert_close(full, p @ q)
        assert full.equal(full.T)


def check_gradients_of_symmetric(shape: Sequence[int]) -> None:
    on = mesh_of(2)
    a, seed = torch.randn(shape, dtype=torch.float64), torch.randn(shape[0], shape[0], dtype=torch.float64)
    expected = (seed + seed.T) @ a
    for where in ("R", "S0", "S1"):
        leaf = place(a, on, where).requires_grad_()
        result = fastgemm.gemm(leaf, leaf, trans_b=True, symmetric=True)
        result.redistribute(on, placements("R")).backward(place(seed, on, "R"))
        torch.testing.assert_close(leaf.grad.full_tensor().cpu(), expected)


def check_symmetric_is_remembered(shape: Sequence[int]) -> None:
    """Multiplies the same operands with and without symmetric=True."""
    a = torch.randn(shape)
    placed = place(a, mesh_of(2), "S0")
    for symmetric in (False, True, False, True):
        got = fastgemm.gemm(placed, placed, trans_b=True, symmetric=symmetric)
        assert (list(got.placements) == placements("S0")) is not symmetric
        torch.testing.assert_close(got.full_tensor().cpu(), a @ a.T)


def check_recognized(shape: Sequence[int]) -> None:
    """Without symmetric=True each device compares its own operands. Redistributed ones are two matrices."""
    a = torch.randn(shape)
    for where in ("R", "S1"):
        d = place(a, mesh_of(2), where)
        for call in (
            lambda d=d, **w: fastgemm.gemm(d, d, trans_b=True, **w),
            lambda d=d, **w: fastgemm.matmul(d, d.mT, **w),
        ):
            torch.testing.assert_close(call(kernel="symmetric").full_tensor().cpu(), a @ a.T)
    d = place(a, mesh_of(2), "S0")
    torch.testing.assert_close(fastgemm.matmul(d, d.mT).full_tensor().cpu(), a @ a.T)
    said = raised(RuntimeError, lambda: fastgemm.matmul(d, d.mT, kernel="symmetric"))
    assert "symmetric=True" in said, said


def check_all(calls):
    for case, shape, options in calls:
        check_symmetric(case, shape, **options)


@pytest.mark.parametrize(
    ("case", "shape"),
    [
        *((case, (M, K)) for case in cases("R -> R; S1 -> P; S0 => ?; P => ?")),
        *((case, (3, M, K)) for case in cases("S0 -> S0; S2 -> P; S1 => ?")),
    ],
)
def test_symmetric(ranks, case, shape):
    options = [{}, {"alpha": -0.5}, {"kernel": "symmetric"}, {"level": 3}]
    types = (torch.float32, torch.complex64)
    ranks.run(check_all, [(case, shape, {"dtype": dtype, **more}) for more in options for dtype in types])


def test_symmetric_with_c(ranks):
    found = cases("R, R -> R; S1, P -> P; S1, R -> P; S0, S0 => ?; R, S1 => ?")
    ranks.run(check_all, [(case, (M, K), {"alpha": 2, "beta": -0.5}) for case in found])


def test_symmetric_by_the_promise_alone(ranks):
    ranks.run(check_symmetric_by_promise, 9)


def test_gradients_of_a_symmetric_product(ranks):
    ranks.run(check_gradients_of_symmetric, (M, K))


def test_what_is_remembered_of_one_product_is_not_used_for_a_symmetric_one(ranks):
    ranks.run(check_symmetric_is_remembered, (8, 8))


def test_symmetric_on_a_mesh_of_two_dimensions(four_ranks):
    found = cases("S1 R -> P R; S1 S1 -> P P; S0 S1 => ?; S0 S0 => ?")
    four_ranks.run(check_all, [(case, (M, K), {"mesh": (2, 2)}) for case in found])


def test_a_symmetric_product_that_is_recognized(ranks):
    ranks.run(check_recognized, (M, K))
