"""tune=True: products are measured where they first run, once, and nowhere else."""

import copy
import json

import fastgemm
import pytest
import torch
from fastgemm import tuning
from fastgemm._drop_in import first_calls
from patches import needs_library
from processes import run_forked
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

pytestmark = [needs_library, pytest.mark.usefixtures("first_calls_file")]


def operands(m=33, n=21, k=65):
    return torch.randn(m, k, dtype=torch.float64), torch.randn(k, n, dtype=torch.float64)


def kernels_of(routed):
    return [*routed.kernels]


def test_the_first_call_measures_and_all_have_its_bits(first_calls_file):
    """With the real clock and the real kernels."""
    a, b = torch.randn(40, 50), torch.randn(50, 60)
    with fastgemm.patch(tune=True) as routed:
        results = [a @ b for _ in range(4)]
    assert all(torch.equal(results[0], other) for other in results)
    torch.testing.assert_close(results[0], a @ b)
    ((key, kernel, seconds),) = json.loads(first_calls_file.read_text())["sets"][tuning.environment()]
    assert key[:13] == list(tuning.gemm_key(a, b))
    assert kernels_of(routed) == [kernel]
    assert 2 <= len(seconds) <= 6
    assert kernel == first_calls._fastest(seconds, next(iter(seconds)))


def test_a_signature_is_measured_once(measured):
    a, b = operands()
    predicted = tuning.chosen_kernel(tuning.gemm_key(a, b))
    with fastgemm.patch(tune=True) as routed:
        for _ in range(3):
            a @ b
        assert len(measured) == 1
        a @ operands(n=22)[1]
        assert len(measured) == 2
    assert routed.kernels[measured[0][-1]] >= 3
    assert measured[0][-1] != measured[0][0] == predicted
    a @ operands(n=23)[1]
    with fastgemm.patch():
        a @ operands(n=24)[1]
    assert len(measured) == 2


def test_only_a_faster_kernel_replaces_the_predicted_one():
    assert first_calls._fastest({"torch": 1.0, "simd": 0.99}, "torch") == "torch"
    assert first_calls._fastest({"torch": 1.0, "simd": 0.9}, "torch") == "simd"
    assert first_calls._fastest({"simd": 0.9}, "torch") == "simd"  # torch could not run
    assert first_calls._fastest({}, "torch") == "torch"


def in_place(a, b):
    c = torch.ones(a.size(0), b.size(1), dtype=a.dtype)
    return c.addmm_(a, b, beta=2.0, alpha=3.0)


def into_strided(a, b):
    out = torch.full((a.size(0), 2 * b.size(1) + 3), -1.0, dtype=a.dtype)
    torch.mm(a, b, out=out[:, 3 : 3 + b.size(1)])
    return out


ROW, MATRIX = torch.arange(21, dtype=torch.float64), torch.ones(33, 21, dtype=torch.float64)
PRODUCTS = {  # with its details: 3 is aligned, 4 a row is added, 8 an epilogue
    "mm": (torch.mm, 3, False),
    "addmm with a row": (lambda a, b: torch.addmm(ROW, a, b), 7, True),
    "addmm": (lambda a, b: torch.addmm(MATRIX, a, b, beta=0.5, alpha=-2.0), 3, True),
    "addmm_": (in_place, 3, True),
    "mm into a part": (into_strided, 3, False),
    "transposed": (lambda a, b: torch.mm(a.t().contiguous().t(), b), 3, False),
    "baddbmm": (lambda a, b: torch.baddbmm(*(x.expand(2, -1, -1) for x in (MATRIX, a, b))), 3, True),
    "one row": (lambda a, b: a[:1] @ b, 3, False),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_is_measured_is_the_product_that_was_asked_for(name, measured, first_calls_file):
    """Measurements must not change the result, also if c is a part of it."""
    product, details, accumulates = PRODUCTS[name]
    a, b = operands()
    expected = product(a, b)
    with fastgemm.patch(tune=True):
        for _ in range(2):
            torch.testing.assert_close(product(a, b), expected)
    assert len(measured) == 1
    ((key, _, _),) = json.loads(first_calls_file.read_text())["sets"][tuning.environment()]
    assert (key[13], key[7]) == (details, accumulates)
    assert key[5] == (name == "transposed")
    assert key[9] * key[10] == (2 * 33 if name == "baddbmm" else 1 if name == "one row" else 33)


def test_own_functions_are_measured_in_the_whole_process(measured):
    x, w, bias = torch.randn(40, 30), torch.randn(20, 30), torch.randn(20)
    expected = torch.relu(x @ w.t() + bias)
    fastgemm.enable(tune=True)
    for _ in range(2):
        torch.testing.assert_close(fastgemm.linear(x, w, bias, activation="relu"), expected)
        fastgemm.matmul(x, w.t(), out_dtype=torch.float32)
    assert len(measured) == 2
    fastgemm.disable()
    fastgemm.matmul(x, w[:7].t())
    assert len(measured) == 2


def test_gradients_and_other_threads_of_a_backward_pass(measured):
    x, w = torch.randn(40, 30, requires_grad=True), torch.randn(20, 30, requires_grad=True)
    with fastgemm.patch(tune=True):
        for _ in range(2):
            torch.nn.functional.linear(x, w).sum().backward()
    assert len(measured) == 3


@pytest.mark.parametrize(
    "choice", [{"level": 6}, {"level": 7}, {"kernel": "naive"}, {"invariant": True}], ids=str
)
def test_a_choice_is_not_tuned(choice, measured):
    a, b = operands()
    with fastgemm.patch(tune=True, **choice):
        a @ b
    fastgemm.enable(tune=True)
    fastgemm.matmul(a, b, **choice)
    assert not measured


def test_groups_are_not_tuned(measured):
    a, b = operands()
    fastgemm.enable(tune=True)
    try:
        fastgemm.grouped_mm(a, b.expand(3, -1, -1), torch.tensor([9, 9, 33], dtype=torch.int32))
        assert not measured
        fastgemm.grouped_mm(a.expand(3, -1, -1), b.expand(3, -1, -1))
        assert len(measured) == 1
    finally:
        fastgemm.disable()


def test_symmetric_results_and_empty_ones_are_not_tuned(measured):
    a, _ = operands()
    with fastgemm.patch(tune=True):
        a @ a.t()
        a[:0] @ a.t()
    assert not measured


class Mode(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **kwargs or {})


def counted_flops(a, b):
    with FlopCounterMode(display=False):
        a @ b


def in_fake_mode(a, b):
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        a @ b


def in_a_mode(a, b):
    with Mode():
        a @ b


def compiled_for(a, b):
    """Compiles, and runs nothing."""
    torch._dynamo.reset()
    torch._dynamo.export(lambda a, b: a @ b, aten_graph=True)(a, b)


TRACES = {
    "make_fx": lambda a, b: make_fx(torch.mm)(a, b),
    "fake make_fx": lambda a, b: make_fx(torch.mm, tracing_mode="fake")(a, b),
    "jit.trace": lambda a, b: torch.jit.trace(torch.mm, (a, b), check_trace=False),
    "export": compiled_for,
    "fake tensors": in_fake_mode,
    "a mode": in_a_mode,
    "FlopCounterMode": counted_flops,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TRACES)
def test_nothing_is_measured_while_a_program_is_traced(name, measured):
    a, b = operands()
    with fastgemm.patch(tune=True):
        TRACES[name](a, b)
        assert not measured
        a @ b
        assert len(measured) == 1


def test_compiled_graphs_use_what_was_found(measured):
    torch._dynamo.reset()
    a, b = operands()
    product = torch.compile(lambda a, b: torch.relu(a @ b), backend="aot_eager")
    with fastgemm.patch(tune=True) as routed:
        a @ b
        for _ in range(2):
            product(a, b)
    assert len(measured) == 1
    assert kernels_of(routed) == [measured[0][-1]]


def test_nothing_is_measured_during_a_capture(monkeypatch):
    gpu = torch.device("cuda", 0)
    for capturing in (True, False):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda said=capturing: said)
        assert first_calls._not_now(gpu) == capturing
        assert not first_calls._not_now(torch.device("cpu"))


def test_a_call_that_could_not_be_measured_leaves_it_to_the_next(measured, monkeypatch):
    a, b = operands()
    with fastgemm.patch(tune=True):
        with monkeypatch.context() as at_first:
            at_first.setattr(first_calls, "_not_now", lambda device: True)
            a @ b
            assert not measured
        a @ b
    assert len(measured) == 1


DTENSOR = """
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, init_device_mesh
from fastgemm._drop_in import first_calls
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
a, b = (DTensor.from_local(torch.randn(20, 20), mesh, [Replicate()]).requires_grad_() for _ in range(2))
calls, settle = [], first_calls._settle
first_calls._settle = lambda *given: (calls.append(given), settle(*given))
with fastgemm.patch(tune=True) as routed:
    (a @ b).sum().backward()
    print(routed.total, len(calls))
    torch.randn(20, 20) @ torch.randn(20, 20)
    print(len(calls), flush=True)
os._exit(0)  # docs/scale.md: a gloo process with DTensors may abort at its end
"""


def test_products_of_a_dtensor_are_not_tuned():
    done = run_forked("import os, torch, fastgemm\n" + DTENSOR)
    assert done.stdout == "3 0\n1\n", done.stderr[-3000:]


def test_deterministic_mode_raises_as_autotune_does(measured):
    a, b = operands()
    torch.use_deterministic_algorithms(True)
    try:
        with fastgemm.patch(tune=True):
            with pytest.raises(RuntimeError, match="patch with tune=True chooses by measured time"):
                a @ b
            torch.use_deterministic_algorithms(True, warn_only=True)
            with pytest.warns(UserWarning, match="tune=True chooses by measured time"):
                a @ b
        torch.use_deterministic_algorithms(True)
        with fastgemm.patch(tune=True):
            a @ b  # is known
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(measured) == 1


def test_what_autotune_measured_comes_first(measured):
    a, b = operands()
    tuning._remember(tuning.gemm_key(a, b), "blocked")
    with fastgemm.patch(tune=True) as routed:
        a @ b
    assert not measured
    assert kernels_of(routed) == ["blocked"]


def test_copies_of_a_patch_tune_and_a_replacement_does_not(measured):
    with copy.deepcopy(fastgemm.patch(tune=True)):
        torch.mm(*operands())
    fastgemm.enable(tune=True)
    fastgemm.enable()
    torch.mm(*operands(n=22))
    assert len(measured) == 1


VARIABLE = """
import torch, fastgemm
from fastgemm._drop_in import enable
enable.tune_by_environment()
enable.enable_by_environment()
a, b = torch.randn(20, 30), torch.randn(30, 40)
before = fastgemm._introspect.remembered_count()
fastgemm.matmul(a, b)
own = fastgemm._introspect.remembered_count() - before
a[:9] @ b
print(own, fastgemm._introspect.remembered_count() - before - own)
fastgemm.enable()
fastgemm.disable()
fastgemm.matmul(a[:5], b)
print(fastgemm._introspect.remembered_count() - before - own)
"""


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"FASTGEMM_TUNE": "1"}, "1 0\n1\n"),
        ({"FASTGEMM_TUNE": "1", "FASTGEMM_PATCH": "1"}, "1 1\n2\n"),
        ({"FASTGEMM_TUNE": "0", "FASTGEMM_PATCH": "1"}, "0 0\n0\n"),
        ({"FASTGEMM_TUNE": "yes"}, "0 0\n0\n"),
    ],
)
def test_the_environment_variable(environment, expected):
    done = run_forked(VARIABLE, **environment)
    assert done.stdout == expected, done.stderr[-3000:]
    told = "FASTGEMM_TUNE must be 1 or 0, got 'yes': ignored" in done.stderr
    assert told == (environment["FASTGEMM_TUNE"] == "yes")


def test_a_tuned_product_runs_no_python(measured, monkeypatch):
    """The plan tells that nothing is to be measured."""
    a, b = operands()
    with fastgemm.patch(tune=True):
        a @ b
        fastgemm._introspect.measure_first_calls(lambda *given: pytest.fail("called"))
        try:
            planned = fastgemm._introspect.decisions_made()
            for _ in range(3):
                a @ b
            assert fastgemm._introspect.decisions_made() == planned
        finally:
            fastgemm._introspect.measure_first_calls(first_calls.measure)
