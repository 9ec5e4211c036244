"""Tests calls that fastgemm.patch leaves to torch, the reported reasons and counts, and that errors stay
torch's."""

import math

import fastgemm
import pytest
import torch
from patches import ELSEWHERE, needs_library
from reference import assert_right, every_device, expected_gemm, random_tensor
from torch.nn import functional

pytestmark = [every_device, needs_library]


def fake():
    mode = torch._subclasses.FakeTensorMode()
    return mode.from_tensor(torch.randn(3, 4)), mode.from_tensor(torch.randn(4, 3))


class Own(torch.Tensor):
    pass


# The library gets only products of dense matrices. It reports only these as passed on.
LEFT_TO_TORCH = {
    "int8": lambda: (random_tensor(3, 4, dtype=torch.int8), random_tensor(4, 3, dtype=torch.int8)),
    "int16": lambda: (torch.ones(3, 4, dtype=torch.int16), torch.ones(4, 3, dtype=torch.int16)),
    "sparse_coo": lambda: (torch.randn(3, 4).to_sparse(), torch.randn(4, 3)),
    "sparse_csr": lambda: (torch.randn(3, 4).to_sparse_csr(), torch.randn(4, 3)),
    "meta": lambda: (torch.randn(3, 4, device="meta"), torch.randn(4, 3, device="meta")),
    "FakeTensor": fake,
    "a matrix and a vector": lambda: (torch.randn(3, 4), torch.randn(4)),
    "two vectors": lambda: (torch.randn(4), torch.randn(4)),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("what", LEFT_TO_TORCH)
def test_what_is_left_to_torch(what, device):
    if device == "cuda" and "int" in what:
        pytest.skip("torch has no such product on a GPU")
    a, b = LEFT_TO_TORCH[what]()
    torchs = a @ b
    with fastgemm.patch() as routed:
        result = a @ b
    assert type(result) is type(torchs)
    assert (result.dtype, result.layout) == (torchs.dtype, torchs.layout)
    assert what in ("meta", "FakeTensor") or torch.equal(result.to_dense(), torchs.to_dense())
    assert not routed.total
    assert routed.passed_on == ({("mm", f"dtype {what}"): 1} if "int" in what else {})


def test_a_subclass_that_is_a_plain_tensor_inside_is_routed(device):
    a, b = torch.randn(3, 4), torch.randn(4, 3)
    with fastgemm.patch(level=1) as routed:
        result = a.as_subclass(Own) @ b
    assert type(result) is Own
    assert routed.kernels == {"naive": 1}
    assert torch.equal(result.as_subclass(torch.Tensor), fastgemm.matmul(a, b, level=1))


def outcome(call):
    """The names and values of a result, or torch's error message."""
    try:
        result = call()
    except RuntimeError as error:
        return str(error)
    return result.names, result.rename(None).tolist()


needs_names = pytest.mark.skipif(not hasattr(torch.Tensor, "names"), reason="this torch has no named tensors")


@needs_names
@pytest.mark.filterwarnings("ignore:Named tensors")
@pytest.mark.parametrize("which", ["a", "b", "c", "out"])
def test_products_with_names_are_passed_on(which, device):
    """torch.addmm receives the names, but the operator @ removes them first."""
    operands = {
        "a": torch.randn(3, 4),
        "b": torch.randn(4, 3),
        "c": torch.randn(3, 3),
        "out": torch.empty(3, 3),
    }
    operands[which] = operands[which].refine_names("row", "column")

    def product():
        out = operands["out"] if which == "out" else None
        return torch.addmm(operands["c"], operands["a"], operands["b"], out=out)

    torchs = outcome(product)
    with fastgemm.patch() as routed:
        assert outcome(product) == torchs
    assert routed.passed_on == {("addmm", "a tensor with names"): 1}
    assert not routed.total


def test_inference_mode(device):
    x, w, bias = torch.randn(2, 6, 8), torch.randn(5, 8), torch.randn(5)
    with torch.inference_mode(), fastgemm.patch() as routed:
        x, w = x.clone(), w.clone()
        result = functional.linear(x, w, bias)
        product = x @ w.t()
        attention = torch.einsum("bij,bkj->bik", x, x)
    assert routed.total == 3
    assert not routed.passed_on
    assert result.is_inference()
    assert_right(result, expected_gemm(x, w.t(), bias.broadcast_to(2, 6, 5)))
    assert_right(product, expected_gemm(x, w.t()))
    assert_right(attention, expected_gemm(x, x.mT))
    # Outside of the mode torch does not decompose products of such tensors before the patch sees them.
    with fastgemm.patch() as routed:
        outside = functional.linear(x, w)
    assert routed.total == 1
    assert_right(outside, expected_gemm(x, w.t()))


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.mm(torch.randn(2, 3), torch.randn(4, 5)),
        lambda: torch.mm(torch.randn(2, 3), torch.randn(3, 5, dtype=torch.complex64)),
        lambda: torch.mm(torch.randn(2, 3, dtype=torch.complex64), torch.randn(3, 5)),
        lambda: torch.addmm(torch.randn(5).double(), torch.randn(2, 3), torch.randn(3, 5)),
        lambda: torch.mm(torch.randn(2, 3), torch.randn(3, 5), out=torch.empty(2, 5).double()),
        lambda: torch.mm(torch.ones(2, 3, dtype=torch.bool), torch.ones(3, 5, dtype=torch.bool)),
        lambda: torch.randn(5).addmm_(torch.randn(2, 3), torch.randn(3, 5)),
        lambda: torch.addmm(torch.randn(5), torch.randn(2, 3), torch.randn(3, 5), alpha=1j),
        lambda: torch.addmm(torch.randn(5), torch.randn(2, 3), torch.randn(3, 5), beta=1e40),
        lambda: torch.baddbmm(torch.randn(5), torch.randn(1, 2, 3), torch.randn(1, 3, 5), alpha=-1e40),
        lambda: torch.addmm(
            torch.randn(5).half(), torch.ones(2, 3).half(), torch.ones(3, 5).half(), beta=1e40
        ),
        lambda: torch.ones(2, 5).addmm_(torch.ones(2, 3), torch.ones(3, 5), alpha=2 - 1j),
        lambda: torch.matmul(torch.randn(2, 3), torch.randn(3, 5), out=torch.empty(2, 5).double()),
        lambda: torch.matmul(torch.randn(4, 2, 3), torch.randn(3, 5), out=torch.empty(4, 2, 5).half()),
        lambda: torch.matmul(torch.randn(2, 3), torch.randn(3), out=torch.empty(2).double()),
        lambda: torch.linalg.multi_dot([torch.ones(2, 3), torch.ones(3, 4)], out=torch.empty(2, 4).int()),
    ],
)
@pytest.mark.parametrize("inference", [False, True], ids=["", "inference mode"])
def test_errors_are_torchs_own(call, inference, device):
    with torch.inference_mode(inference):
        with pytest.raises(Exception) as torchs:
            call()
        with fastgemm.patch() as routed, pytest.raises(torchs.type) as error:
            call()
    assert str(error.value) == str(torchs.value)
    assert not routed.total


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize(
    "scale",
    [2 + 0j, 0j, True, 2**31 - 1, -(2**31), 3e38, 1e-46, 1e-30, math.inf, -math.inf, math.nan],
    ids=str,
)
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_scales_of_every_kind(name, scale, dtype, device):
    """The result must be right, or the error must be torch's."""
    if device == "cuda" and not dtype.is_floating_point:
        pytest.skip("torch has no such product on a GPU")
    # Integers, so that only the scaling rounds. They have one sign, so nothing cancels.
    a, b, c = (torch.randint(0, 4, shape).to(dtype) for shape in ((3, 4), (4, 5), (3, 5)))
    try:
        expected = torch.addmm(c, a, b, **{name: scale})
    except RuntimeError as torchs:
        with fastgemm.patch(), pytest.raises(type(torchs)) as error:
            torch.addmm(c, a, b, **{name: scale})
        assert str(error.value) == str(torchs)
        return
    with fastgemm.patch() as routed:
        result = torch.addmm(c, a, b, **{name: scale})
    torchs_ran = device == "cpu" and (not routed.total or "torch" in routed.kernels)
    if scale == 3e38 and not torchs_ran:
        # cuBLAS and MKL may scale an operand, and infinity times 0 is NaN
        expected = torch.addmm(c.double(), a.double(), b.double(), **{name: scale}).to(dtype)
    torch.testing.assert_close(result, expected, equal_nan=True)


def test_a_failure_of_fastgemm_is_not_hidden(device):
    kernel = {"cpu": "microkernel", "cuda": "bf16x6"}[device]
    a = torch.randn(600, 600)
    fastgemm.tuning.limit_workspace(0)
    try:
        with pytest.raises(torch.OutOfMemoryError, match=kernel), fastgemm.patch(kernel=kernel):
            a @ a
    finally:
        fastgemm.tuning.limit_workspace(None)


def test_counts_as_text_and_data(device):
    a = torch.randn(30, 40)
    with fastgemm.patch() as routed:
        assert str(routed) == "routed 0"
        for _ in range(3):
            a @ a.t()
        torch.bmm(a[None], a.t()[None])
        torch.addmm(a[0, :30], a, a.t(), alpha=1e-50)
    ops, kernels, passed_on = str(routed).splitlines()
    assert ops == "routed 4: mm 3, bmm 1"
    assert kernels.startswith("kernels: ")
    assert passed_on == "passed on 1 addmm: scales that float32 does not hold"
    data = routed.as_dict()
    assert data["ops"] == {"mm": 3, "bmm": 1}
    assert sum(data["kernels"].values()) == routed.total == 4
    assert data["passed_on"] == [{"op": "addmm", "reason": "scales that float32 does not hold", "calls": 1}]


def test_what_was_passed_on_is_not_listed_as_routed(device):
    a = torch.randn(6, 7)
    with fastgemm.patch(kernel=ELSEWHERE[device]) as routed:
        torch.mm(a, a.t())
        torch.bmm(a[None], a.t()[None])
    assert list(routed.ops) == list(routed.kernels) == []
    assert routed.as_dict()["ops"] == routed.as_dict()["kernels"] == {}
    assert str(routed).startswith("routed 0\npassed on")
    with fastgemm.patch() as routed:
        torch.bmm(a[None], a.t()[None])
        with pytest.raises(RuntimeError):
            torch.mm(a, a)
    assert list(routed.ops) == ["bmm"]


def test_a_call_that_torch_refuses_says_nothing_of_the_next(device):
    a, complex_b = torch.randn(4, 5), torch.randn(5, 6, dtype=torch.complex64)
    with fastgemm.patch() as routed:
        with pytest.raises(RuntimeError):
            torch.mm(a, complex_b)
        torch.mm(a, complex_b.real.contiguous())
    assert routed.ops == {"mm": 1}


def test_an_imaginary_scale_is_torchs(device):
    a, c = torch.randn(4, 4, dtype=torch.complex64), torch.randn(4, 4, dtype=torch.complex64)
    expected = torch.addmm(c, a, a, alpha=2j)
    with fastgemm.patch() as routed:
        assert torch.equal(torch.addmm(c, a, a, alpha=2j), expected)
    assert routed.passed_on == {("addmm", "scales that complex64 does not hold"): 1}


def test_multihead_attention(device):
    attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 5, 8)
    expected = attention(x, x, x)[0]
    with fastgemm.patch() as routed:
        torch.testing.assert_close(attention(x, x, x)[0], expected)
    assert routed.total == 4  # input and output projections, scores, and values
    assert not routed.passed_on
    if device != "cpu":
        return  # these tests run inside torch.device() there, which disables the path below
    with fastgemm.patch() as routed, torch.no_grad():
        torch.testing.assert_close(attention.eval()(x, x, x)[0], expected)
    # torch fuses it into one op. Products inside of this op are routed as well.
    assert routed.total == 4
    assert not routed.passed_on
