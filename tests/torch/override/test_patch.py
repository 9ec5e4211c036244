"""Tests fastgemm.patch: fastgemm or torch computes torch's products, and the patch reports which of them did."""

import functools
import math

import fastgemm
import pytest
import torch
from patches import ELSEWHERE, needs_library
from reference import INTEGERS, assert_right, every_device, expected_gemm, name_of, random_tensor
from torch.nn import functional

pytestmark = [every_device, needs_library]
ROUTED_TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64]
each_type = pytest.mark.parametrize("dtype", ROUTED_TYPES, ids=name_of)


@pytest.fixture
def routed():
    """A patch that is active during the test, and its counts."""
    with fastgemm.patch() as counts:
        yield counts


def form_of(x):
    """Everything about a result except its values."""
    return x.dtype, x.shape, x.stride(), x.device


PRODUCTS = {
    "mm": (torch.mm, (37, 65), (65, 21), "mm"),
    "mm long": (torch.mm, (5, 4097), (4097, 9), "mm"),
    "matmul": (torch.matmul, (37, 65), (65, 21), "mm"),
    "operator": (lambda a, b: a @ b, (4, 37, 65), (65, 21), "mm"),
    "bmm": (torch.bmm, (3, 37, 65), (3, 65, 21), "bmm"),
    "broadcast": (torch.matmul, (2, 1, 7, 30), (3, 30, 9), "bmm"),
    "einsum": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), (3, 8, 40), (3, 40, 7), "bmm"),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 1), (3, 8, 40), (40, 7), "mm"),
    "linear": (lambda a, b: functional.linear(a, b.t()), (37, 65), (65, 21), "mm"),
    "linear 3-D": (lambda a, b: functional.linear(a, b.t()), (2, 37, 65), (65, 21), "mm"),
    "nothing to add": (torch.mm, (4, 0), (0, 5), "mm"),
    "no rows": (torch.mm, (0, 4), (4, 5), "mm"),
    "no batch": (torch.bmm, (0, 4, 3), (0, 3, 5), "bmm"),
}


@each_type
@pytest.mark.parametrize("product", PRODUCTS)
def test_products(product, dtype, device):
    function, a_shape, b_shape, op = PRODUCTS[product]
    a, b = random_tensor(*a_shape, dtype=dtype).to(device), random_tensor(*b_shape, dtype=dtype).to(device)
    with fastgemm.patch() as routed:
        result = function(a, b)
    assert_right(result, expected_gemm(a, b), product)
    assert routed.ops == {op: 1}
    assert not routed.passed_on
    if device == "cpu" or dtype.is_floating_point:  # on a GPU torch has no product of these types
        assert form_of(result) == form_of(function(a, b))


@each_type
@pytest.mark.parametrize("level", [1, 5, 7])
def test_a_level_is_kept(level, dtype, device):
    a, b = random_tensor(33, 70, dtype=dtype).to(device), random_tensor(70, 40, dtype=dtype).to(device)
    with fastgemm.patch(level=level) as routed:
        result = a @ b
    assert_right(result, expected_gemm(a, b))
    ((kernel, calls),) = routed.kernels.items()
    assert calls == 1
    level_of = {row.name: row.level for row in fastgemm.kernels("gemm", device)}
    assert level == 7 or level_of[kernel] == level
    assert torch.equal(fastgemm.matmul(a, b, kernel=kernel), fastgemm.matmul(a, b, level=level))


def test_a_kernel_is_kept_and_one_of_another_device_passes_on(device):
    a, other = torch.randn(20, 20), ELSEWHERE[device]
    with fastgemm.patch(kernel="naive") as routed:
        result = a @ a.t()
    assert torch.equal(result, fastgemm.matmul(a, a.t(), kernel="naive"))
    assert routed.kernels == {"naive": 1}
    with fastgemm.patch(kernel=other) as routed:
        assert torch.equal(a @ a, fastgemm.matmul(a, a, kernel="torch"))
    assert not routed.total
    assert [(op, other in reason) for op, reason in routed.passed_on] == [("mm", True)]


def test_a_precision_is_kept_and_only_of_float32(device):
    a = torch.randn(64, 4096)
    with fastgemm.patch(precision="bf16x3") as routed:
        results = a @ a.t(), a.double() @ a.t().double()
    assert routed.ops == {"mm": 2}
    assert torch.equal(results[0], fastgemm.matmul(a, a.t(), precision="bf16x3"))
    assert_right(results[0], expected_gemm(a, a.t(), precision="bf16x3"))
    assert_right(results[1], expected_gemm(a.double(), a.t().double()))
    if device == "cuda":  # needs a GPU and a large product: level 6 has no lower precision otherwise
        a = torch.randn(1024, 1024)
        with fastgemm.patch(level=6, precision="bf16x3"):
            result = a @ a.t()
        assert torch.equal(result, fastgemm.matmul(a, a.t(), level=6, precision="bf16x3"))
        assert not torch.equal(result, fastgemm.matmul(a, a.t(), level=6))


def test_on_a_gpu_float32_follows_torchs_flag(device, monkeypatch):
    if device == "cpu":
        pytest.skip("a CPU has no tf32")
    a = torch.randn(256, 512)
    with fastgemm.patch() as routed:
        before = a @ a.t()
        monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32")
        after = a @ a.t()
    assert routed.ops == {"mm": 2}
    assert torch.equal(after, fastgemm.matmul(a, a.t(), precision="tf32"))
    assert not torch.equal(before, after)
    assert_right(before, expected_gemm(a, a.t()))


def scales_of(dtype):
    return (2, -3) if dtype in INTEGERS else (1.5, -0.25)


@each_type
@pytest.mark.parametrize("c_shape", [(6, 5), (5,), (1, 5), (6, 1), (1, 1), ()])
@pytest.mark.parametrize("k", [0, 130])
def test_addmm(c_shape, k, dtype, device):
    a, b = random_tensor(6, k, dtype=dtype).to(device), random_tensor(k, 5, dtype=dtype).to(device)
    c = random_tensor(*c_shape, dtype=dtype).to(device)
    alpha, beta = scales_of(dtype)
    for scales in ({}, {"alpha": alpha}, {"beta": beta}, {"alpha": alpha, "beta": beta}, {"beta": 0}):
        if scales == {"beta": 0} and dtype.is_floating_point:
            c = torch.full_like(c, math.nan)  # c is not read
        with fastgemm.patch() as routed:
            result = torch.addmm(c, a, b, **scales)
        assert routed.ops == {"addmm": 1}, scales
        expected = expected_gemm(a, b, c.broadcast_to(6, 5), **{"alpha": 1, "beta": 1} | scales)
        assert_right(result, expected, str(scales))
        if device == "cpu" or dtype.is_floating_point:
            assert form_of(result) == form_of(torch.addmm(c, a, b, **scales))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_what_torch_refuses_without_products(dtype):
    options = {"dtype": dtype, "device": "cpu"}  # torch multiplies no integers on a GPU
    a, c = torch.ones(2, 0, **options), torch.ones(2, 3, **options)
    with pytest.raises(RuntimeError, match="can't be cast"), fastgemm.patch():
        torch.addmm(c, a, a.new_ones(0, 3), beta=2.0)
    with fastgemm.patch() as routed:
        assert torch.equal(torch.addmm(c, a, a.new_ones(0, 3), beta=2), 2 * c)
    assert routed.ops == {"addmm": 1}


@pytest.mark.parametrize("beta", [0, 1, 3])
@pytest.mark.parametrize("size", [3, 40])
@each_type
def test_what_alpha_0_leaves_unread_may_be_nan(device, routed, dtype, size, beta):
    """If beta is also 0, torch's 16-bit baddbmm does not write its result."""
    nothing = math.nan if dtype.is_floating_point or dtype.is_complex else 7
    of_type = {"dtype": dtype, "device": device}
    a, b = torch.full((2, size, size + 1), nothing, **of_type), torch.ones(2, size + 1, size, **of_type)
    c = torch.full((2, size, size), 2 if beta else nothing, **of_type)
    expected = torch.full_like(c, 2 * beta)
    scales = {"alpha": 0, "beta": beta}
    poisoned = [torch.full_like(expected, 5) for _ in range(20)]
    del poisoned
    result = torch.baddbmm(c, a, b, **scales)
    assert torch.equal(result, expected) and result.dtype == dtype
    assert torch.equal(torch.baddbmm(c, a, b, **scales, out=torch.ones_like(c)), expected)
    assert torch.equal(c.clone().baddbmm_(a, b, **scales), expected)
    assert torch.equal(torch.addmm(c[0], a[0], b[0], **scales), expected[0])
    assert torch.equal(torch.addmm(c[0], a[0], b[0], **scales, out=torch.ones_like(c[0])), expected[0])
    assert torch.equal(c[0].clone().addmm_(a[0], b[0], **scales), expected[0])
    assert torch.equal(torch.addmm(c[0, 0], a[0], b[0], **scales), expected[0])
    assert torch.equal(torch.baddbmm(c, a[..., :0], b[:, :0], **scales), expected)
    assert routed.ops == {"baddbmm": 3, "baddbmm_": 1, "addmm": 3, "addmm_": 1}
    assert not routed.passed_on


@pytest.mark.parametrize("scale", [2**53 + 1, 2**62, -(2**63), 2**63 - 1, 1e16, -3], ids=str)
def test_any_scale_of_int64(device, routed, scale):
    a, b, c = (random_tensor(2, 5, 5, dtype=torch.int64).to(device) for _ in range(3))
    product = (a.cpu().unsqueeze(-1) * b.cpu().unsqueeze(-3)).sum(-2)
    for alpha, beta in ((scale, 1), (2, scale), (scale, scale)):
        expected = product * int(alpha) + c.cpu() * int(beta)
        result = torch.baddbmm(c, a, b, alpha=alpha, beta=beta)
        assert torch.equal(result.cpu(), expected)
        assert torch.equal(torch.addmm(c[1], a[1], b[1], alpha=alpha, beta=beta).cpu(), expected[1])
        assert torch.equal(c.clone().baddbmm_(a, b, alpha=alpha, beta=beta).cpu(), expected)
    assert routed.ops == {"baddbmm": 3, "addmm": 3, "baddbmm_": 3}
    assert not routed.passed_on


def test_float16_is_rounded_once(device, routed):
    """A sum in float16 would be 1 instead of 1 + 2048 * 2**-12."""
    a, b = torch.ones(8, 2049, dtype=torch.float16), torch.full((2049, 8), 2.0**-12, dtype=torch.float16)
    b[0] = 1
    assert torch.equal(a @ b, torch.full((8, 8), 1.5, dtype=torch.float16))
    assert routed.ops == {"mm": 1}


@pytest.mark.parametrize("op", ["mm", "bmm", "addmm", "baddbmm", "addmm_", "baddbmm_"])
def test_out_and_in_place(op, device):
    batch, added = (3,) if "bmm" in op else (), "add" in op
    a, b, c = torch.randn(*batch, 6, 33), torch.randn(*batch, 33, 5), torch.randn(*batch, 6, 5)
    scales = {"alpha": 0.5, "beta": 2} if added else {}
    expected = expected_gemm(a, b, c if added else None, **scales)
    for out in (torch.full_like(c, math.nan), torch.full_like(c.mT.contiguous(), math.nan).mT):
        if op.endswith("_"):
            call = getattr(out.copy_(c), op)
        else:
            call = functools.partial(getattr(torch, op), *[c] * added, out=out)
        memory, version = out.data_ptr(), out._version
        with fastgemm.patch() as routed:
            assert call(a, b, **scales) is out
        assert routed.ops == {op: 1}
        assert out.data_ptr() == memory
        assert out._version > version
        assert_right(out, expected)
