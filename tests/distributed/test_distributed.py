"""Sharded operands (DTensor) on two processes: values against float64, placements, communication."""

from __future__ import annotations

import pytest
import torch

if not torch.distributed.is_available():
    pytest.skip("this torch is built without torch.distributed", allow_module_level=True)

import fastgemm
import sharding
from processes import run_python

M, K, N = SIZES = 7, 11, 5  # none of them even: the devices' parts differ
PRODUCT = [(M, K), (K, N)]
WITH_C = [*PRODUCT, (M, N)]
TRANSPOSED = [{"trans_a": a, "trans_b": b} for a in (False, True) for b in (False, True)]


def check_products(cases):
    for arguments, options in cases:
        sharding.check_product(*arguments, **options)


@pytest.mark.parametrize(
    ("names", "result"),
    [
        (("R", "R"), "R"),
        (("S0", "R"), "S0"),
        (("R", "S1"), "S1"),
        (("S1", "S0"), "P"),
        (("P", "R"), "P"),
        (("R", "P"), "P"),
        (("avg", "R"), "avg"),
        (("R", "avg"), "avg"),
    ],
)
def test_products_without_communication(ranks, names, result):
    cases = [((names, result, PRODUCT), {"alpha": 1.5, **flags}) for flags in TRANSPOSED]
    ranks.run(check_products, [*cases, ((names, result, PRODUCT), {"op": fastgemm.matmul})])


@pytest.mark.parametrize(
    ("names", "result"),
    [
        (("R", "R", "R"), "R"),
        (("S0", "R", "S0"), "S0"),
        (("S0", "R", "R"), "S0"),
        (("R", "S1", "S1"), "S1"),
        (("R", "S1", "R"), "S1"),
        (("S1", "S0", "P"), "P"),
        (("S1", "S0", "R"), "P"),
        (("P", "R", "P"), "P"),
        (("R", "P", "R"), "P"),
        (("avg", "R", "R"), "avg"),
        (("R", "avg", "avg"), "avg"),
    ],
)
def test_c_is_added_once(ranks, names, result):
    options = [{}, {"beta": -0.5, "alpha": 2, "trans_a": True}, {"beta": 0, "trans_b": True}]
    ranks.run(check_products, [((names, result, WITH_C), more) for more in options])


@pytest.mark.parametrize("shape", [(N,), (1, N), (M, 1), (1, 1)])
def test_c_that_broadcasts(ranks, shape):
    wide, tall = shape[-1] == N, shape[0] == M and len(shape) == 2
    shapes, last = [*PRODUCT, shape], f"S{len(shape) - 1}"
    cases = [
        (("S0", "R", "S0" if tall else "R"), "S0"),
        (("R", "S1", last if wide else "R"), "S1"),
        (("S1", "S0", "P"), "P"),
    ]
    ranks.run(check_products, [((names, result, shapes), {"beta": 2}) for names, result in cases])


@pytest.mark.parametrize(
    ("names", "result", "shapes"),
    [
        (("S0", "S0"), "S0", [(3, M, K), (3, K, N)]),
        (("S0", "R"), "S0", [(3, M, K), (K, N)]),
        (("S0", "R"), "S0", [(3, M, K), (1, K, N)]),
        (("R", "S0"), "S0", [(M, K), (3, K, N)]),
        (("S1", "S0"), "S1", [(2, 3, M, K), (3, K, N)]),
        (("S0", "R", "S0"), "S0", [(3, M, K), (K, N), (3, 1, N)]),
        (("S0", "R", "R"), "S0", [(3, M, K), (K, N), (M, N)]),
        (("S1", "R"), "S1", [(3, M, K), (K, N)]),
        (("R", "S1"), "S2", [(3, M, K), (K, N)]),
        (("S2", "S0"), "P", [(3, M, K), (K, N)]),
        (("S2", "S1"), "P", [(3, M, K), (3, K, N)]),
    ],
)
def test_batches(ranks, names, result, shapes):
    ranks.run(check_products, [((names, result, shapes), flags) for flags in TRANSPOSED])


@pytest.mark.parametrize(
    ("names", "shapes"),
    [
        (("P", "P"), PRODUCT),  # not linear in both at once
        (("S0", "S1"), PRODUCT),  # the result would be sharded twice
        (("max", "R"), PRODUCT),  # the largest of two products is not that of the largest
        (("S0", "S0"), PRODUCT),
        (("P", "avg"), PRODUCT),
        (("S1", "S0", "S0"), WITH_C),
        (("P", "R", "avg"), WITH_C),
        (("S1", "S0"), [(M, 1), (1, N)]),  # fewer k than devices
    ],
)
def test_operands_that_fit_no_rule_are_moved(ranks, names, shapes):
    ranks.run(check_products, [((names, None, shapes), {"moves": True})])


LAYER = [(M, K), (N, K), (N,), (M, N)]


@pytest.mark.parametrize(
    ("names", "result", "activation", "moves"),
    [
        (("R", "R", "R", "R"), "R", "gelu", False),
        (("S0", "R", "R", "S0"), "S0", "gelu", False),
        (("R", "S0", "S0", "S1"), "S1", "silu", False),
        (("R", "S0", "R", "R"), "S1", "relu", False),
        (("S1", "S1", "P", "P"), "P", None, False),
        (("S1", "S1", "R", "R"), "P", None, False),
        (("S1", "S1", "R", "R"), None, "gelu", True),
        (("P", "R", "R", "R"), None, "gelu", True),
    ],
)
def test_layers_with_an_epilogue(ranks, names, result, activation, moves):
    options = {"activation": activation, "moves": moves}
    ranks.run(check_layers, [((names[:n], result, LAYER[:n]), options) for n in (2, 3, 4)])


def check_layers(cases):
    for arguments, options in cases:
        sharding.check_linear(*arguments, **options)


def test_layers_of_sequences(ranks):
    ranks.run(sharding.check_sequences, [(2, M, K), (N, K), (N,)])


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32])
def test_integers(ranks, dtype):
    """torch divides by the number of devices to make a Partial sum: that would not be an integer's."""
    cases = [
        (("S1", "S0"), "P", PRODUCT, False),
        (("P", "R"), "P", PRODUCT, False),
        (("S1", "S0", "P"), "P", WITH_C, False),
        (("R", "R", "P"), "P", WITH_C, False),
        (("S1", "S0", "R"), None, WITH_C, True),
    ]
    ranks.run(check_products, [(case[:3], {"dtype": dtype, "moves": case[3], "alpha": 3}) for case in cases])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_types(ranks, dtype):
    options = {"dtype": dtype}
    summed = options if dtype == torch.float64 else {"out_dtype": torch.float32, **options}
    cases = [((("S0", "R"), "S0", PRODUCT), options), ((("S1", "S0"), "P", PRODUCT), summed)]
    ranks.run(check_products, cases)


def test_a_remembered_decision_is_not_used_for_another_product(ranks):
    ranks.run(sharding.check_products_that_differ_in_one_argument)


def test_every_op_has_its_rules(ranks):
    ranks.run(sharding.check_overloads, SIZES)


def test_a_chosen_kernel_runs_on_every_device(ranks):
    ranks.run(sharding.check_choice, (40, 150, 30))


@pytest.mark.parametrize(
    ("names", "result", "shape"),
    [
        ("R", "R", (M, N)),
        ("S0", "S1", (M, N)),
        ("S1", "S0", (M, N)),
        ("S0", "S0", (3, M, N)),
        ("S1", "S2", (3, M, N)),
        ("S2", "S1", (3, M, N)),
        ("P", "P", (M, N)),
        ("avg", "avg", (M, N)),
        ("max", "max", (M, N)),
    ],
)
def test_transpose(ranks, names, result, shape):
    ranks.run(sharding.check_transpose, names, result, shape)


def check_additions(cases):
    for arguments, options in cases:
        sharding.check_add(*arguments, **options)


@pytest.mark.parametrize(
    ("names", "result", "shapes"),
    [
        (("R", "R"), "R", [(M, N), (M, N)]),
        (("S0", "S0"), "S0", [(M, N), (M, N)]),
        (("S1", "R"), "S1", [(M, N), (M, N)]),
        (("S1", "S0"), "S1", [(M, N), (N,)]),
        (("S0", "R"), "S0", [(M, N), (1, N)]),
        (("R", "S0"), "S0", [(M, 1), (M, N)]),
        (("S1", "S0"), "S1", [(3, M, N), (M, 1)]),
        (("P", "P"), "P", [(M, N), (M, N)]),
        (("P", "R"), "P", [(M, N), (N,)]),
        (("avg", "R"), "avg", [(M, N), (M, N)]),
    ],
)
def test_add(ranks, names, result, shapes):
    ranks.run(check_additions, [((names, result, shapes), {"alpha": alpha}) for alpha in (1, -1.5)])


def test_add_moves_what_fits_no_rule(ranks):
    shapes = [(M, N), (M, N)]
    integers = {"dtype": torch.int32, "alpha": 3}
    ranks.run(
        check_additions,
        [
            ((("P", "S0"), None, shapes), {"moves": True}),
            ((("max", "R"), None, shapes), {"moves": True}),
            ((("P", "P"), "P", shapes), integers),
            ((("P", "R"), None, shapes), {"moves": True, **integers}),
        ],
    )


def test_add_in_place(ranks):
    shapes, in_place = [(M, N), (M, N)], {"op": fastgemm.add_, "alpha": 2}
    ranks.run(
        check_additions,
        [
            ((("S0", "S0"), "S0", shapes), in_place),
            ((("S1", "R"), "S1", shapes), in_place),
            ((("R", "S0"), "R", shapes), {"moves": True, **in_place}),
            ((("S0", "P"), "S0", shapes), {"moves": True, **in_place}),
            ((("P", "R"), "P", [(M, N), (N,)]), in_place),
        ],
    )


@pytest.mark.parametrize(
    ("names", "seed"),
    [
        (("R", "R"), "R"),
        (("S0", "R"), "S0"),
        (("R", "S1"), "S1"),
        (("S1", "S0"), "R"),
        (("S1", "S0"), "S0"),
        (("S0", "R", "S0"), "S0"),
        (("R", "S1", "R"), "S1"),
    ],
)
def test_gradients(ranks, names, seed):
    ranks.run(check_all_gradients, names, seed)


def check_all_gradients(names, seed):
    for flags in TRANSPOSED:
        shapes = [(K, M) if flags["trans_a"] else (M, K), (N, K) if flags["trans_b"] else (K, N), (M, N)]
        where = list(names)
        for index, flag in enumerate(("trans_a", "trans_b")):
            where[index] = sharding.transposed(where[index], 2) if flags[flag] else where[index]
        scales = {"alpha": -0.5} | ({"beta": 2.0} if len(names) == 3 else {})
        sharding.check_gradients(where, shapes[: len(names)], seed, **flags, **scales)


def test_gradients_of_transpose_and_add(ranks):
    ranks.run(sharding.check_gradients_of_transpose_and_add)


def test_compile(ranks):
    ranks.run(sharding.check_compiled, (8, 12, 6))


def test_what_is_not_there_is_refused(ranks):
    ranks.run(sharding.check_refusals)


@pytest.mark.parametrize(
    ("names", "result", "shapes", "dtype"),
    [
        (("S0 R", "R S1"), "S0 S1", PRODUCT, torch.float32),
        (("S0 S1", "R S0"), "S0 P", PRODUCT, torch.float32),
        (("S1 S1", "S0 S0"), "P P", PRODUCT, torch.float32),
        (("S0 S2", "S0 S1"), "S0 P", [(3, M, K), (3, K, N)], torch.float32),
        (("S0 S1", "R S0", "S0 R"), "S0 P", WITH_C, torch.float32),
        (("S0 S1", "R S0", "S0 P"), "S0 P", WITH_C, torch.float32),
    ],
)
def test_meshes_of_two_dimensions(four_ranks, names, result, shapes, dtype):
    four_ranks.run(check_products, [((names, result, shapes), {"mesh": (2, 2), "dtype": dtype})])


def test_integers_on_a_mesh_of_two_dimensions(four_ranks):
    four_ranks.run(
        check_products,
        [
            ((("S1 S1", "S0 S0", "P P"), "P P", WITH_C), {"mesh": (2, 2), "dtype": torch.int32}),
            (
                (("P S1", "R S0", "P R"), None, WITH_C),
                {"mesh": (2, 2), "dtype": torch.int32, "moves": True},
            ),
            (
                (("S0 S1", "R S0", "S0 R"), None, WITH_C),
                {"mesh": (2, 2), "dtype": torch.int32, "moves": True},
            ),
        ],
    )


PROBE = """
import sys, torch
{imports}
assert ("torch.distributed.tensor" in sys.modules) == {loaded}
if {loaded}:
    from torch.distributed.tensor import DTensor
    known = DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs
    print(torch.ops.fastgemm._gemm.default in known)
"""


def test_import_leaves_dtensor_alone():
    done = run_python(["-c", PROBE.format(imports="import fastgemm", loaded=False)])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "imports",
    [
        "import fastgemm, torch.distributed.tensor",
        "import torch.distributed.tensor, fastgemm",
        "import fastgemm.distributed; fastgemm.distributed.register(); fastgemm.distributed.register()",
        "import fastgemm, importlib.util; importlib.util.find_spec('torch.distributed.tensor')\n"
        "import torch.distributed.tensor",
    ],
)
def test_rules_are_there_whatever_is_imported_first(imports):
    assert run_python(["-c", PROBE.format(imports=imports, loaded=True)]).stdout == "True\n"


def test_a_torch_without_register_sharding_is_left_alone():
    code = """
import sys, fastgemm
sys.modules["torch.distributed.tensor.experimental"] = None
import torch.distributed.tensor
print("imported")
"""
    done = run_python(["-c", code])
    assert done.stdout == "imported\n" and "no rules for sharded operands" in done.stderr
