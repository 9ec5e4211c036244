"""Tests fastgemm.patch with torch's products of 8-bit floating point, and what ``extend=True`` adds."""

import fastgemm
import pytest
import torch
from patches import needs_library
from reference import every_device
from torch.nn import functional

E4M3, E5M2, E8M0 = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
LEVEL = 5  # a patch with a level takes all that torch takes, also where torch is faster
SHAPE = 48, 304, 272  # M, N, K: multiples of 16, but not of 128
IN_BLOCKS = 48, 384, 512  # sizes that cuBLASLt takes with scales of blocks
OTHER_FORM, OF_TORCH = "scales of another form", "scales of other recipes or strides than torch's"


def has_kernel(op, device):
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{op}", device.upper())


def needs_v2(device):
    if not hasattr(functional, "scaled_mm") or not has_kernel("_scaled_mm_v2", device):
        pytest.skip("this torch has no _scaled_mm_v2 here")


def needs_rows(device):
    """torch's CPU kernel takes scales of rows only in versions that have _scaled_mm_v2."""
    if not is_torchs(("row", "row"), device):
        pytest.skip("this torch takes no scales of rows here")


pytestmark = [every_device, needs_library]


@pytest.fixture(autouse=True)
def a_gpu_has_fp8(device):
    if device == "cuda" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("what torch refuses is known of Hopper")


def codes(lines, k, dtype=E4M3):
    return torch.randn(lines, k).to(dtype)


def drawn(recipe, lines, k):
    """Scales, a row for each block of lines, as cuBLASLt reads them."""
    across = -(-k // 128)
    if recipe == "1x128":
        return (torch.rand(across, lines) + 0.5).T
    grid = {"tensor": (1, 1), "row": (lines, 1), "128x128": (-(-lines // 128), across)}[recipe]
    return torch.rand(grid) + 0.5


def spread(scales, lines, k):
    """The scale of each code, in float64."""
    size = [1 if n == s else s if n == 1 else 128 for n, s in zip(scales.shape, (lines, k), strict=True)]
    wide = scales.double().repeat_interleave(size[0], 0).repeat_interleave(size[1], 1)
    return wide[:lines, :k]


def expected(a, w, scale_a, scale_w, bias=None):
    m, (n, k) = len(a), w.shape
    product = (a.double() * spread(scale_a, m, k)) @ (w.double() * spread(scale_w, n, k)).mT
    return product if bias is None else product + bias.double()


def by_v1(a, w, scale_a, scale_w, **options):
    return torch._scaled_mm(a, w.mT, scale_a, scale_w.mT, **{"out_dtype": BF16, **options})


def of_v2(scale, recipe, is_b):
    """What torch.nn.functional.scaled_mm takes for these scales."""
    if recipe == "row" and is_b:
        return scale.mT
    if recipe != "128x128":
        return scale
    padded = functional.pad(scale, (0, -scale.shape[1] % 4))
    return padded.mT  # (k, lines), a column beginning at a multiple of 16 bytes


NAMES = {"tensor": "TensorWise", "row": "RowWise", "1x128": "BlockWise1x128", "128x128": "BlockWise128x128"}


def by_v2(a, w, scale_a, scale_w, recipes, **options):
    kind = functional.ScalingType
    of_a, of_b = (getattr(kind, NAMES[recipe]) for recipe in recipes)
    scales = of_v2(scale_a, recipes[0], False), of_a, of_v2(scale_w, recipes[1], True), of_b
    return functional.scaled_mm(a, w.mT, *scales, **{"output_dtype": BF16, **options})


def assert_near(result, wanted, dtype=BF16):
    assert result.dtype == dtype and result.is_contiguous()
    limit = {F32: 1e-3, BF16: 4e-3, F16: 1e-3}[dtype]
    assert (result.double() - wanted).norm() <= limit * wanted.norm()


# What torch takes


@pytest.mark.parametrize("recipe", ("tensor", "row"))
@pytest.mark.parametrize("dtype", (BF16, F16, F32), ids=str)
def test_a_level_takes_what_torch_takes(recipe, dtype, device):
    if recipe == "row":
        needs_rows(device)
    m, n, k = SHAPE
    a, w = codes(m, k), codes(n, k, E5M2)
    scales = drawn(recipe, m, k), drawn(recipe, n, k)
    bias = None if dtype == F32 else torch.randn(n).to(dtype)
    torchs = by_v1(a, w, *scales, out_dtype=dtype, bias=bias)
    with fastgemm.patch(level=LEVEL) as routed:
        got = by_v1(a, w, *scales, out_dtype=dtype, bias=bias)
    assert routed.ops == {"_scaled_mm": 1} and not routed.passed_on
    assert got.shape == torchs.shape and got.stride() == torchs.stride()
    assert_near(got, expected(a, w, *scales, bias), dtype)
    blocks = {"recipe_a": recipe, "recipe_b": recipe, "out_dtype": dtype, "bias": bias}
    assert torch.equal(got, fastgemm.scaled_mm(a, w.mT, scales[0], scales[1].mT, level=LEVEL, **blocks))


@pytest.mark.parametrize("recipe", ("tensor", "row"))
def test_the_second_version(recipe, device):
    needs_v2(device)
    m, n, k = SHAPE
    a, w, bias = codes(m, k), codes(n, k), torch.randn(n).to(BF16)
    scales = drawn(recipe, m, k), drawn(recipe, n, k)
    torchs = by_v2(a, w, *scales, (recipe, recipe), bias=bias)
    with fastgemm.patch(level=LEVEL) as routed:
        got = by_v2(a, w, *scales, (recipe, recipe), bias=bias)
    assert routed.ops == {"_scaled_mm_v2": 1} and got.stride() == torchs.stride()
    assert_near(got, expected(a, w, *scales, bias))


def test_into_a_given_tensor():
    m, n, k = SHAPE
    a, w, scales = codes(m, k), codes(n, k), (drawn("tensor", m, k), drawn("tensor", n, k))
    out = torch.zeros(n, m, dtype=BF16).mT
    with fastgemm.patch(level=LEVEL) as routed:
        made = torch._scaled_mm(a, w.mT, scales[0], scales[1].mT, out_dtype=BF16, out=out)
        torch._scaled_mm(a, w.mT, *scales[:1], scales[1].mT, out=torch.empty(0, dtype=BF16), out_dtype=BF16)
    assert made is out and routed.passed_on == {("_scaled_mm", "an out= that torch would resize"): 1}
    assert (out.double() - expected(a, w, *scales)).norm() <= 4e-3 * out.double().norm()


def test_the_faster_one(device):
    """On a CPU without AMX fastgemm is faster. On Hopper it is faster for few rows; how few depends on the
    recipe."""
    needs_rows(device)
    of_hopper = {  # rows, N, K, recipe
        (64, 1024, 768, "row"): True,
        (128, 4096, 4096, "row"): True,
        (129, 4096, 4096, "row"): False,  # by its rows alone
        (80, 2048, 4096, "row"): False,
        (16, 8192, 4096, "tensor"): True,
        (16, 4096, 4096, "tensor"): False,
        (1, 4096, 4096, "row"): True,
    }
    for (m, n, k, recipe), on_hopper in of_hopper.items():
        if device == "cpu":
            n, k = n // 16, k // 16
        a, w, scales = codes(m, k), codes(n, k), (drawn(recipe, m, k), drawn(recipe, n, k))
        with fastgemm.patch() as routed:
            result = by_v1(a, w, *scales)
        assert_near(result, expected(a, w, *scales))
        faster = on_hopper if device == "cuda" else not fastgemm._introspect.cpu_properties()["amx_int8"]
        reason = "torch's kernel is faster for these scales and sizes"
        assert routed.total == faster
        assert routed.passed_on == ({} if faster else {("_scaled_mm", reason): 1})


@pytest.mark.parametrize("of_w", ("tensor", "row"))
def test_one_row(of_w, device):
    """With one row, its scale counts as that of the whole matrix if the other operand has such a scale."""
    needs_rows(device)
    _, n, k = SHAPE
    a, w, scales = codes(1, k), codes(n, k), (drawn("row", 1, k), drawn(of_w, n, k))
    with fastgemm.patch(level=LEVEL) as routed:
        got = by_v1(a, w, *scales)
    assert routed.total == 1
    assert_near(got, expected(a, w, *scales))


def test_a_compiled_program():
    m, n, k = SHAPE
    a, w, scales = codes(m, k), codes(n, k), (drawn("tensor", m, k), drawn("tensor", n, k))
    torch._dynamo.reset()
    compiled = torch.compile(by_v1, fullgraph=True)
    with fastgemm.patch(level=LEVEL) as routed:
        got = compiled(a, w, *scales)
    assert routed.ops == {"_scaled_mm": 1}
    assert_near(got, expected(a, w, *scales))


def test_sums_are_promoted_in_both_modes():
    m, n, k = SHAPE
    a, w, scales = codes(m, k), codes(n, k), (drawn("tensor", m, k), drawn("tensor", n, k))
    with fastgemm.patch(level=LEVEL) as routed:
        fast = by_v1(a, w, *scales, use_fast_accum=True)
        assert torch.equal(fast, by_v1(a, w, *scales))
    assert routed.ops == {"_scaled_mm": 2}


def test_passed_on_whatever_the_patch():
    m, n, k = SHAPE
    a, w, one = codes(m, k), codes(n, k), torch.ones(1)
    with fastgemm.patch(level=LEVEL, extend=True) as routed:
        result = torch._scaled_mm(a, w.mT, one, one)  # of the dtype of a
        torch._scaled_mm(a, w.mT, one, one, out_dtype=BF16, scale_result=one)
        empty = torch._scaled_mm(a[:0], w.mT, one, one, out_dtype=BF16)
    assert result.dtype == E4M3 and empty.shape == (0, n) and not routed.total
    reasons = ("a result of float8_e4m3fn", "a scale of the result", "a product without elements")
    assert routed.passed_on == {("_scaled_mm", reason): 1 for reason in reasons}


# What torch refuses

PAIRS = [(a, b) for a in NAMES for b in NAMES]


def is_torchs(pair, device):
    if pair == ("row", "row"):
        return device == "cuda" or has_kernel("_scaled_mm_v2", device)
    of_blocks = set(pair) <= {"1x128", "128x128"} and "1x128" in pair
    return pair == ("tensor", "tensor") or (device == "cuda" and of_blocks)


@pytest.mark.parametrize("version", (1, 2))
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_every_pair_of_recipes(pair, version, device):
    """Scales in torch's shapes and strides mean the same in both."""
    if version == 2:
        needs_v2(device)
    m, n, k = SHAPE if device == "cpu" else IN_BLOCKS
    a, w = codes(m, k), codes(n, k)
    scales = drawn(pair[0], m, k), drawn(pair[1], n, k)

    def run():
        return by_v1(a, w, *scales) if version == 1 else by_v2(a, w, *scales, pair)

    op, wanted = "_scaled_mm" if version == 1 else "_scaled_mm_v2", expected(a, w, *scales)
    taken = is_torchs(pair, device)
    if taken:
        assert_near(run(), wanted)
    else:
        with fastgemm.patch() as routed, pytest.raises((RuntimeError, ValueError)):
            run()
        assert routed.passed_on == {(op, OF_TORCH): 1}
    choice = {"level": LEVEL} if taken else {}
    with fastgemm.patch(extend=True, **choice) as routed:
        got = run()
    assert routed.ops == {op: 1}
    assert_near(got, wanted)


@pytest.mark.parametrize("layout", ("NN", "TN", "TT", "short", "odd"))
def test_other_layouts_and_sizes(layout, device):
    """torch takes them on a CPU, but not on Hopper."""
    needs_rows(device)
    m, n, k = (47, 305, 271) if layout == "odd" else SHAPE
    a, w = codes(m, k), codes(n, k, E5M2)
    a = a.mT.contiguous().mT if layout[0] == "T" else a
    w = w.mT.contiguous().mT if layout in ("NN", "TN") else w
    a, w = (a[:, 1:], w[:, 1:]) if layout == "short" else (a, w)
    scales = drawn("row", m, k), drawn("row", n, k)
    if device == "cuda":
        with fastgemm.patch(level=LEVEL) as routed, pytest.raises((RuntimeError, ValueError)):
            by_v1(a, w, *scales)
        assert routed.passed_on.total() == 1
    with fastgemm.patch(extend=True, **({} if device == "cuda" else {"level": LEVEL})) as routed:
        got = by_v1(a, w, *scales)
    assert routed.total == 1
    assert_near(got, expected(a, w, *scales))


def test_other_strides_of_scales():
    m, n, k = SHAPE
    a, w = codes(m, k), codes(n, k)
    scales = drawn("row", m, k).repeat(1, 2)[:, :1], drawn("row", n, k)
    with fastgemm.patch() as routed, pytest.raises((RuntimeError, ValueError)):
        by_v1(a, w, *scales)
    assert routed.passed_on == {("_scaled_mm", OF_TORCH): 1}
    with fastgemm.patch(extend=True) as routed:
        got = by_v1(a, w, *scales)
    assert routed.total == 1
    assert_near(got, expected(a, w, *scales))


def test_errors_remain_torchs(device):
    """What neither torch nor fastgemm takes raises torch's error, under every patch."""
    needs_rows(device)
    m, n, k = SHAPE
    a, w, one = codes(m, k), codes(n, k), torch.ones(1)
    wrong = [
        ((a, w.mT, torch.ones(m, 2), one), OTHER_FORM),
        ((a, w.mT, one.double(), one), OTHER_FORM),
        ((a, w.mT, torch.ones(m, 9, dtype=torch.uint8).view(E8M0), one), OTHER_FORM),
        ((a, codes(n, k + 16).mT, one, one), "other inner sizes"),
        ((a.float(), w.mT, one, one), "dtype float32"),
        ((a[None], w.mT, one, one), "a tensor of 3 dimensions"),
    ]
    for given, reason in wrong:
        with pytest.raises((RuntimeError, ValueError)) as torchs:
            torch._scaled_mm(*given, out_dtype=BF16)
        for options in ({}, {"extend": True}, {"level": LEVEL}):
            with fastgemm.patch(**options) as routed, pytest.raises(torchs.type) as own:
                torch._scaled_mm(*given, out_dtype=BF16)
            assert str(own.value) == str(torchs.value)
            assert routed.passed_on == {("_scaled_mm", reason): 1}


def test_errors_of_the_second_version_remain_torchs(device):
    needs_v2(device)
    m, n, k = SHAPE
    a, w, rows = codes(m, k), codes(n, k), (torch.ones(m, 1), torch.ones(1, n))
    row = functional.ScalingType.RowWise
    for scale_b, options, reason in (
        (rows[1][:, :-1], {}, OTHER_FORM),
        ([rows[1]] * 2, {}, OTHER_FORM),
        (rows[1], {"contraction_dim": [0, 0]}, "contraction_dim"),
    ):
        given = a, w.mT, rows[0], row, scale_b, [row] * 2 if isinstance(scale_b, list) else row
        with fastgemm.patch(extend=True) as routed, pytest.raises((RuntimeError, ValueError)):
            functional.scaled_mm(*given, **options)
        assert routed.passed_on == {("_scaled_mm_v2", reason): 1}
    swizzled = {"swizzle_a": functional.SwizzleType.SWIZZLE_32_4_4}  # which has no meaning for scales of rows
    with fastgemm.patch(extend=True, level=LEVEL) as routed:
        functional.scaled_mm(a, w.mT, rows[0], row, rows[1], row, **swizzled)
    assert routed.passed_on == {("_scaled_mm_v2", OTHER_FORM): 1}
