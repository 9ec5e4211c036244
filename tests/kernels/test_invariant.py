"""Tests that the bits of a product's rows do not depend on other rows: kernel ``invariant``, ``invariant=True``.

All comparisons are bitwise. On a GPU they also show that instructions of different widths round alike.
"""

import fastgemm
import pytest
import torch
from fastgemm._introspect import take_last_gemm_kernel
from pairwise import pairs
from reference import DEVICES, DTYPES, check_gemm, random_tensor, row_id
from torch import Tensor

TYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64]
EVERY_TYPE = [(dtype, None) for dtype in TYPES] + [(torch.float32, "tf32")]
every_type = pytest.mark.parametrize("dtype, precision", EVERY_TYPE, ids=row_id)
every_device = pytest.mark.parametrize("device", DEVICES)
COUNTS = (1, 2, 7, 8, 32, 64, 65, 256)
SIZES = [(64, 64), (100, 300), (333, 77), (1, 40), (129, 1000)]  # (N, K)


def skip_where_unsupported(device: str, precision: str | None) -> None:
    if device == "cpu" and precision is not None:
        pytest.skip("the CPU has no such precision")


def random(*shape: int, dtype: torch.dtype, device: str = "cpu") -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype).to(device)


def same_bits(x: Tensor, y: Tensor) -> bool:
    width = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return torch.equal(x.contiguous().view(width), y.contiguous().view(width))


def check_rows(product, a: Tensor, counts=COUNTS) -> None:
    """Compares rows of ``product(a)`` with products of some of these rows, in another order and among other
    rows."""
    whole = product(a)
    for count in sorted({min(count, len(a)) for count in counts}):
        here = torch.randperm(len(a), device=a.device)[:count]
        assert same_bits(product(a[here]), whole[here]), f"{count} rows alone"
        others = torch.randn_like(a[:1].expand(count + 5, -1), dtype=torch.float32).to(a.dtype)
        places = torch.randperm(count + 5, device=a.device)[:count]
        others[places] = a[here]
        assert same_bits(product(others)[places], whole[here]), f"{count} rows among others"


@pytest.mark.parametrize("size, type, trans_b", pairs(SIZES, EVERY_TYPE, [False, True]), ids=str)
@every_device
def test_rows_have_the_same_bits(device, size, type, trans_b):
    (n, k), (dtype, precision) = size, type
    skip_where_unsupported(device, precision)
    b = random(*((n, k) if trans_b else (k, n)), dtype=dtype, device=device)
    a = random(300, k, dtype=dtype, device=device)
    check_rows(lambda x: fastgemm.gemm(x, b, trans_b=trans_b, precision=precision, invariant=True), a)


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
@pytest.mark.parametrize(
    "n, k", [(4096, 4096), (14336, 4096), (4096, 14336), (8192, 8192), (2048, 5632), (513, 20000)]
)
@pytest.mark.parametrize("dtype, precision", [x for x in EVERY_TYPE if x[0] != torch.float64], ids=row_id)
def test_rows_of_layers(dtype, precision, n, k):
    b = random(n, k, dtype=dtype, device="cuda")
    a = random(2048, k, dtype=dtype, device="cuda")
    product = lambda x: fastgemm.gemm(x, b, trans_b=True, precision=precision, invariant=True)  # noqa: E731
    check_rows(product, a, (*COUNTS, 300, 1000))
    assert same_bits(product(a), product(a))


@pytest.mark.parametrize("alpha, beta", [(0.3, 0.7), (-2.0, 0.0)])
@every_type
@every_device
def test_scales_and_addends(device, dtype, precision, alpha, beta):
    skip_where_unsupported(device, precision)
    b, c = (random(*shape, dtype=dtype, device=device) for shape in ((96, 200), (200,)))
    a = random(200, 96, dtype=dtype, device=device)
    addend = c if beta else None
    how = {"alpha": alpha, "beta": beta, "precision": precision, "invariant": True}
    check_rows(lambda x: fastgemm.gemm(x, b, addend, **how), a)


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16])
def test_addends_where_another_kernel_takes_over(out_dtype):
    """From 300 rows on, C has more tiles than there are multiprocessors."""
    b = random(4096, 256, dtype=torch.bfloat16, device="cuda")
    c = random(4096, dtype=out_dtype, device="cuda")
    a = random(2048, 256, dtype=torch.bfloat16, device="cuda")
    how = {"alpha": 0.3, "beta": 0.7, "trans_b": True, "out_dtype": out_dtype, "invariant": True}
    check_rows(lambda x: fastgemm.gemm(x, b, c, **how), a, (1, 64, 65, 300, 1000))


@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16])
@every_device
def test_wide_results(device, out_dtype):
    b = random(90, 70, dtype=torch.bfloat16, device=device)
    a = random(100, 90, dtype=torch.bfloat16, device=device)
    check_rows(lambda x: fastgemm.matmul(x, b, out_dtype=out_dtype, invariant=True), a)


@pytest.mark.parametrize(
    "type, wild", pairs(EVERY_TYPE, [float("inf"), float("nan"), 1e38, 1e-40])[::2], ids=str
)
@every_device
def test_wild_rows_do_not_reach_the_others(device, type, wild):
    dtype, precision = type
    skip_where_unsupported(device, precision)
    b = random(120, 50, dtype=dtype, device=device)
    a = random(40, 120, dtype=dtype, device=device)
    product = lambda x: fastgemm.matmul(x, b, precision=precision, invariant=True)  # noqa: E731
    expected, other = product(a), a.clone()
    other[5, 3], other[17], other[17, 60] = wild, wild, 1.0
    tame = torch.tensor([i for i in range(40) if i not in (5, 17)], device=device)
    assert same_bits(product(other)[tame], expected[tame])
    c = random(40, 50, dtype=dtype, device=device)
    sums = [fastgemm.gemm(x, b, c.clone(), precision=precision, invariant=True) for x in (a, other)]
    assert same_bits(sums[1][tame], sums[0][tame])


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
@pytest.mark.parametrize("trans_b", [False, True], ids=["NN", "NT"])
@pytest.mark.parametrize("k", [1000, 2144, 4096])
def test_small_weights(k, trans_b):
    """A column of small weights is scaled before it is split. decode_planes then computes all tiles of its block
    again."""
    n = 15000
    a, b = (
        random(300, k, dtype=torch.float32, device="cuda"),
        random(n, k, dtype=torch.float32, device="cuda"),
    )
    b[[200, n - 1]] *= 1e-39
    b = b if trans_b else b.mT.contiguous()
    check_rows(lambda x: fastgemm.gemm(x, b, trans_b=trans_b, invariant=True), a, (1, 8, 30, 64, 200))


@every_type
@every_device
def test_values_and_layouts(device, dtype, precision):
    skip_where_unsupported(device, precision)
    b = random_tensor(130, 45, dtype=dtype).to(device)
    for a in (
        random_tensor(130, 70, dtype=dtype).mT,
        random_tensor(70, 260, dtype=dtype)[:, ::2],
        random_tensor(70, 133, dtype=dtype)[:, 3:],
        random_tensor(1, 130, dtype=dtype),
        random_tensor(3, 9, 130, dtype=dtype),
    ):
        check_gemm(a.to(device), b, kernel="invariant", precision=precision)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=row_id)
@every_device
def test_results_by_columns(device, dtype):
    """Subnormal results and sums with c have the same bits wherever a row of the result ends in memory."""
    for scale, alpha, beta in ((1e-18, 1e-4, 0.0), (1.0, 1.7, 0.3)):
        a, b = (random(*shape, dtype=dtype, device=device) * scale for shape in ((16, 64), (64, 600)))
        c = random(600, 16, dtype=dtype, device=device).mT

        def rows(m, a=a, b=b, c=c, alpha=alpha, beta=beta):
            out = torch.empty(600, m, dtype=a.dtype, device=a.device).mT
            return fastgemm.gemm(a[:m], b, c[:m], alpha=alpha, beta=beta, out=out, invariant=True)

        assert same_bits(rows(16)[:15], rows(15))


@pytest.mark.parametrize("dtype", DTYPES, ids=row_id)
@every_device
def test_every_type_is_taken(device, dtype):
    a, b = (random_tensor(*shape, dtype=dtype).to(device) for shape in ((30, 90), (90, 20)))
    check_gemm(a, b, kernel="invariant", **({"out_dtype": torch.int32} if dtype == torch.int16 else {}))


@every_device
def test_complex_rows(device):
    a, b = (torch.randn(*shape, dtype=torch.complex64, device=device) for shape in ((70, 90), (90, 20)))
    whole = fastgemm.matmul(a, b, invariant=True)
    for count in (1, 7, 33):
        alone = fastgemm.matmul(a[:count], b, invariant=True)
        assert torch.equal(torch.view_as_real(alone), torch.view_as_real(whole[:count]))


@every_device
def test_a_patch_and_layers(device):
    layer = torch.nn.Linear(96, 64, dtype=torch.bfloat16, device=device)
    x = random(4, 33, 96, dtype=torch.bfloat16, device=device)
    with fastgemm.patch(invariant=True) as routed:
        whole = layer(x)
        assert same_bits(layer(x[1:2]), whole[1:2])
        assert same_bits(layer(x[2, 5:6]), whole[2, 5:6])
    assert set(routed.kernels) == {"invariant"}
    fastgemm.nn.convert(layer, invariant=True)
    assert layer.kernel == "invariant"
    assert same_bits(layer(x), whole) and same_bits(layer(x[:, 7]), whole[:, 7])
    by_function = fastgemm.linear(x, layer.weight, layer.bias, activation="relu", invariant=True)
    assert take_last_gemm_kernel() == "invariant"
    alone = fastgemm.linear(x[1, 4], layer.weight, layer.bias, activation="relu", invariant=True)
    assert same_bits(alone, by_function[1, 4])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=row_id)  # bfloat16 gives float32
@every_device
def test_gradients_of_rows(device, dtype):
    weight = random(80, 96, dtype=dtype, device=device).requires_grad_()
    x = random(50, 96, dtype=dtype, device=device).requires_grad_()
    grad = random(50, 80, dtype=torch.float32, device=device)
    how = {"trans_b": True, "out_dtype": torch.float32, "invariant": True}
    fastgemm.gemm(x, weight, **how).backward(grad)
    assert take_last_gemm_kernel() == "invariant"
    for count in (1, 9):
        some = x.detach()[:count].clone().requires_grad_()
        fastgemm.gemm(some, weight, **how).backward(grad[:count])
        assert same_bits(some.grad, x.grad[:count])


@every_device
def test_compiled(device):
    b = random(96, 64, dtype=torch.bfloat16, device=device)
    a = random(40, 96, dtype=torch.bfloat16, device=device)
    doubled = lambda x: fastgemm.matmul(x, b, invariant=True) * 2  # noqa: E731
    compiled = torch.compile(doubled, fullgraph=True, dynamic=True, backend="aot_eager")
    assert same_bits(compiled(a)[:3], compiled(a[:3]))
    assert same_bits(compiled(a), fastgemm.matmul(a, b, invariant=True) * 2)


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
def test_graphs():
    b = random(256, 512, dtype=torch.bfloat16, device="cuda")
    a = random(300, 256, dtype=torch.bfloat16, device="cuda")
    expected = fastgemm.matmul(a, b, invariant=True)
    for count in (1, 33, 300):
        x = a[:count].clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = fastgemm.matmul(x, b, invariant=True)
        graph.replay()
        assert same_bits(y, expected[:count])


# --- misuse; tests/python/test_wrong_uses.py has more


def test_levels_with_an_invariant_kernel():
    a = torch.randn(4, 4)
    for level, kernel in ((1, "naive"), (6, "invariant"), (7, "invariant"), (None, "invariant")):
        fastgemm.matmul(a, a, level=level, invariant=True)
        assert take_last_gemm_kernel() == kernel


@every_device
def test_lower_precisions_are_refused(device):
    a = torch.randn(90, 90, device=device)
    with pytest.raises(ValueError, match="accepted: 'ieee', 'bf16x6', 'tf32' and None"):
        fastgemm.matmul(a, a, precision="bf16x3", invariant=True)
    with pytest.raises(ValueError, match=r"fastgemm\.patch: precision='fp16x3' is not for invariant=True"):
        fastgemm.patch(precision="fp16x3", invariant=True)
    with pytest.raises(RuntimeError, match='only the precisions "ieee", "bf16x6" and "tf32"'):
        fastgemm.matmul(a, a, precision="bf16x3", kernel="invariant")
