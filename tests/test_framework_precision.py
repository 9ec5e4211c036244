"""torch's own products are candidates only while its flags give what was asked for."""

import fastgemm
import pytest
import torch
from reference import DEVICES, check_gemm


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
