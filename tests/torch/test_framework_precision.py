"""Tests that torch's products are candidates only if torch's flags give the requested precision."""

import copy

import fastgemm
import pytest
import torch
from fastgemm import _override_library, tuning
from processes import run_forked
from reference import DEVICES, check_gemm, kernels_that_ran


def set_by_name(precision):
    torch.backends.mkldnn.matmul.fp32_precision = precision


WAYS = {"tf32": set_by_name, "medium": torch.set_float32_matmul_precision}


@pytest.fixture(params=WAYS)
def reduced_precision(request):
    """Sets the precision by torch.backends, or by the function that most programs use."""
    matmuls = torch.backends.mkldnn.matmul, torch.backends.cuda.matmul
    before = [matmul.fp32_precision for matmul in matmuls]
    WAYS[request.param](request.param)
    yield
    torch.set_float32_matmul_precision("highest")
    for matmul, precision in zip(matmuls, before, strict=True):
        matmul.fp32_precision = precision


def test_the_torch_row_raises_when_flags_allow_rounding(reduced_precision):
    a = torch.randn(64, 64)
    with pytest.raises(RuntimeError, match="fp32_precision"):
        fastgemm.matmul(a, a, kernel="torch", precision="ieee")


def ran_and_is(call, value):
    """The kernels that a call runs. Its result must equal ``expected`` bit for bit."""
    results = []
    ran = kernels_that_ran(lambda: results.append(call()))
    assert torch.equal(results[0], value)
    return ran


def test_the_fastest_kernel_is_torchs_where_it_rounds(reduced_precision):
    """In every operation, the product must equal torch's."""
    a, b, c = torch.randn(300, 400), torch.randn(400, 200), torch.randn(300, 200)
    weight, bias, x = b.t().contiguous(), torch.randn(200), torch.randn(3, 100, 400)
    out, layer = torch.empty(300, 200), torch.nn.Linear(400, 200)
    converted = fastgemm.nn.convert(copy.deepcopy(layer))
    linear = torch.nn.functional.linear
    calls = [
        (lambda: fastgemm.matmul(a, b), a @ b),
        (lambda: fastgemm.matmul(a, b, level=7), a @ b),
        (lambda: fastgemm.matmul(a, b, kernel="torch"), a @ b),
        (lambda: fastgemm.matmul(a, b, out=out), a @ b),
        (lambda: fastgemm.matmul(x, x.mT), x @ x.mT),
        (lambda: fastgemm.gemm(a, b, c, alpha=2, beta=0.5), torch.addmm(c, a, b, alpha=2, beta=0.5)),
        (lambda: fastgemm.gemm(a, weight, trans_b=True), a @ weight.t()),
        (lambda: fastgemm.linear(a, weight, bias), linear(a, weight, bias)),
        (lambda: fastgemm.linear(a, weight, bias, activation="relu"), (a @ b + bias).relu()),
        (lambda: fastgemm.nn.linear(x, weight, bias), linear(x, weight, bias)),
        (lambda: converted(a).detach(), layer(a).detach()),
    ]
    for call, value in calls:
        assert ran_and_is(call, value) == ["torch"]
    if _override_library.register():
        with fastgemm.patch() as routed:
            assert torch.equal(a @ b, calls[0][1])
        assert routed.kernels == {"torch": 1}


def test_all_else_stays_ieee(reduced_precision):
    a, b = torch.randn(300, 400), torch.randn(400, 200)
    reference = a.double() @ b.double()
    bound = 400 * 2.0**-24 * (a.double().abs() @ b.double().abs())

    def assert_ieee(call):
        results = []
        assert "torch" not in kernels_that_ran(lambda: results.append(call()))
        assert ((results[0].double() - reference).abs() <= bound).all()

    for level in range(1, 7):
        assert_ieee(lambda level=level: fastgemm.matmul(a, b, level=level))
    assert_ieee(lambda: fastgemm.matmul(a, b, precision="ieee"))
    assert_ieee(lambda: fastgemm.matmul(a, b, invariant=True))
    assert_ieee(lambda: fastgemm.linear(a, b.t(), precision="ieee"))
    for choice in {"precision": "ieee"}, {"level": 5}:
        with fastgemm.patch(**choice):
            assert_ieee(lambda: torch.mm(a, b))


def test_gradients_follow_the_flags(reduced_precision):
    a, b = (torch.randn(70, 70, requires_grad=True) for _ in range(2))
    seed = torch.randn(70, 70)
    expected = torch.autograd.grad(a @ b, (a, b), seed)
    for precision in None, "ieee":
        got = torch.autograd.grad(fastgemm.matmul(a, b, precision=precision), (a, b), seed)
        ran = kernels_that_ran(
            lambda p=precision: torch.autograd.grad(fastgemm.matmul(a, b, precision=p), (a, b), seed)
        )
        assert (ran == ["torch"] * 3) == (precision is None)
        if precision is None:
            assert all(torch.equal(x, y) for x, y in zip(got, expected, strict=True))


def test_compiled_code_follows_the_flags(reduced_precision):
    a = torch.randn(70, 70)
    compiled = torch.compile(lambda a: fastgemm.matmul(a, a), fullgraph=True, backend="aot_eager")
    assert ran_and_is(lambda: compiled(a), a @ a) == ["torch"]
    torch.backends.mkldnn.matmul.fp32_precision = "ieee"
    tuning._remember(tuning.gemm_key(a, a), "packed")
    try:
        assert kernels_that_ran(lambda: compiled(a)) == ["packed"]
    finally:
        tuning.clear_cache()


@pytest.mark.parametrize("flag", ["torch.backends", "torch.backends.mkldnn"])
def test_a_flag_that_is_inherited(flag):
    """A flag for all backends, or for all ops of oneDNN, also applies to oneDNN's products, unless these have
    their own flag."""
    code = f"""
import torch, fastgemm
from reference import kernels_that_ran
a = torch.randn(70, 70)
{flag}.fp32_precision = "tf32"
assert torch.backends.mkldnn.matmul.fp32_precision == "tf32"
assert kernels_that_ran(lambda: fastgemm.matmul(a, a)) == ["torch"]
torch.backends.mkldnn.matmul.fp32_precision = "ieee"
assert kernels_that_ran(lambda: fastgemm.matmul(a, a, kernel="torch", precision="ieee")) == ["torch"]
"""
    done = run_forked(code)
    assert done.returncode == 0, done.stderr[-2000:]


def test_float64_and_complex_products_do_not_depend_on_the_flags(reduced_precision):
    """The same holds in torch, because oneDNN multiplies no complex numbers."""
    a = torch.randn(64, 64, dtype=torch.float64)
    torch.testing.assert_close(fastgemm.matmul(a, a, kernel="torch"), a @ a)
    a = torch.randn(70, 70, dtype=torch.complex64)
    assert ran_and_is(lambda: fastgemm.matmul(a, a, kernel="torch", precision="ieee"), a @ a) == ["torch"]
    got, value = fastgemm.matmul(a, a), a.to(torch.complex128) @ a.to(torch.complex128)
    torch.testing.assert_close(got, value.to(torch.complex64))


def test_what_is_measured_under_the_flags_is_ieee(reduced_precision):
    a = torch.randn(40, 40)
    try:
        assert "torch" not in [t.kernel for t in fastgemm.autotune(a, a, budget=0.01, save=False).timings]
    finally:
        tuning.clear_cache()


@pytest.fixture
def asked():
    """Counts how often the library reads torch's flags, which takes Python's interpreter lock."""
    calls = []

    def computes(*what: str) -> bool:
        calls.append(what)
        return fastgemm._torch_computes(*what)

    fastgemm._introspect.set_framework_probe(computes)
    yield calls
    if not _override_library._call("use_in_eager_mode"):  # which answers in C++ again
        fastgemm._introspect.set_framework_probe(fastgemm._torch_computes)


def test_flags_are_asked_for_only_where_they_decide(asked):
    a, b = torch.randn(40, 30), torch.randn(30, 20)
    key = tuning.gemm_key(a, b)
    try:
        for choice, kernel, times in (
            ({"level": 1}, "naive", 0),
            ({"precision": "ieee"}, "naive", 0),
            ({"precision": "ieee"}, "torch", 1),
            ({}, "naive", 1),
        ):
            tuning._remember(key, kernel)
            fastgemm.matmul(a, b, **choice)  # decides
            asked.clear()
            for _ in range(5):
                fastgemm.matmul(a, b, **choice)
            assert len(asked) == 5 * times, (choice, kernel)
    finally:
        tuning.clear_cache()


WITHOUT_PYTHON = """
import sys, threading, torch, fastgemm
from fastgemm import tuning
a, b = torch.randn(40, 30), torch.randn(30, 20)
tuning._remember(tuning.gemm_key(a, b), "torch")
seen = []
sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_name))
with fastgemm.patch() as routed:
    c = a @ b, fastgemm.matmul(a, b)
sys.setprofile(None)
assert routed.kernels == {"torch": 1}, routed
assert "matmul" in seen and "torch_computes" not in seen, seen
"""


@pytest.mark.skipif(
    not fastgemm._override_library.use_in_eager_mode(), reason="there is no library for this torch"
)
def test_the_library_of_overrides_reads_the_flags_without_python():
    """Runs in a separate process, because a test above replaced the function in this one."""
    done = run_forked(WITHOUT_PYTHON)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_decision_that_was_kept_follows_the_flags():
    a, b = torch.randn(40, 30), torch.randn(30, 20)
    tuning._remember(tuning.gemm_key(a, b), "torch")
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision

    def ran():
        return kernels_that_ran(lambda: fastgemm.matmul(a, b, precision="ieee"))

    try:
        assert ran() + ran() == ["torch", "torch"]
        matmul.fp32_precision = "bf16"
        assert "torch" not in ran()
        matmul.fp32_precision = before
        assert ran() == ["torch"]
    finally:
        matmul.fp32_precision = before
        tuning.clear_cache()


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
@pytest.mark.parametrize(("dtype", "flag"), [(torch.float16, "fp16"), (torch.bfloat16, "bf16")])
def test_on_a_gpu_the_torch_row_raises_when_flags_round_partial_sums(dtype, flag, monkeypatch):
    name = f"allow_{flag}_reduced_precision_reduction"
    monkeypatch.setattr(torch.backends.cuda.matmul, name, True)
    a, b = (torch.randn(64, 64, device="cuda").to(dtype) for _ in range(2))
    with pytest.raises(RuntimeError, match="partial sums"):
        fastgemm.matmul(a, b, kernel="torch")
    check_gemm(a, b)  # the default chooses another kernel
