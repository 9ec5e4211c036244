"""fastgemm.patch: what it leaves to torch, and why; what went where is told; errors stay torch's own."""

from __future__ import annotations

import math

import fastgemm
import pytest
import torch
from patches import BAD_CHOICES, ELSEWHERE
from reference import assert_right, every_device, expected_gemm, kernels_that_ran, random_tensor
from torch.nn import functional

pytestmark = every_device


def fake():
    mode = torch._subclasses.FakeTensorMode()
    return mode.from_tensor(torch.randn(3, 4)), mode.from_tensor(torch.randn(4, 3))


class Own(torch.Tensor):
    pass


PASSED_ON = {
    "dtype int8": lambda: (random_tensor(3, 4, dtype=torch.int8), random_tensor(4, 3, dtype=torch.int8)),
    "dtype int16": lambda: (torch.ones(3, 4, dtype=torch.int16), torch.ones(4, 3, dtype=torch.int16)),
}


def outcome(call):
    """The names and values of a result, or torch's words."""
    try:
        result = call()
    except RuntimeError as error:
        return str(error)
    return result.names, result.rename(None).tolist()


def not_routed(a, b, has_values=True):
    """The counts of a patch in which a @ b is of torch's type and torch's alone."""
    torchs = a @ b
    with fastgemm.patch() as routed:
        result = a @ b
    assert type(result) is type(torchs)
    assert result.dtype == torchs.dtype
    assert result.layout == torchs.layout
    if has_values:
        assert torch.equal(result.to_dense(), torchs.to_dense())
    assert not routed.total
    return routed


@pytest.mark.parametrize("why", PASSED_ON)
def test_what_is_passed_on(why, device):
    if device == "cuda" and "int" in why:
        pytest.skip("torch has no such product on a GPU")
    routed = not_routed(*PASSED_ON[why]())
    assert routed.passed_on == {("mm", why): 1}


# Nothing of these is multiplied by torch's products of dense matrices, so that no patch sees them.
NEVER_SEEN = {
    "sparse_coo": lambda: (torch.randn(3, 4).to_sparse(), torch.randn(4, 3)),
    "sparse_csr": lambda: (torch.randn(3, 4).to_sparse_csr(), torch.randn(4, 3)),
    "meta": lambda: (torch.randn(3, 4, device="meta"), torch.randn(4, 3, device="meta")),
    "FakeTensor": fake,
    "a matrix and a vector": lambda: (torch.randn(3, 4), torch.randn(4)),
    "two vectors": lambda: (torch.randn(4), torch.randn(4)),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("what", NEVER_SEEN)
def test_what_no_patch_sees(what, device):
    routed = not_routed(*NEVER_SEEN[what](), has_values=what not in ("meta", "FakeTensor"))
    assert not routed.passed_on


def test_a_subclass_that_is_a_plain_tensor_inside_is_routed(device):
    a, b = torch.randn(3, 4).as_subclass(Own), torch.randn(4, 3)
    with fastgemm.patch(level=1) as routed:
        result = a @ b
    assert type(result) is Own
    assert torch.equal(
        result.as_subclass(torch.Tensor), fastgemm.matmul(a.as_subclass(torch.Tensor), b, level=1)
    )
    assert routed.kernels == {"naive": 1}


def batches_of_unequal_matrices():
    a = torch.nested.nested_tensor([torch.randn(3, 4), torch.randn(5, 4)])
    b, dense = torch.nested.nested_tensor([torch.randn(4, 2), torch.randn(4, 6)]), torch.randn(2, 4, 3)
    return (a, b), (a, dense)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
def test_batches_of_unequal_matrices(device):
    """On a CPU torch multiplies one after the other, and each of these products is routed."""
    for operands in batches_of_unequal_matrices():
        torchs = torch.bmm(*operands)
        with fastgemm.patch() as routed:
            result = torch.bmm(*operands)
        assert result.is_nested
        for mine, torch_s in zip(result.unbind(), torchs.unbind(), strict=True):
            torch.testing.assert_close(mine, torch_s)
        assert device == "cuda" or routed.ops == {"mm": 2}
        assert not routed.passed_on


@pytest.fixture
def as_mode(monkeypatch):
    """Patches are modes here, as without a library for this torch: they are shown every op."""
    monkeypatch.setattr("fastgemm._patch._without_library", lambda: True)


PASSED_ON_BY_A_MODE = {
    **{why.removeprefix("dtype "): make for why, make in PASSED_ON.items()},
    **NEVER_SEEN,
    "Own": lambda: (torch.randn(3, 4).as_subclass(Own), torch.randn(4, 3)),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("why", PASSED_ON_BY_A_MODE)
def test_what_a_mode_passes_on(why, device, as_mode):
    if device == "cuda" and why in ("int8", "int16"):
        pytest.skip("torch has no such product on a GPU")
    routed = not_routed(*PASSED_ON_BY_A_MODE[why](), has_values=why not in ("meta", "FakeTensor"))
    ((_, reason),) = routed.passed_on
    assert why in reason


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
def test_nested_tensors_in_a_mode(device, as_mode):
    for operands in batches_of_unequal_matrices():
        torchs = torch.bmm(*operands)
        with fastgemm.patch() as routed:
            result = torch.bmm(*operands)
        assert result.is_nested
        assert all(map(torch.equal, result.unbind(), torchs.unbind()))
        assert routed.passed_on == {("bmm", "a nested tensor"): 1}


def test_what_is_fused_in_a_mode(device, as_mode):
    q = torch.randn(2, 3, 16, 8)
    with fastgemm.patch() as routed:
        functional.scaled_dot_product_attention(q, q, q)
    assert not routed.total
    ((op, reason),) = routed.passed_on
    assert "attention" in op
    assert "sdpa_kernel" in reason
    if device != "cpu":
        return  # torch.device(), in which these tests run there, keeps torch from the path below
    attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(3, 5, 8)
    expected = attention(x, x, x)[0]
    with fastgemm.patch() as routed, torch.no_grad():
        torch.testing.assert_close(attention(x, x, x)[0], expected)
    assert not routed.total
    assert [op for op, _ in routed.passed_on] == ["_native_multi_head_attention"]


needs_names = pytest.mark.skipif(not hasattr(torch.Tensor, "names"), reason="this torch has no named tensors")


@needs_names
@pytest.mark.filterwarnings("ignore:Named tensors")
def test_names_are_torchs_affair(device):
    a, b = torch.randn(3, 4).refine_names("row", "column"), torch.randn(4, 3)
    with fastgemm.patch():
        result = a @ b  # takes the names off before, and gives the result its own
    assert result.names == ("row", None)
    torch.testing.assert_close(result.rename(None), a.rename(None) @ b)


@needs_names
@pytest.mark.filterwarnings("ignore:Named tensors")
@pytest.mark.parametrize("which", ["a", "b", "c", "out"])
def test_products_with_names_are_passed_on(which, device):
    """As torch.addmm gets them: the operator @ takes the names off before. No mode does: torch refuses."""
    if not fastgemm._overrides.register():
        pytest.skip("there is no library for this torch")
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


def test_fused_attention_is_torchs_and_the_mathematical_form_routed(device):
    q = torch.randn(2, 3, 16, 8)
    attention = functional.scaled_dot_product_attention
    with fastgemm.patch() as routed:
        fused = attention(q, q, q)
    assert not routed.total
    assert not routed.passed_on
    with (
        fastgemm.patch() as routed,
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    ):
        mathematical = attention(q, q, q)
    assert routed.ops == {"bmm": 2}
    torch.testing.assert_close(fused, mathematical)


def test_multihead_attention(device):
    attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 5, 8)
    expected = attention(x, x, x)[0]
    with fastgemm.patch() as routed:
        torch.testing.assert_close(attention(x, x, x)[0], expected)
    assert routed.total == 4  # projections in and out, scores, and values
    assert not routed.passed_on
    if device != "cpu":
        return  # torch.device(), in which these tests run there, keeps torch from the path below
    with fastgemm.patch() as routed, torch.no_grad():
        torch.testing.assert_close(attention.eval()(x, x, x)[0], expected)
    assert routed.total == 4  # inside of the one op that torch makes of it
    assert not routed.passed_on


@pytest.mark.usefixtures("each_way")
def test_inference_mode(device):
    x, w, bias = torch.randn(2, 6, 8), torch.randn(5, 8), torch.randn(5)
    with torch.inference_mode(), fastgemm.patch() as routed:
        result = functional.linear(x, w, bias)
        product = x @ w.t()
        attention = torch.einsum("bij,bkj->bik", x, x)
    assert routed.total == 3
    assert not routed.passed_on
    assert result.is_inference()
    assert_right(result, expected_gemm(x, w.t(), bias.broadcast_to(2, 6, 5)))
    assert_right(product, expected_gemm(x, w.t()))
    assert_right(attention, expected_gemm(x, x.mT))


def test_a_kernel_by_name_runs_even_if_it_is_torchs(device):
    a = torch.randn(30, 30)
    with fastgemm.patch(kernel="torch"):
        assert kernels_that_ran(lambda: a @ a) == ["torch"]


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.mm(torch.randn(2, 3), torch.randn(4, 5)),
        lambda: torch.mm(torch.randn(1, 2, 3), torch.randn(3, 5)),
        lambda: torch.bmm(torch.randn(1, 2, 3), torch.randn(4, 3, 5)),
        lambda: torch.bmm(torch.randn(2, 3), torch.randn(3, 5)),
        lambda: torch.mm(torch.randn(2, 3), torch.randn(3, 5, dtype=torch.float64)),
        lambda: torch.addmm(torch.randn(3, 3), torch.randn(2, 3), torch.randn(3, 5)),
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
def test_errors_are_torchs_own(call, inference, device, each_way):
    with torch.inference_mode(inference):
        with pytest.raises(Exception) as torchs:
            call()
        with fastgemm.patch() as routed, pytest.raises(torchs.type) as error:
            call()
    assert str(error.value) == str(torchs.value)
    assert not routed.total


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int32, torch.int64], ids=str
)
@pytest.mark.parametrize(
    "scale",
    [2 + 0j, 0j, True, 2**31 - 1, -(2**31), 3e38, 1e-46, 1e-30, math.inf, -math.inf, math.nan],
    ids=str,
)
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_scales_of_every_kind(name, scale, dtype, device, each_way):
    """Right values, or torch's error."""
    if device == "cuda" and not dtype.is_floating_point:
        pytest.skip("torch has no such product on a GPU")
    # Whole numbers, so that only the scaling rounds, and of one sign, so that nothing cancels.
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


@pytest.mark.usefixtures("each_way")
def test_inference_tensors_outside_of_inference_mode(device):
    """In a mode torch does not take their products apart before the patch sees them."""
    with torch.inference_mode():
        x, w = torch.randn(2, 6, 8), torch.randn(5, 8)
    with fastgemm.patch() as routed:
        result = functional.linear(x, w)
    assert routed.total == 1
    assert_right(result, expected_gemm(x, w.t()))


def test_a_failure_of_fastgemm_is_not_hidden(device, each_way):
    kernel = {"cpu": "microkernel", "cuda": "bf16x6"}[device]
    a = torch.randn(600, 600)
    fastgemm.tuning.limit_workspace(0)
    try:
        with pytest.raises(torch.OutOfMemoryError, match=kernel), fastgemm.patch(kernel=kernel):
            a @ a
    finally:
        fastgemm.tuning.limit_workspace(None)


def test_counts_as_text_and_data(device, each_way):
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


def test_what_was_passed_on_is_not_listed_as_routed(device, each_way):
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


def test_many_signatures_are_counted_and_not_kept(device, monkeypatch, as_mode):
    monkeypatch.setattr("fastgemm._routed._KEPT", 8)
    b = torch.randn(5, 4)
    with fastgemm.patch() as routed:
        for rows in (*range(1, 30), *range(1, 30)):
            torch.mm(torch.randn(rows, 5), b)
    assert routed.ops == {"mm": 58}
    assert 0 < len(routed._routes) <= 8


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [*BAD_CHOICES, ({"level": 0}, ValueError, "level must be 1 to 7")],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        fastgemm.patch(**arguments)
