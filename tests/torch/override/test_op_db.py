"""Compares ops that reach a matrix product with and without fastgemm.patch, on torch's own samples."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import fastgemm
import pytest
import torch
from op_results import Difference, Outcome, forward_difference, gradient_difference, outcome, value_difference
from op_samples import (
    BACKWARD,
    DTYPES,
    FORWARD,
    IN_PLACE,
    INSIDE,
    NAMES,
    PRODUCTS,
    Arguments,
    Recorder,
    arguments_of,
    both_passes,
    call,
    find,
    is_dense,
    mapped,
    op_db,
    samples_of,
    spread_evenly,
    tensors_of,
)
from reference import every_device, name_of
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

pytestmark = pytest.mark.filterwarnings("ignore")

CHOICES = {"fastest": {}, "level 5": {"level": 5}}
# Samples for each op and dtype. float32 has more, because cdist and norms multiply in only some samples. Ops
# without a product in this pass have few.
MOST, MOST_OF_FLOAT32, LEAST = 4, 24, 2
ROUTED_TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64)
each_choice = pytest.mark.parametrize("choice", CHOICES)
each_op = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def one_thread():
    """Uses one thread: on small samples LAPACK's threads would wait for each other."""
    torch.set_num_threads(1)  # conftest.py restores it


def check(op: Any, choice: str, dtypes: set[torch.dtype], *how: Any) -> dict[torch.dtype, Any]:
    """Compares the results for the samples of each type with torch's, and returns the routed products."""
    wanted = [x for x in DTYPES if x in dtypes and (choice == "fastest" or x is torch.float32)]
    patches = {dtype: fastgemm.patch(**CHOICES[choice]) for dtype in wanted}
    found = [why for dtype, patch in patches.items() for why in differences(op, dtype, patch, *how)]
    assert not found, "\n".join(found[:10])
    if choice != "fastest":
        assert not any("torch" in patch.routed.kernels for patch in patches.values())
    return {dtype: patch.routed for dtype, patch in patches.items()}


def differences(
    op: Any, dtype: torch.dtype, patch: Any, device: str, requires_grad: bool, difference: Difference
) -> Iterator[str]:
    multiplies = op.full_name in FORWARD + INSIDE or (requires_grad and op.full_name in BACKWARD)
    most = (MOST_OF_FLOAT32 if dtype is torch.float32 else MOST) if multiplies else LEAST
    for sample in samples_of(op, device, dtype, requires_grad, most):
        why = difference(op, sample, dtype, patch)
        if why is not None:
            yield f"{op.full_name} {name_of(dtype)} {sample.summary()[:250]}: {why[:400]}"


@every_device
@each_choice
@each_op
def test_forward(name, choice, device):
    op = find(name)
    routed = check(op, choice, op.supported_dtypes(device), device, False, forward_difference)
    if name in FORWARD + INSIDE and device == "cpu":  # a GPU has other fused kernels
        assert not [dtype for dtype in routed if dtype in ROUTED_TYPES and not routed[dtype].total]


@every_device
@each_choice
@each_op
def test_gradients(name, choice, device):
    op = find(name)
    dtypes = op.supported_backward_dtypes(device)
    if torch.float32 not in dtypes:
        pytest.skip("has no gradient")
    if name == "corrcoef":
        pytest.skip("the gradient of correlations 1 and -1 is 0, so that only rounding errors remain")
    routed = check(op, choice, dtypes, device, True, gradient_difference)
    if name in FORWARD + INSIDE + BACKWARD and device == "cpu":
        assert routed[torch.float32].total


def filled(x: Tensor) -> Tensor:
    return torch.full_like(x, 7)


# This starts from torch's results.
OUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "like torch's": filled,
    "transposed": lambda x: filled(x.mT.contiguous()).mT if x.dim() > 1 else filled(x),
    "with gaps": lambda x: x.new_full((*x.shape, 2), 7)[..., 0],
    "empty": lambda x: x.new_empty(0),
    "larger": lambda x: x.new_full((*x.shape, 2), 7),
    "float64": lambda x: filled(x).double(),
    "int32": lambda x: filled(x).int(),
    "one element everywhere": lambda x: x.new_full((), 7).expand(x.shape),
}


@every_device
@each_op
def test_out(name, device):
    op, patch, found = find(name), fastgemm.patch(), []
    if not op.supports_out or not op.supports_dtype(torch.float32, device):
        pytest.skip("has no out=")
    for sample in samples_of(op, device, torch.float32, False, MOST if name in PRODUCTS else LEAST):
        result = call(op, arguments_of(sample))
        for kind in OUTS if is_dense(result) else ["like torch's"]:
            why = out_difference(op, sample, lambda: tree_map(OUTS[kind], result), patch)  # noqa: B023
            if why is not None:
                found.append(f"{sample.summary()[:250]}, {kind}: {why[:400]}")
    assert not found, "\n".join(found[:10])
    assert name not in PRODUCTS or patch.routed.total


def out_difference(op: Any, sample: Any, make: Callable[[], Any], patch: Any) -> str | None:
    arguments, torchs_out, out = arguments_of(sample), make(), make()
    torchs = outcome(lambda: call(op, arguments, out=torchs_out), contextlib.nullcontext())
    patched = outcome(lambda: call(op, arguments, out=out), patch)
    why = patched.difference(torchs)
    if why is not None or torchs.error is not None:
        return why
    if any(x is not y for x, y in zip(tree_leaves(patched.result), tree_leaves(out), strict=True)):
        return "another tensor than out="
    return value_difference(op, sample, torch.float32, patched.result, torchs.result)


@every_device
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name, device):
    op, found = find(name), []
    for dtype in [x for x in DTYPES if op.supports_dtype(x, device)]:
        patch = fastgemm.patch()
        for sample in samples_of(op, device, dtype, False, MOST):
            why = in_place_difference(op, sample, dtype, patch)
            if why is not None:
                found.append(f"{name_of(dtype)} {sample.summary()[:250]}: {why[:400]}")
        assert name not in PRODUCTS or dtype not in ROUTED_TYPES or patch.routed.total, dtype
    assert not found, "\n".join(found[:10])


def in_place_difference(op: Any, sample: Any, dtype: torch.dtype, patch: Any) -> str | None:
    into, *others = arguments_of(sample)

    def compute() -> Any:  # torch refuses operands that must be broadcast
        return call(op.get_inplace(), (into.clone(), *others))

    torchs, patched = outcome(compute, contextlib.nullcontext()), outcome(compute, patch)
    why = patched.difference(torchs)
    if why is not None or torchs.error is not None:
        return why
    return value_difference(op, sample, dtype, patched.result, torchs.result)


# Functions that make a wrong operand of a right one.
WRONG: dict[str, Callable[[Tensor], Tensor]] = {
    "another type": lambda x: x.double(),
    "integers": lambda x: x.long(),
    "a column less": lambda x: x[..., 1:] if x.dim() else x,
    "a dimension more": lambda x: x[None],
    "a dimension less": lambda x: x[0] if x.dim() and len(x) else x,
    "on a CPU": lambda x: x.cpu(),
}


def refused(op: Any, arguments: Arguments, inside: Any) -> Outcome:
    """The outcome without the message, because torch multiplies batches in two ways with different
    messages."""
    made = outcome(lambda: call(op, arguments), inside)
    return Outcome(made.result, made.error and (made.error[0], ""), made.warnings)


@every_device
@pytest.mark.parametrize("name", FORWARD + IN_PLACE[3:])
def test_wrong_operands(name, device):
    op, patch, found = find(name), fastgemm.patch(), []
    for sample in samples_of(op, device, torch.float32, False, MOST):
        arguments = arguments_of(sample)
        for operand, kind in itertools.product(tensors_of(arguments), WRONG):
            wrong = mapped(arguments, lambda x: WRONG[kind](x) if x is operand else x)  # noqa: B023
            why = refused(op, wrong, patch).difference(refused(op, wrong, contextlib.nullcontext()))
            if why is not None:
                found.append(f"{sample.summary()[:250]}, {tuple(operand.shape)} {kind}: {why[:400]}")
    assert not found, "\n".join(found[:10])


@every_device
def test_error_inputs(device):
    """Uses torch's samples of errors, which few of these ops have. Type and message of the error must be equal."""
    patch, errors = fastgemm.patch(), 0
    for op in [op_db()[name] for name in NAMES if name in op_db()]:
        for error in op.error_inputs(device, set_seed=False) if op.error_inputs_func else ():
            arguments = arguments_of(error.sample_input)
            torchs, patched = (
                outcome(lambda: call(op, arguments), inside)  # noqa: B023
                for inside in (contextlib.nullcontext(), patch)
            )
            assert patched.difference(torchs) is None, f"{op.full_name} {error.sample_input.summary()}"
            errors += torchs.error is not None
    assert errors > 10


@every_device
def test_as_many_products_are_routed_as_torch_has(device):
    """Runs everything in float32. Some of torch's ops are complex, and a mode sees no products inside of C++."""
    recorder, patch = Recorder(), fastgemm.patch()
    for name in FORWARD + INSIDE + BACKWARD:
        op = op_db().get(name)
        if op is not None and op.supports_dtype(torch.float32, device):
            samples = samples_of(op, device, torch.float32, True, MOST)
            both_passes(op, samples, recorder, recorder)
            both_passes(op, samples, patch, patch)
    assert recorder.seen.total() > 300
    assert patch.routed.total >= recorder.seen.total(), (patch.routed, recorder.seen)


def test_every_op_that_reaches_a_product_is_listed():
    """If an op fails here, it is new in torch. Add its name to op_samples.py."""
    found = {}
    for name in op_db().keys() - set(NAMES):
        op, patch = op_db()[name], fastgemm.patch()
        grad = torch.float32 in op.supported_backward_dtypes("cpu")
        with contextlib.suppress(Exception):  # ops that run only on a GPU, and gradients that torch lacks
            every = op.sample_inputs("cpu", torch.float32, grad, set_seed=False)
            both_passes(op, spread_evenly(list(itertools.islice(every, 60)), MOST), patch, patch)
        if patch.routed.total or patch.routed.passed_on:
            found[name] = str(patch.routed)
    assert not found
