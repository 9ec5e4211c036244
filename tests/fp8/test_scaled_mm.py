"""Tests scaled_mm: recipes, layouts, sizes, types, batches, epilogues, levels and special numbers."""

from itertools import product

import fastgemm
import pytest
import torch
from reference import every_device, needs_simulator, simulated_launches
from scaled import (
    BF16,
    E4M3,
    E5M2,
    E8M0,
    F16,
    F32,
    NAMES,
    assert_near,
    dequantized,
    operand,
    random_codes,
    random_scales,
)
from torch.library import opcheck

HAS_PAIRS = "avx512_bf16" in fastgemm.build_info()["cpu_features"]
needs_pairs = pytest.mark.skipif(not HAS_PAIRS, reason="needs AVX512-BF16")

SHAPES = [(1, 1, 1), (5, 7, 3), (33, 65, 129), (130, 40, 257), (17, 200, 128), (64, 16, 31)]


def check(
    m, n, k, recipe_a, recipe_b, *, codes=(E4M3, E4M3), scales=(F32, F32), device="cpu", named=True, **options
):
    names = {"recipe_a": recipe_a, "recipe_b": recipe_b} if named else {}
    a, scale_a = operand(m, k, recipe_a, codes[0], scales[0])
    w, scale_b = operand(n, k, recipe_b, codes[1], scales[1])
    result = fastgemm.scaled_mm(
        *(x.to(device) for x in (a, w.mT, scale_a, scale_b.mT)),
        **{"out_dtype": F32, **names, **options},
    )
    exact = dequantized(a, scale_a, recipe_a), dequantized(w, scale_b, recipe_b).mT
    assert_near(result, *exact)


@every_device
@pytest.mark.parametrize("recipes", list(product(NAMES, NAMES)), ids="-".join)
def test_recipes(recipes, device):
    for m, n, k in SHAPES[1:4]:
        check(m, n, k, *recipes, device=device)
        check(m, n, k, *recipes, device=device, named=False, out_dtype=BF16)


@every_device
@pytest.mark.parametrize("recipe", ["tensor", "row", "1x128", "1x32"])
def test_types(recipe, device):
    types = product((E4M3, E5M2), repeat=2), product((F32, E8M0), repeat=2)
    for codes, scales in product(*types):
        check(3, 5, 70, recipe, recipe, codes=codes, scales=scales, device=device)
    a, scale_a = fastgemm.quantize_fp8(torch.randn(3, 70, device=device), recipe)
    half = fastgemm.scaled_mm(a, a.mT, scale_a, scale_a.mT if scale_a.dim() else scale_a, out_dtype=F16)
    exact = dequantized(a.cpu(), scale_a.cpu(), recipe)
    assert_near(half, exact, exact.mT)


@every_device
@pytest.mark.parametrize("level", range(1, 8))
def test_levels(level, device):
    for shape in SHAPES:
        for recipe in ("row", "1x128"):
            check(*shape, recipe, recipe, level=level, device=device)


@every_device
@pytest.mark.parametrize("recipe", ["row", "128x128", "1x128", "1x32"])
def test_layouts(recipe, device):
    """NN, NT, TN, TT; offsets of a byte; rows with gaps between them, broadcast rows, and rows without a unit
    stride."""
    m, n, k = 35, 50, 150
    (a, scale_a), (w, scale_b) = operand(m, k, recipe), operand(n, k, recipe)
    exact = dequantized(a, scale_a, recipe), dequantized(w, scale_b, recipe).mT

    def forms(x):
        byte = x.view(torch.uint8)
        wide = torch.zeros(x.shape[0], x.shape[1] + 3, dtype=torch.uint8)
        wide[:, 1:-2] = byte
        apart = torch.zeros(x.shape[0], 2 * x.shape[1], dtype=torch.uint8)
        apart[:, ::2] = byte
        yield x
        yield columns_of(x)
        yield wide.view(x.dtype)[:, 1:-2]
        yield apart.view(x.dtype)[:, ::2]

    for x, y in product(forms(a), forms(w)):
        result = fastgemm.scaled_mm(x.to(device), y.to(device).mT, scale_a.to(device), scale_b.mT.to(device))
        assert_near(result, *exact)
    columns = scale_a.T.contiguous().T, scale_b.contiguous().mT
    result = fastgemm.scaled_mm(a.to(device), w.mT.to(device), *(s.to(device) for s in columns))
    assert_near(result, *exact)
    same = a[:1].expand(m, k)
    result = fastgemm.scaled_mm(same.to(device), w.mT.to(device), scale_a.to(device), scale_b.mT.to(device))
    assert_near(result, dequantized(same, scale_a, recipe), exact[1])


BLOCKS = [("1x128", "128x128"), ("1x128", "1x128"), ("128x128", "1x32"), ("row", "1x128"), ("1x32", "tensor")]


@needs_pairs
@pytest.mark.parametrize("kernel", ["dot_bf16", "streamed_weights"])
@pytest.mark.parametrize("recipes", BLOCKS, ids="-".join)
def test_scaled_sums_of_parts(recipes, kernel):
    """K that ends inside of a part or a line, edges of tiles, and several blocks of K."""
    for m, n, k in [(1, 2, 3), (2, 17, 31), (13, 33, 96), (4, 70, 129), (40, 130, 300), (9, 5, 4300)]:
        check(m, n, k, *recipes, kernel=kernel)
        check(m, n, k, *recipes, kernel=kernel, scales=(E8M0, F32), out_dtype=BF16)
    check(25, 40, 200, *recipes, kernel=kernel, scales=(E8M0, E8M0), codes=(E5M2, E4M3))


@every_device
def test_epilogues(device):
    m, n, k = 9, 21, 140
    for recipe, out in product(("tensor", "row", "1x128"), (BF16, F32)):
        (a, scale_a), (w, scale_b) = operand(m, k, recipe), operand(n, k, recipe)
        exact = dequantized(a, scale_a, recipe), dequantized(w, scale_b, recipe).mT
        bias, residual = torch.randn(n).to(out), torch.randn(m, n).to(out)
        result = fastgemm.scaled_mm(
            *(x.to(device) for x in (a, w.mT, scale_a, scale_b.mT)),
            out_dtype=out,
            bias=bias.to(device),
            residual=residual.to(device),
            activation="relu",
        )
        expected = (exact[0] @ exact[1] + bias.double()).relu() + residual.double()
        assert_near(result, *exact, expected=expected)
    narrow = fastgemm.scaled_mm(a, w.mT, scale_a, scale_b.mT, out_dtype=F32, bias=bias.to(BF16))
    assert_near(narrow, *exact, expected=exact[0] @ exact[1] + bias.to(BF16).double())


def columns_of(x):
    return x.view(torch.uint8).T.contiguous().view(x.dtype).T


@every_device
def test_batches(device):
    k = 130
    for recipe in NAMES:
        a, scale_a = (torch.stack(x) for x in zip(*(operand(6, k, recipe) for _ in range(4)), strict=True))
        w, scale_b = (torch.stack(x) for x in zip(*(operand(9, k, recipe) for _ in range(4)), strict=True))
        exact = [
            torch.stack([dequantized(x, s, recipe) for x, s in zip(*each, strict=True)])
            for each in ((a, scale_a), (w, scale_b))
        ]
        residual = torch.randn(4, 6, 9)
        both = fastgemm.scaled_mm(
            *(x.to(device) for x in (a, w.mT, scale_a, scale_b.mT)),
            out_dtype=F32,
            residual=residual.to(device),
        )
        product_ = exact[0] @ exact[1].mT
        assert_near(both, exact[0], exact[1].mT, expected=product_ + residual.double())
        one = fastgemm.scaled_mm(*(x.to(device) for x in (a, w[0].mT, scale_a, scale_b[0].mT)), out_dtype=F32)
        assert_near(one, exact[0], exact[1][0].mT)
        grid = fastgemm.scaled_mm(
            *(x.to(device) for x in (a[:, None], w.mT[None, :2], scale_a[:, None], scale_b.mT[None, :2])),
            out_dtype=F32,
        )
        assert grid.shape == (4, 2, 6, 9)
        assert_near(grid, exact[0][:, None], exact[1].mT[None, :2])


def test_one_scale_for_all_has_any_shape():
    a, w = random_codes(4, 20), random_codes(6, 20)
    expected = fastgemm.scaled_mm(a, w.mT, torch.tensor(0.5), torch.tensor([2.0]), out_dtype=F32)
    for shape in ((), (1,), (1, 1)):
        one = torch.full(shape, 0.5), torch.full(shape, 2.0)
        assert torch.equal(fastgemm.scaled_mm(a, w.mT, *one, out_dtype=F32), expected)
    batch = fastgemm.scaled_mm(a.expand(3, 4, 20), w.mT, torch.tensor(0.5), torch.tensor(2.0), out_dtype=F32)
    torch.testing.assert_close(batch, expected.expand(3, 4, 6), rtol=1e-4, atol=1e-2)


def test_results_of_8_bits():
    a, scale_a = operand(10, 300, "row")
    w, scale_b = operand(140, 300, "row")
    given = a, w.mT, scale_a, scale_b.mT
    wide = fastgemm.scaled_mm(*given, out_dtype=F32)
    for recipe in ("row", "1x128"):
        codes, scales = fastgemm.scaled_mm(*given, out_dtype=E4M3, out_scale=recipe)
        expected = fastgemm.quantize_fp8(wide, recipe)
        assert torch.equal(codes.view(torch.uint8), expected[0].view(torch.uint8))
        assert torch.equal(scales, expected[1])
    scale = wide.abs().max() / 100
    codes = fastgemm.scaled_mm(*given, out_dtype=E4M3, out_scale=scale)
    assert torch.equal(codes.view(torch.uint8), (wide / scale).to(E4M3).view(torch.uint8))
    saturated = fastgemm.scaled_mm(*given, out_dtype=E4M3, out_scale=scale / 1000)
    assert saturated.float().abs().max() == 448 and saturated.float().isfinite().all()
    out = torch.empty(10, 140, dtype=E4M3)
    assert fastgemm.scaled_mm(*given, out_dtype=E4M3, out_scale=scale, out=out) is out
    assert torch.equal(out.view(torch.uint8), codes.view(torch.uint8))


def test_out():
    given = random_codes(4, 20), random_codes(20, 6), torch.ones(1), torch.ones(1)
    out = torch.empty(6, 4, dtype=BF16).T
    assert fastgemm.scaled_mm(*given, out=out) is out
    assert torch.equal(out, fastgemm.scaled_mm(*given))
    compiled = torch.compile(fastgemm.scaled_mm, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*given, out=out.zero_()), fastgemm.scaled_mm(*given))
    torch._dynamo.reset()
    for x in (given[0], out):  # the graph does not know that their rows are as many
        torch._dynamo.decorators.mark_unbacked(x, 0)
    assert torch.equal(compiled(*given, out=out.zero_()), fastgemm.scaled_mm(*given))


@pytest.mark.parametrize("rows", [6, 70])
@pytest.mark.parametrize("code", [E4M3, E5M2], ids=str)
@pytest.mark.parametrize("recipe", ["row", "1x128"])
def test_special_numbers(recipe, code, rows):
    """NaN, infinity and zero among codes and scales reach their rows and columns, and no others."""
    a, scale_a = operand(rows, 200, recipe, code)
    w, scale_b = operand(80, 200, recipe, code)
    a[1, 3], a[2, 150] = float("nan"), float("inf")
    w[6, 9] = float("nan")
    scale_a[3, -1], scale_a[4, 0] = float("inf"), 0.0
    w[5, 7] = float("-inf")
    result = fastgemm.scaled_mm(a, w.mT, scale_a, scale_b.mT, out_dtype=F32)
    if recipe == "row":  # its scales multiply sums
        expected = (a.double() @ w.double().mT * scale_a * scale_b.mT).float()
    else:
        expected = (dequantized(a, scale_a, recipe) @ dequantized(w, scale_b, recipe).mT).float()
    finite = expected.isfinite()
    assert torch.equal(result.isfinite(), finite)
    # Rows that sum parts of K before they scale them have infinity where infinite numbers would cancel.
    others = scale_a.isfinite().all(-1)
    assert torch.equal(result[others].isnan(), expected[others].isnan())
    numbers = dequantized(a, scale_a, recipe), dequantized(w, scale_b, recipe).mT
    moduli = numbers[0].abs().nan_to_num(0, 0) @ numbers[1].abs().nan_to_num(0, 0)
    assert ((result - expected).abs()[finite] <= 2**-15 * moduli[finite]).all()


@pytest.mark.parametrize("shape", [(0, 5, 7), (5, 0, 7), (5, 7, 0), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("recipe", NAMES)
def test_empty(shape, recipe):
    m, n, k = shape
    (a, scale_a), (w, scale_b) = operand(m, k, recipe), operand(n, k, recipe)
    result = fastgemm.scaled_mm(a, w.mT, scale_a, scale_b.mT, bias=torch.ones(n, dtype=BF16))
    assert result.shape == (m, n) and result.eq(1).all()


def test_rows_do_not_depend_on_others():
    for recipe, k in (("row", 300), ("1x128", 300), ("128x128", 100), ("tensor", 300)):
        (a, scale_a), (w, scale_b) = operand(170, k, recipe), operand(40, k, recipe)
        whole = fastgemm.scaled_mm(a, w.mT, scale_a, scale_b.mT, invariant=True)
        for i in (0, 33, 127):
            of_row = scale_a[i : i + 1] if scale_a.shape[0] == 170 else scale_a[:1]
            given = a[i : i + 1], w.mT, of_row, scale_b.mT
            one = fastgemm.scaled_mm(*given, recipe_a=recipe, recipe_b=recipe, invariant=True)
            assert torch.equal(one[0], whole[i])


@needs_simulator
@pytest.mark.parametrize("level", range(1, 7))
def test_on_the_simulator(level):
    for recipes in (("tensor", "row"), ("1x128", "128x128"), ("1x32", "1x32")):
        with simulated_launches():
            check(33, 20, 140, *recipes, codes=(E4M3, E5M2), level=level, out_dtype=BF16)


@needs_simulator
def test_layouts_on_the_simulator():
    """Codes and results at every alignment."""
    for shift, recipe in product((0, 1, 3), ("row", "1x128", "1x32", "128x128")):
        wide, scale_a = random_codes(5, 150 + shift)[:, shift:], random_scales(5, 150, recipe)
        w, scale_b = operand(20, 150, recipe)
        exact = dequantized(wide, scale_a, recipe), dequantized(w, scale_b, recipe).mT
        for a, b in product((wide, columns_of(wide)), (w.mT, columns_of(w).mT)):
            with simulated_launches():
                result = fastgemm.scaled_mm(a, b, scale_a, scale_b.mT, out_dtype=F32)
            assert_near(result, *exact)


def test_the_scale_of_a_row_comes_first():
    """Without its scale, a row would overflow. Also where the transposed product is computed."""
    a, w = torch.full((64, 64), 16.0).to(E4M3), torch.full((4, 64), 16.0).to(E4M3)
    scales = torch.full((64, 1), 1e-30), torch.full((1, 4), 1e36)
    for kernel in (None, "naive", "blocked", "pipelined", "microkernel"):
        for b in (w.mT, columns_of(w).mT):
            result = fastgemm.scaled_mm(a, b, *scales, out_dtype=F32, kernel=kernel)
            torch.testing.assert_close(result, torch.full((64, 4), 64 * 256 * 1e6))


def test_torchs_product_is_not_rounded_twice():
    for recipe in ("row", "tensor"):
        check(30, 40, 64, recipe, recipe, kernel="torch", out_dtype=BF16)
    a, w = torch.full((3, 64), 400.0).to(E4M3), torch.full((5, 64), 400.0).to(E4M3)
    for b in (w.mT, columns_of(w).mT):
        result = fastgemm.scaled_mm(
            a, b, torch.tensor(1e-4), torch.tensor(1.0), kernel="torch", out_dtype=F16
        )
        assert result.isfinite().all()


def test_opcheck():
    (a, scale_a), (w, scale_b) = operand(6, 140, "1x128"), operand(5, 140, "128x128")
    blocks = {"block_m": 1, "block_k_of_a": 128, "block_k_of_b": 128, "block_n": 128}
    given = a, w.mT, scale_a, scale_b.mT, torch.randn(5).to(BF16), torch.randn(6, 5).to(BF16)
    # torch's check that arguments remain adds them up, which it cannot do with codes of 8 bits.
    others = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    opcheck(torch.ops.fastgemm.scaled_mm.default, given, {**blocks, "activation": "silu"}, test_utils=others)
    for x, e8m0 in ((torch.randn(6, 140), False), (torch.randn(6, 140, dtype=BF16).T, True)):
        sizes = {"block_rows": 1, "block_cols": 32, "e8m0": e8m0}
        for op in (torch.ops.fastgemm.quantize_fp8, torch.ops.fastgemm._quantize_fp8_with_transposed):
            opcheck(op.default, (x,), sizes, test_utils=others)


def test_compile_and_export():
    class Layer(torch.nn.Module):
        def forward(self, x, w, scale_w, bias):
            a, scale_a = fastgemm.quantize_fp8(x, "row")
            return fastgemm.scaled_mm(a, w.mT, scale_a, scale_w.mT, bias=bias, activation="relu") * 2

    w, scale = operand(12, 40, "row")
    given = torch.randn(2, 3, 40), w, scale, torch.randn(12).to(BF16)
    expected = Layer()(*given)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(Layer(), fullgraph=True)(*given), expected)
    dynamic = torch.compile(fastgemm.scaled_mm, fullgraph=True, dynamic=True)
    for recipe in NAMES:
        (a, scale_a), (b, scale_b) = operand(6, 140, recipe), operand(9, 140, recipe)
        operands = a, b.mT, scale_a, scale_b.mT
        assert torch.equal(dynamic(*operands, level=5), fastgemm.scaled_mm(*operands, level=5))
    rounds = torch.compile(fastgemm.quantize_fp8, fullgraph=True, dynamic=True)
    for recipe in NAMES:  # of a batch
        x = torch.randn(2, 5, 140)
        for got, wanted in zip(rounds(x, recipe), fastgemm.quantize_fp8(x, recipe), strict=True):
            assert got.shape == wanted.shape and torch.equal(got.float(), wanted.float())
    assert torch.equal(torch.export.export(Layer(), given).module()(*given), expected)
    meta = Layer()(*(x.to("meta") for x in given))
    assert meta.shape == expected.shape and meta.dtype == expected.dtype


@every_device
def test_no_precision_changes_bits(device):
    """No kernel uses the sums that "fast" allows."""
    a, b = (random_codes(*size).to(device) for size in ((40, 400), (400, 48)))
    scales = torch.full((40, 1), 0.5, device=device), torch.full((1, 48), 2.0, device=device)
    usual, promoted, fast = (
        fastgemm.scaled_mm(a, b, *scales, precision=p) for p in (None, "promoted", "fast")
    )
    assert torch.equal(usual, promoted) and torch.equal(usual, fast)


def test_torchs_scaling_types():
    torch_types = getattr(torch.nn.functional, "ScalingType", None)
    if torch_types is None:
        pytest.skip("this torch has no ScalingType")
    (a, scale_a), (w, scale_b) = operand(4, 140, "1x128"), operand(6, 140, "128x128")
    result = fastgemm.scaled_mm(
        *(a, w.mT, scale_a, scale_b.mT),
        recipe_a=torch_types.BlockWise1x128,
        recipe_b=torch_types.BlockWise128x128,
    )
    assert torch.equal(result, fastgemm.scaled_mm(a, w.mT, scale_a, scale_b.mT))
