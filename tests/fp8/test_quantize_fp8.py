"""Tests quantize_fp8: every number of 16 bits, recipes, types, layouts and special numbers."""

import warnings
from itertools import cycle

import fastgemm
import pytest
import torch
from fastgemm._fp8.recipes import RECIPES
from reference import every_device, needs_simulator, simulated_launches
from scaled import BF16, E4M3, E5M2, E8M0, F16, F32, NAMES, dequantized
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx

LARGEST = {E4M3: 448.0, E5M2: 57344.0}


def bits(x):
    return x.view(torch.uint8)


@pytest.mark.parametrize("simulated", [False, pytest.param(True, marks=needs_simulator)])
@pytest.mark.parametrize("code", [E4M3, E5M2], ids=str)
def test_every_number_of_16_bits(code, simulated):
    """Rounds as torch does up to the largest code, and saturates beyond."""
    for dtype in (BF16, F16):
        x = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype).reshape(256, 256)
        with simulated_launches() if simulated else torch.no_grad():
            codes, _ = torch.ops.fastgemm.quantize_fp8(
                x, torch.ones(1, 1), block_rows=0, block_cols=0, dtype=code
            )
        wide = x.float()
        special = wide if code == E5M2 else torch.nan  # e4m3 has no infinity
        expected = torch.where(wide.isfinite(), wide.clamp(-LARGEST[code], LARGEST[code]), special).to(code)
        number = ~expected.float().isnan()
        assert torch.equal(codes.float().isnan(), ~number)
        assert torch.equal(bits(codes)[number], bits(expected)[number])


def reference(x, recipe, code, e8m0):
    """Scales and codes by torch, in float32."""
    blocks, (m, k) = RECIPES[recipe], x.shape
    rows, cols = blocks.lines or m, blocks.along_k or k
    grid = blocks.grid(m, k)
    padded = torch.zeros(grid[0] * rows, grid[1] * cols)
    padded[:m, :k] = x.float()
    largest = padded.reshape(grid[0], rows, grid[1], cols).abs().amax((1, 3))
    scales = largest / LARGEST[code]
    if e8m0:
        mantissa, exponent = torch.frexp(scales)
        exponent = torch.where(mantissa == 0.5, exponent - 1, exponent)
        scales = torch.ldexp(torch.ones_like(scales), exponent.clamp(min=-127))
        scales = torch.where(largest == 0, 2.0**-127, scales)
    spread = scales.repeat_interleave(rows, 0)[:m].repeat_interleave(cols, 1)[:, :k]
    codes = torch.where(spread == 0, 0.0, x.float() / spread).clamp(-LARGEST[code], LARGEST[code]).to(code)
    return codes, scales


@every_device
@pytest.mark.parametrize("recipe", NAMES)
@pytest.mark.parametrize("dtype", [F32, BF16, F16], ids=str)
def test_recipes(recipe, dtype, device):
    for (m, k), code in zip(
        [(1, 1), (3, 40), (150, 300), (129, 128), (300, 7), (1, 700)], [E4M3, E5M2] * 3, strict=False
    ):
        x = (torch.randn(m, k) * torch.randn(m, 1).exp()).to(dtype)
        x[: m // 3, : k // 2] = 0
        for scale_dtype in (F32, E8M0):
            codes, scales = fastgemm.quantize_fp8(x.to(device), recipe, dtype=code, scale_dtype=scale_dtype)
            with torch.device("cpu"):  # torch divides otherwise on a GPU
                expected, of_torch = reference(x.cpu(), recipe, code, scale_dtype == E8M0)
            assert scales.dtype == scale_dtype and codes.dtype == code and codes.is_contiguous()
            shape = () if recipe == "tensor" else RECIPES[recipe].grid(m, k)
            assert scales.shape == shape
            assert torch.equal(scales.cpu().float(), of_torch.reshape(shape))
            assert torch.equal(bits(codes.cpu()), bits(expected))


@needs_simulator
@pytest.mark.parametrize("recipe", NAMES)
def test_on_the_simulator(recipe):
    for (m, k), shift in (((130, 144), 0), ((3, 261), 1), ((1, 264), 0)):
        x = torch.randn(m, k + shift).to(BF16)[:, shift:]
        with simulated_launches():
            codes, scales = fastgemm.quantize_fp8(x, recipe)
        expected = fastgemm.quantize_fp8(x, recipe)
        assert torch.equal(bits(codes), bits(expected[0])) and torch.equal(
            scales.float(), expected[1].float()
        )


def assert_codes_of(x, recipe, code, got, scale_dtype=None):
    """``got`` has the codes and scales of x."""
    x = x.cpu().contiguous()
    expected, expected_scales = fastgemm.quantize_fp8(x, recipe, dtype=code, scale_dtype=scale_dtype)
    codes, scales = (each.cpu() for each in got)
    assert codes.is_contiguous() and codes.shape == x.shape and scales.shape == expected_scales.shape
    assert torch.equal(scales.float().nan_to_num(-1), expected_scales.float().nan_to_num(-1))
    assert torch.equal(codes.float().nan_to_num(999), expected.float().nan_to_num(999))


def assert_both_sides(x, recipe, code, got, scale_dtype=None):
    """``got`` has the codes and scales of x and of its transpose."""
    assert_codes_of(x, recipe, code, got[:2], scale_dtype)
    assert_codes_of(x.mT, recipe, code, got[2:], scale_dtype)


@every_device
@pytest.mark.parametrize("recipe", NAMES)
@pytest.mark.parametrize("dtype", [F32, BF16, F16], ids=str)
def test_the_transposed_matrix(recipe, dtype, device):
    for m, k in [
        (1, 1),
        (3, 40),
        (1, 300),
        (300, 1),
        (20, 200),
        (200, 20),
        (150, 300),
        (257, 128),
        (1000, 520),
    ]:
        x = (torch.randn(m, k + 1) * torch.randn(m, 1).exp() * torch.randn(k + 1).exp()).to(dtype)
        x[: m // 3, : k // 2] = 0
        x[m // 2, k // 2] = torch.inf if k % 7 == 0 else 1e-39
        for one in (x[:, :k], x[:, 1:], x[:, :k].contiguous(), x[:, :k].contiguous().mT):
            code = E4M3 if m % 2 else E5M2
            got = fastgemm.quantize_fp8(one.to(device), recipe, dtype=code, transposed=True)
            assert_both_sides(one, recipe, code, got)
            alone = fastgemm.quantize_fp8(one.to(device).mT, recipe, dtype=code)  # from contiguous columns
            assert_codes_of(one.mT, recipe, code, alone)
        got = fastgemm.quantize_fp8(x.to(device), recipe, scale_dtype=E8M0, transposed=True)
        assert_both_sides(x, recipe, E4M3, got, E8M0)


@needs_simulator
@pytest.mark.parametrize("recipe", NAMES)
def test_the_transposed_matrix_on_the_simulator(recipe):
    for (m, k), dtype in (((130, 147), BF16), ((136, 264), F32), ((200, 1), F16)):
        x = torch.randn(m, k).to(dtype)
        with simulated_launches(count=True) as launches:
            got = fastgemm.quantize_fp8(x, recipe, transposed=True)
            alone = fastgemm.quantize_fp8(x.mT, recipe)
        assert [each["kernel"] for each in launches].count("quantize_fp8") == 2
        assert_both_sides(x, recipe, E4M3, got)
        assert_codes_of(x.mT, recipe, E4M3, alone)


@needs_simulator
@pytest.mark.parametrize("shape", [(1, 300), (300, 1)], ids=str)
@pytest.mark.parametrize("recipe", ["tensor", "row"])
def test_one_line_has_one_largest_number(shape, recipe):
    x = torch.randn(shape)
    with simulated_launches(count=True) as launches:
        got = fastgemm.quantize_fp8(x, recipe, transposed=True)
    assert_both_sides(x, recipe, E4M3, got)
    assert [each["kernel"] for each in launches] == ["largest", "quantize_fp8"]


def test_batches_of_transposed_matrices():
    one = torch.randn(1, 2, 1, 40)[:, :1]
    for recipe in NAMES:
        assert_both_sides(one, recipe, E4M3, fastgemm.quantize_fp8(one, recipe, transposed=True))
    batch = torch.randn(2, 3, 130, 140)
    for recipe in NAMES:
        assert_both_sides(batch, recipe, E4M3, fastgemm.quantize_fp8(batch, recipe, transposed=True))
        for empty in (batch[:0], batch[..., :0], batch[0, 0, :0]):
            got = fastgemm.quantize_fp8(empty, recipe, transposed=True)
            expected = *fastgemm.quantize_fp8(empty, recipe), *fastgemm.quantize_fp8(empty.mT, recipe)
            assert [x.shape for x in got] == [x.shape for x in expected]


def lines_of_all_sizes(k, dtype):
    """Rows of ordinary, tiny and huge numbers, of zeros of both signs, and with a number that is not finite."""
    x = torch.randn(6, k)
    x[1] *= 2.0**-110
    x[2] *= 2.0**100
    x[3] = torch.where(x[3] > 0.5, x[3], torch.copysign(torch.zeros(()), x[3]))
    x[4], x[5, k // 2] = torch.copysign(torch.zeros(()), x[4]), torch.inf
    return x.to(dtype)


@every_device
@pytest.mark.parametrize("k", [128, 1000, 2048, 8200, 20000])
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_lines(k, dtype, device):
    """Lines that threads hold in registers, lines of which they hold only a part, and quotients that need a
    division."""
    with torch.device("cpu"):  # torch divides otherwise on a GPU
        x = lines_of_all_sizes(k, dtype)
    for recipe in ("row", "1x128", "1x32"):
        for code in (E4M3, E5M2):
            codes, scales = fastgemm.quantize_fp8(x.to(device), recipe, dtype=code, scale_dtype=F32)
            with torch.device("cpu"):
                expected, of_torch = reference(x, recipe, code, False)
            of_a_scale = RECIPES[recipe].along_k or k
            finite = ~scales.cpu().isnan().repeat_interleave(of_a_scale, 1)[:, :k]
            assert torch.equal(scales.cpu().isnan(), ~of_torch.isfinite())
            assert torch.equal(scales.cpu().nan_to_num(0), of_torch.nan_to_num(0, 0))
            zero = (of_torch == 0).repeat_interleave(of_a_scale, 1)[:, :k]
            assert torch.equal(bits(codes.cpu())[finite & ~zero], bits(expected)[finite & ~zero])
            assert not codes.cpu().float()[zero].any()


@needs_simulator
@pytest.mark.parametrize("k", [1000, 8200])
def test_lines_on_the_simulator(k):
    x = lines_of_all_sizes(k, BF16)
    for recipe, code in (("row", E4M3), ("1x128", E5M2), ("1x32", E4M3)):
        with simulated_launches():
            codes, scales = fastgemm.quantize_fp8(x, recipe, dtype=code)
        expected = fastgemm.quantize_fp8(x, recipe, dtype=code)
        number = ~expected[0].float().isnan()
        assert torch.equal(bits(codes)[number], bits(expected[0])[number])
        assert torch.equal(codes.float().isnan(), ~number)
        assert torch.equal(scales.float().nan_to_num(-1), expected[1].float().nan_to_num(-1))


def test_layouts_and_batches():
    x = torch.randn(6, 200)
    for view in (x.T, x[:, 1:], x[::2], x[:, ::2], x[:1].expand(5, 200)):
        for recipe in NAMES:
            codes, scales = fastgemm.quantize_fp8(view, recipe)
            expected = fastgemm.quantize_fp8(view.contiguous(), recipe)
            assert torch.equal(bits(codes), bits(expected[0])) and torch.equal(
                scales.float(), expected[1].float()
            )
    batch = torch.randn(2, 3, 130, 140)
    for recipe in NAMES:
        codes, scales = fastgemm.quantize_fp8(batch, recipe)
        if recipe == "tensor":
            assert torch.equal(scales, batch.abs().max() / 448)
            continue
        assert scales.shape == (2, 3, *RECIPES[recipe].grid(130, 140))
        one = fastgemm.quantize_fp8(batch[1, 2], recipe)
        assert torch.equal(bits(codes[1, 2]), bits(one[0]))
        assert torch.equal(scales[1, 2].float(), one[1].float())
        no_matrix = fastgemm.quantize_fp8(batch[:0], recipe)
        assert no_matrix[0].shape == (0, 3, 130, 140) and no_matrix[1].shape == (0, *scales.shape[1:])


@pytest.mark.parametrize(("recipe", "transposed"), [*zip(NAMES, cycle((False, True))), (NAMES[0], True)])
def test_one_graph_for_all_batches(recipe, transposed):
    def run(x):
        return fastgemm.quantize_fp8(x, recipe, transposed=transposed)

    count = CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend=count)
    graphs = []
    for shape in ((2, 5, 130), (3, 140, 9), (4, 5, 130), (5, 140, 9), (0, 5, 130)):
        x = torch.randn(shape)
        for got, wanted in zip(compiled(x), run(x), strict=True):
            assert got.stride() == wanted.stride() and got.dtype == wanted.dtype
            assert torch.equal(got.float(), wanted.float())
        graphs.append(count.frame_count)
    assert graphs[1] == graphs[3]
    for x in (torch.randn(2, 130, 256), torch.randn(2, 128, 130), torch.randn(2, 256, 130).mT):
        for got, wanted in zip(compiled(x), run(x), strict=True):
            assert torch.equal(got.float(), wanted.float())


@pytest.mark.parametrize("trace", ["jit", "fx"])
@pytest.mark.parametrize(("recipe", "transposed"), [("128x128", False), *((name, True) for name in NAMES)])
def test_one_trace_for_all_batches(recipe, transposed, trace):
    def run(x):
        return fastgemm.quantize_fp8(x, recipe, transposed=transposed)

    example = torch.randn(2, 64, 256)
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)  # a size that became a constant
        by_fx = make_fx(run, tracing_mode="symbolic")
        traced = torch.jit.trace(run, example) if trace == "jit" else by_fx(example)
    for shape in ((2, 64, 256), (3, 130, 300), (3, 128, 128), (0, 5, 7)):
        x = torch.randn(shape)
        for got, wanted in zip(traced(x), run(x), strict=True):
            assert got.stride() == wanted.stride() and got.dtype == wanted.dtype
            assert torch.equal(got.float(), wanted.float())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_special_numbers(value):
    x = torch.randn(4, 300)
    x[1, 140] = value
    for recipe in ("row", "1x128", "1x32", "tensor"):
        codes, scales = fastgemm.quantize_fp8(x, recipe)
        got = dequantized(codes, scales, recipe)
        assert got[1, 140].isnan()
        good = torch.ones(4, 300, dtype=torch.bool)
        blocks = RECIPES[recipe]
        start = 140 // (blocks.along_k or 300) * (blocks.along_k or 300)
        rows = slice(None) if recipe == "tensor" else slice(1, 2)
        good[rows, start : start + (blocks.along_k or 300)] = False
        assert got[~good].isnan().all() and got[good].isfinite().all()


def test_blocks_of_many_rows():
    """The op also takes blocks of any number of rows, such as 300 of 1000."""
    x = torch.randn(1000, 200)
    codes, scales = torch.ops.fastgemm.quantize_fp8(x, block_rows=300, block_cols=0)
    assert scales.shape == (4, 1)
    for i in range(4):
        part = x[300 * i : 300 * (i + 1)]
        assert scales[i, 0] == part.abs().max() / 448
        assert torch.equal(bits(codes[300 * i : 300 * (i + 1)]), bits((part / scales[i]).to(E4M3)))


def test_zeros_and_small_numbers():
    codes, scales = fastgemm.quantize_fp8(torch.zeros(3, 130), "1x128")
    assert not scales.any() and not codes.float().any()
    tiny = torch.full((2, 40), 1e-44)  # the scale would be below the smallest float32
    codes, scales = fastgemm.quantize_fp8(tiny, "row")
    assert dequantized(codes, scales, "row").isfinite().all()
    codes, scales = fastgemm.quantize_fp8(tiny, "1x32")
    assert scales.float().eq(2.0**-127).all() and codes.float().eq(0).all()


@pytest.mark.parametrize("simulated", [False, pytest.param(True, marks=needs_simulator)])
@pytest.mark.parametrize("code", [E4M3, E5M2], ids=str)
def test_the_smallest_scales_of_e8m0(code, simulated):
    """Byte 0 is 2^-127: what is below rounds up to it, and what is above to 2^-126."""
    scales = torch.tensor([2.0**-149, 2.0**-128, 2.0**-127, 1.5 * 2.0**-127, 2.0**-126, 1.5 * 2.0**-126])
    x = torch.linspace(-1, 1, 64) * (scales.double() * LARGEST[code])[:, None].float()
    for recipe, transposed in (("row", True), ("row", False), ("1x32", True), ("1x32", False)):
        how = {"dtype": code, "scale_dtype": E8M0, "transposed": transposed}
        with simulated_launches() if simulated else torch.no_grad():
            codes, made, *_ = fastgemm.quantize_fp8(x, recipe, **how)
        expected, of_torch = reference(x, recipe, code, True)
        assert bits(made)[:, 0].tolist() == [0, 0, 0, 1, 1, 2]
        assert torch.equal(made.float(), of_torch) and torch.equal(bits(codes), bits(expected))


@every_device
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("recipe", NAMES)
def test_empty(shape, recipe, device):
    """Scales of a matrix without numbers are those of zeros."""
    torch.use_deterministic_algorithms(True)  # torch then fills new memory with NaN
    try:
        m, k = shape
        got = fastgemm.quantize_fp8(torch.empty(shape, device=device), recipe, transposed=True)
        alone = fastgemm.quantize_fp8(torch.empty(shape, device=device), recipe)
    finally:
        torch.use_deterministic_algorithms(False)
    zero = 2.0**-127 if got[1].dtype == E8M0 else 0.0
    for (codes, scales), rows, cols in ((alone, m, k), (got[:2], m, k), (got[2:], k, m)):
        assert codes.shape == (rows, cols)
        assert scales.shape == (() if recipe == "tensor" else RECIPES[recipe].grid(rows, cols))
        assert scales.float().eq(zero).all()


@pytest.mark.parametrize("recipe", ["tensor", "row"])
def test_products_over_no_rows_are_zeros(recipe):
    """The gradient of a weight without tokens, such as that of an expert which none chose."""
    (*_, a_t, scale_a), (*_, g_t, scale_g) = (
        fastgemm.quantize_fp8(torch.empty(0, n), recipe, transposed=True) for n in (48, 40)
    )
    assert not fastgemm.scaled_mm(g_t, a_t.mT, scale_g, scale_a.mT).any()


@pytest.mark.parametrize(
    "given, error, text",
    [
        (([1.0],), TypeError, "x must be a torch.Tensor, got list"),
        ((torch.ones(2, 2, dtype=torch.int8),), TypeError, "x must be float32, bfloat16 or float16"),
        ((torch.ones(2),), ValueError, "at least 2 dimensions"),
        ((torch.ones(2, 2), "column"), ValueError, "unknown recipe 'column'; accepted: 'tensor'"),
        ((torch.ones(2, 2), ["row"]), ValueError, r"unknown recipe \['row'\]; accepted: 'tensor'"),
        ((torch.ones(2, 2).to_sparse(),), NotImplementedError, "x has layout torch.sparse_coo"),
    ],
    ids=str,
)
def test_errors(given, error, text):
    with pytest.raises(error, match=f"^fastgemm.quantize_fp8: .*{text}"):
        fastgemm.quantize_fp8(*given)
    with pytest.raises(ValueError, match="not of 3 x 0"):
        torch.ops.fastgemm._quantize_fp8_with_transposed(torch.ones(2, 2), block_rows=3, block_cols=0)
    for name in ("dtype", "scale_dtype"):
        for wrong in (torch.float64, {}, torch.ones(2)):
            with pytest.raises(ValueError, match=f"{name} must be"):
                fastgemm.quantize_fp8(torch.ones(2, 2), **{name: wrong})
