"""What each keyword argument means for operands that are cut up: every rule knows all of its ops' arguments."""

from __future__ import annotations

import inspect

import pytest
import torch

if not torch.distributed.is_available():
    pytest.skip("this torch is built without torch.distributed", allow_module_level=True)

import sharding
from fastgemm import distributed

M, K = 7, 11


@pytest.mark.parametrize(
    ("rule", "op"),
    [
        ("_gemm_rules", "gemm"),
        ("_gemm_rules", "_gemm"),
        ("_linear_rules", "linear"),
        ("_linear_rules", "_fused_linear"),
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


def check_cases(cases):
    for arguments, options in cases:
        sharding.check_symmetric(*arguments, **options)


@pytest.mark.parametrize(
    ("where", "result", "shape", "moves"),
    [
        ("R", "R", (M, K), False),
        ("S1", "P", (M, K), False),
        ("S0", None, (M, K), True),
        ("P", None, (M, K), True),
        ("S0", "S0", (3, M, K), False),
        ("S2", "P", (3, M, K), False),
        ("S1", None, (3, M, K), True),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_symmetric(ranks, where, result, shape, moves, dtype):
    options = [{}, {"alpha": -0.5}, {"kernel": "symmetric"}, {"level": 3}]
    cases = [((where, result, shape), {"moves": moves, "dtype": dtype, **more}) for more in options]
    ranks.run(check_cases, cases)


@pytest.mark.parametrize(
    ("where", "of_c", "result", "moves"),
    [
        ("R", "R", "R", False),
        ("S1", "P", "P", False),
        ("S1", "R", "P", False),
        ("S0", "S0", None, True),
        ("R", "S1", None, True),
    ],
)
def test_symmetric_with_c(ranks, where, of_c, result, moves):
    options = {"moves": moves, "of_c": of_c, "alpha": 2, "beta": -0.5}
    ranks.run(check_cases, [((where, result, (M, K)), options)])


def test_symmetric_by_the_promise_alone(ranks):
    ranks.run(sharding.check_symmetric_by_promise, 9)


def test_gradients_of_a_symmetric_product(ranks):
    ranks.run(sharding.check_gradients_of_symmetric, (M, K))


def test_what_is_remembered_of_one_product_is_not_used_for_a_symmetric_one(ranks):
    ranks.run(sharding.check_symmetric_is_remembered, (8, 8))


def test_symmetric_on_a_mesh_of_two_dimensions(four_ranks):
    cases = [("S1 R", "P R", False), ("S1 S1", "P P", False), ("S0 S1", None, True), ("S0 S0", None, True)]
    ranks_cases = [((where, out, (M, K)), {"moves": m, "mesh": (2, 2)}) for where, out, m in cases]
    four_ranks.run(check_cases, ranks_cases)


def test_a_symmetric_product_that_is_recognized(ranks):
    ranks.run(sharding.check_recognized, (M, K))
