"""Tests sharded operands (DTensor) on two processes: values against float64, placements, communication.

sharding.py describes the notation of the cases.
"""

import pytest
import torch

if not torch.distributed.is_available():
    pytest.skip("this torch is built without torch.distributed", allow_module_level=True)

import fastgemm
import sharding
from processes import run_forked
from sharding import cases

M, K, N = SIZES = 7, 11, 5  # all odd, so that the devices' parts differ in size
PRODUCT = [(M, K), (K, N)]
WITH_C = [*PRODUCT, (M, N)]
TRANSPOSED = [{"trans_a": a, "trans_b": b} for a in (False, True) for b in (False, True)]


def check_all(check, calls):
    """Calls a function of sharding.py for each case with its shapes and options."""
    for case, shapes, options in calls:
        getattr(sharding, check)(case, shapes, **options)


@pytest.mark.parametrize(
    "case",
    cases(
        "R, R -> R; S0, R -> S0; R, S1 -> S1; S1, S0 -> P; P, R -> P; R, P -> P; avg, R -> avg; R, avg -> avg"
    ),
)
def test_products_without_communication(ranks, case):
    calls = [(case, PRODUCT, {"alpha": 1.5, **flags}) for flags in TRANSPOSED]
    ranks.run(check_all, "check_product", [*calls, (case, PRODUCT, {"op": fastgemm.matmul})])


@pytest.mark.parametrize(
    "case",
    cases(
        "R, R, R -> R; S0, R, S0 -> S0; S0, R, R -> S0; R, S1, S1 -> S1; R, S1, R -> S1; S1, S0, P -> P;"
        "S1, S0, R -> P; P, R, P -> P; R, P, R -> P; avg, R, R -> avg; R, avg, avg -> avg"
    ),
)
def test_c_is_added_once(ranks, case):
    options = [{}, {"beta": -0.5, "alpha": 2, "trans_a": True}, {"beta": 0, "trans_b": True}]
    ranks.run(check_all, "check_product", [(case, WITH_C, more) for more in options])


@pytest.mark.parametrize("shape", [(N,), (1, N), (M, 1), (1, 1)])
def test_c_that_broadcasts(ranks, shape):
    of_rows = "S0" if shape[0] == M and len(shape) == 2 else "R"
    of_columns = f"S{len(shape) - 1}" if shape[-1] == N else "R"
    found = f"S0, R, {of_rows} -> S0", f"R, S1, {of_columns} -> S1", "S1, S0, P -> P"
    ranks.run(check_all, "check_product", [(case, [*PRODUCT, shape], {"beta": 2}) for case in found])


@pytest.mark.parametrize(
    ("case", "shapes"),
    [
        ("S0, S0 -> S0", [(3, M, K), (3, K, N)]),
        ("S0, R -> S0", [(3, M, K), (K, N)]),
        ("S0, R -> S0", [(3, M, K), (1, K, N)]),
        ("R, S0 -> S0", [(M, K), (3, K, N)]),
        ("S1, S0 -> S1", [(2, 3, M, K), (3, K, N)]),
        ("S0, R, S0 -> S0", [(3, M, K), (K, N), (3, 1, N)]),
        ("S0, R, R -> S0", [(3, M, K), (K, N), (M, N)]),
        ("S1, R -> S1", [(3, M, K), (K, N)]),
        ("R, S1 -> S2", [(3, M, K), (K, N)]),
        ("S2, S0 -> P", [(3, M, K), (K, N)]),
        ("S2, S1 -> P", [(3, M, K), (3, K, N)]),
    ],
)
def test_batches(ranks, case, shapes):
    ranks.run(check_all, "check_product", [(case, shapes, flags) for flags in TRANSPOSED])


def test_operands_that_fit_no_rule_are_moved(ranks):
    # No rule fits: a product is not linear in both operands together, a result cannot be sharded twice on one mesh
    # dimension, and the maximum of products is not the product of maxima.
    moved = cases("P, P => ?; S0, S1 => ?; max, R => ?; S0, S0 => ?; P, avg => ?")
    calls = [(case, PRODUCT, {}) for case in moved]
    calls += [(case, WITH_C, {}) for case in ("S1, S0, S0 => ?", "P, R, avg => ?")]
    calls.append(("S1, S0 => ?", [(M, 1), (1, N)], {}))  # k is smaller than the number of devices
    ranks.run(check_all, "check_product", calls)


@pytest.mark.parametrize(
    ("case", "activation"),
    [
        ("R, R, R, R -> R", "gelu"),
        ("S0, R, R, S0 -> S0", "gelu"),
        ("R, S0, S0, S1 -> S1", "silu"),
        ("R, S0, R, R -> S1", "relu"),
        ("S1, S1, P, P -> P", None),
        ("S1, S1, R, R -> P", None),
        ("P, R, P, P -> P", None),
        ("P, R, R, R -> P", None),
        ("R, P, R, R -> P", None),
        ("avg, R, R, avg -> avg", None),
        ("R, avg, R, R -> avg", None),
        ("S1, S1, R, R => ?", "gelu"),
        ("P, R, R, R => ?", "gelu"),
    ],
)
def test_layers_with_an_epilogue(ranks, case, activation):
    shapes = [(M, K), (N, K), (N,), (M, N)]
    ranks.run(check_all, "check_linear", [(case, shapes[:n], {"activation": activation}) for n in (2, 3, 4)])


GROUPED = {  # shapes of a, b and bias, and the ends of three groups
    "rows": (((M, K), (3, K, N), (3, N)), (2, 2, 6)),
    "columns": (((3, M, K), (K, N), (N,)), (1, 4, 4)),
    "k": (((M, K), (K, N), (3, N)), (2, 2, 10)),
    "batch": (((3, M, K), (3, K, N), (3, N)), None),
}


@pytest.mark.parametrize(
    ("kind", "case", "activation"),
    [
        ("rows", "R, S2, S1 -> S1", "silu"),
        ("rows", "S1, S1, P -> P", None),
        ("rows", "S1, S1, P => ?", "relu"),
        ("rows", "S0, R, R => ?", None),
        ("columns", "S1, R, R -> S0", "relu"),
        ("columns", "S2, S0, P -> P", None),
        ("k", "S0, R, R -> S1", None),
        ("k", "R, S1, S1 -> S2", "gelu"),
        ("k", "P, R, P -> P", None),
        ("batch", "S0, S0, S0 -> S0", "gelu"),
        ("batch", "S2, S1, P -> P", None),
    ],
)
def test_groups(ranks, kind, case, activation):
    shapes, ends = GROUPED[kind]
    options = {"ends": ends, "activation": activation}
    ranks.run(check_all, "check_grouped", [(case, shapes[:n], options) for n in (2, 3)])


@pytest.mark.parametrize("batch", [2, 3])
def test_layers_of_sequences(ranks, batch):
    ranks.run(sharding.check_sequences, [(batch, M, K), (N, K), (N,)])


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32])
def test_integers(ranks, dtype):
    """To make a Partial sum, torch divides by the number of devices, and the quotient may be no integer."""
    found = cases("S1, S0 -> P; P, R -> P; S1, S0, P -> P; R, R, P -> P; S1, S0, R => ?")
    options = {"dtype": dtype, "alpha": 3}
    ranks.run(check_all, "check_product", [(case, WITH_C[: case.count(",") + 1], options) for case in found])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_types(ranks, dtype):
    options = {"dtype": dtype}
    summed = options if dtype == torch.float64 else {"out_dtype": torch.float32, **options}
    calls = [("S0, R -> S0", PRODUCT, options), ("S1, S0 -> P", PRODUCT, summed)]
    ranks.run(check_all, "check_product", calls)


def test_a_remembered_decision_is_not_used_for_another_product(ranks):
    ranks.run(sharding.check_products_that_differ_in_one_argument)


def test_every_op_has_its_rules(ranks):
    ranks.run(sharding.check_overloads, SIZES)


def test_a_chosen_kernel_runs_on_every_device(ranks):
    ranks.run(sharding.check_choice, (40, 150, 30))


def test_transpose(ranks):
    calls = [
        (case, (M, N), {}) for case in cases("R -> R; S0 -> S1; S1 -> S0; P -> P; avg -> avg; max -> max")
    ]
    calls += [(case, (3, M, N), {}) for case in cases("S0 -> S0; S1 -> S2; S2 -> S1")]
    ranks.run(check_all, "check_transpose", calls)


@pytest.mark.parametrize(
    ("case", "shapes"),
    [
        ("R, R -> R", [(M, N), (M, N)]),
        ("S0, S0 -> S0", [(M, N), (M, N)]),
        ("S1, R -> S1", [(M, N), (M, N)]),
        ("S1, S0 -> S1", [(M, N), (N,)]),
        ("S0, R -> S0", [(M, N), (1, N)]),
        ("R, S0 -> S0", [(M, 1), (M, N)]),
        ("S1, S0 -> S1", [(3, M, N), (M, 1)]),
        ("P, P -> P", [(M, N), (M, N)]),
        ("P, R -> P", [(M, N), (N,)]),
        ("avg, R -> avg", [(M, N), (M, N)]),
    ],
)
def test_add(ranks, case, shapes):
    ranks.run(check_all, "check_add", [(case, shapes, {"alpha": alpha}) for alpha in (1, -1.5)])


def test_add_of_other_operands_and_in_place(ranks):
    integers, in_place = {"dtype": torch.int32, "alpha": 3}, {"op": fastgemm.add_, "alpha": 2}
    found = {"P, S0 => ?": {}, "max, R => ?": {}, "P, P -> P": integers, "P, R => ?": integers}
    found |= dict.fromkeys(cases("S0, S0 -> S0; S1, R -> S1; R, S0 => R; S0, P => S0"), in_place)
    calls = [(case, [(M, N), (M, N)], options) for case, options in found.items()]
    ranks.run(check_all, "check_add", [*calls, ("P, R -> P", [(M, N), (N,)], in_place)])


@pytest.mark.parametrize(
    "case",
    cases("R, R -> R; S0, R -> S0; R, S1 -> S1; S1, S0 -> R; S1, S0 -> S0; S0, R, S0 -> S0; R, S1, R -> S1"),
)
def test_gradients(ranks, case):
    calls = []
    for flags in TRANSPOSED:
        shapes = [(K, M) if flags["trans_a"] else (M, K), (N, K) if flags["trans_b"] else (K, N), (M, N)]
        operands = case.count(",") + 1
        options = {"alpha": -0.5, **flags, **({"beta": 2.0} if operands == 3 else {})}
        calls.append((case, shapes[:operands], options))
    ranks.run(check_all, "check_gradients", calls)


@pytest.mark.parametrize("batch", [2, 3])
def test_gradients_of_a_batch(ranks, batch):
    """torch puts the rows of a batch into one matrix, unless the devices' parts of the batch differ in size."""
    shapes = [(batch, M, K), (K, N), (N,)]
    found = "S0, R -> S0; S1, R -> S1; S2, S0 -> P; P, R -> P; R, S1 -> S2; S0, S1 => ?; S0, R, R -> S0"
    calls = [(case, shapes[: case.count(",") + 1], {"call": fastgemm.gemm}) for case in cases(found)]
    ranks.run(check_all, "check_with_gradients", calls)


def test_gradients_of_transpose_and_add(ranks):
    ranks.run(sharding.check_gradients_of_transpose_and_add)


def test_compile(ranks):
    ranks.run(sharding.check_compiled, (8, 12, 6))


def test_missing_features_are_refused(ranks):
    ranks.run(sharding.check_refusals)


def test_meshes_of_two_dimensions(four_ranks):
    on, integers = {"mesh": (2, 2)}, {"mesh": (2, 2), "dtype": torch.int32}
    found = cases("S0 R, R S1 -> S0 S1; S0 S1, R S0 -> S0 P; S1 S1, S0 S0 -> P P")
    calls = [(case, PRODUCT, on) for case in found]
    calls.append(("S0 S2, S0 S1 -> S0 P", [(3, M, K), (3, K, N)], on))
    calls += [(case, WITH_C, on) for case in cases("S0 S1, R S0, S0 R -> S0 P; S0 S1, R S0, S0 P -> S0 P")]
    found = cases("S1 S1, S0 S0, P P -> P P; P S1, R S0, P R => ?; S0 S1, R S0, S0 R => ?")
    calls += [(case, WITH_C, integers) for case in found]
    four_ranks.run(check_all, "check_product", calls)


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
    done = run_forked(PROBE.format(imports="import fastgemm", loaded=False))
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
    assert run_forked(PROBE.format(imports=imports, loaded=True)).stdout == "True\n"


def test_a_torch_without_register_sharding_is_left_alone():
    done = run_forked("""
import sys, fastgemm
sys.modules["torch.distributed.tensor.experimental"] = None
import torch.distributed.tensor
print("imported")
""")
    assert done.stdout == "imported\n" and "no rules for sharded operands" in done.stderr
