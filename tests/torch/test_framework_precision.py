"""torch's own products are candidates only while its flags give what was asked for."""

import fastgemm
import pytest
import torch
from fastgemm import tuning
from processes import run_python
from reference import DEVICES, check_gemm, kernels_that_ran


@pytest.fixture
def reduced_precision():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


def test_the_torch_row_raises_when_flags_allow_rounding(reduced_precision):
    a = torch.randn(64, 64)
    with pytest.raises(RuntimeError, match="fp32_precision"):
        fastgemm.matmul(a, a, kernel="torch")


def test_the_fastest_kernel_stays_ieee(reduced_precision):
    a, b = torch.randn(300, 400), torch.randn(400, 200)
    reference = a.double() @ b.double()
    bound = 400 * 2.0**-24 * (a.double().abs() @ b.double().abs())
    assert ((fastgemm.matmul(a, b).double() - reference).abs() <= bound).all()


def test_float64_does_not_depend_on_the_flags(reduced_precision):
    a = torch.randn(64, 64, dtype=torch.float64)
    torch.testing.assert_close(fastgemm.matmul(a, a, kernel="torch"), a @ a)


def test_the_torch_row_runs_again_when_the_flags_are_reset():
    a = torch.randn(64, 64)
    torch.testing.assert_close(fastgemm.matmul(a, a, kernel="torch"), a @ a)


@pytest.fixture
def asked():
    """How often the library asks for torch's flags, which takes the interpreter's lock."""
    calls = []

    def computes(*what: str) -> bool:
        calls.append(what)
        return fastgemm._torch_computes(*what)

    fastgemm._introspect.set_framework_probe(computes)
    yield calls
    fastgemm._introspect.set_framework_probe(fastgemm._torch_computes)


def test_flags_are_asked_for_only_where_they_decide(asked):
    a, b = torch.randn(40, 30), torch.randn(30, 20)
    key = tuning.gemm_key(a, b)
    try:
        for kernel, times in (("naive", 0), ("torch", 1)):
            tuning._remember(key, kernel)
            fastgemm.matmul(a, b)  # decides
            asked.clear()
            for _ in range(5):
                fastgemm.matmul(a, b)
            assert len(asked) == 5 * times, kernel
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


@pytest.mark.skipif(not fastgemm._overrides.use_in_eager_mode(), reason="there is no library for this torch")
def test_the_library_of_overrides_reads_the_flags_without_python():
    """In a process of its own: in this one a test above has set another answer."""
    done = run_python(["-c", WITHOUT_PYTHON])
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_decision_that_was_kept_follows_the_flags():
    a, b = torch.randn(40, 30), torch.randn(30, 20)
    tuning._remember(tuning.gemm_key(a, b), "torch")
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    try:
        assert kernels_that_ran(lambda: [fastgemm.matmul(a, b) for _ in range(2)]) == ["torch", "torch"]
        matmul.fp32_precision = "bf16"
        assert "torch" not in kernels_that_ran(lambda: fastgemm.matmul(a, b))
        matmul.fp32_precision = before
        assert kernels_that_ran(lambda: fastgemm.matmul(a, b)) == ["torch"]
    finally:
        matmul.fp32_precision = before
        tuning.clear_cache()


def test_addition_has_no_level_seven():
    a = torch.randn(4)
    with pytest.raises(RuntimeError, match="level 7"):
        fastgemm.add(a, a, level=7)


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
@pytest.mark.parametrize(("dtype", "flag"), [(torch.float16, "fp16"), (torch.bfloat16, "bf16")])
def test_on_a_gpu_the_torch_row_raises_when_flags_round_partial_sums(dtype, flag, monkeypatch):
    name = f"allow_{flag}_reduced_precision_reduction"
    monkeypatch.setattr(torch.backends.cuda.matmul, name, True)
    a, b = (torch.randn(64, 64, device="cuda").to(dtype) for _ in range(2))
    with pytest.raises(RuntimeError, match="partial sums"):
        fastgemm.matmul(a, b, kernel="torch")
    check_gemm(a, b)  # the default takes another
