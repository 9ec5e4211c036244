"""Tests packed_wgmma on the simulator, with all its checks: codes, scales and zero points of all kinds, how blocks
share the work, and that bits do not depend on other rows."""

from typing import NamedTuple

import pytest
import torch
from fastgemm._introspect import take_last_gemm_kernel
from fastgemm._quantized.formats import CODES, SCALES, Packing, Parts, ZeroKind
from fastgemm._quantized.layout import dequantize, to_units
from reference import needs_simulator, row_id, simulated_launches
from torch import Tensor

pytestmark = needs_simulator

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
UNIT = {BF16: 2**-8, F16: 2**-11, F32: 2**-24}  # of a rounding
ROWS = 1 << 20  # a group_k: one scale for each row


class Weight(NamedTuple):
    """A weight in units, and its numbers in float64."""

    packing: Packing
    parts: Parts
    by: Tensor | None
    numbers: Tensor
    exact: bool  # its codes are exact in 16 bits


def weight(
    n: int,
    k: int,
    code: str,
    scale: str,
    group: tuple[int, int],
    zero: ZeroKind = "none",
    whole: bool = False,
) -> Weight:
    """Random codes, scales and zero points. With ``whole`` there is a factor of all."""
    packing = Packing(n, k, code, scale, zero, *group)
    codes = torch.randint(256, packing.code_shape, dtype=torch.uint8)
    if code == "e4m3":
        codes[codes & 127 == 127] = 0
    if scale == "e8m0":
        scales = torch.randint(120, 132, packing.groups, dtype=torch.uint8).view(SCALES[scale])
    else:
        scales = (torch.rand(packing.groups) + 0.1).to(SCALES[scale])
    zeros = None
    if packing.zero_dtype is not None:
        zeros = torch.randint(-8, 8, packing.groups).to(packing.zero_dtype)
    parts = Parts(codes.view(CODES[code].dtype), scales, zeros)
    by = torch.tensor(0.75) if whole else None
    numbers = dequantize(parts, packing, by, None, F32).double()
    return Weight(packing._replace(units=True), to_units(parts, packing), by, numbers, code != "nf4")


def multiply(
    x: Tensor, w: Weight, bias: Tensor | None = None, residual: Tensor | None = None, **options: object
):
    p = w.packing
    if not options.get("invariant"):
        options["impl"] = "packed_wgmma"
    return torch.ops.fastgemm.quantized_linear(
        *(x, *w.parts, w.by, bias, residual),
        **{"n": p.n, "code": p.code, "scale": p.scale, "zero": p.zero, "units": True},
        **{"group_n": p.group_n, "group_k": p.group_k, **options},
    )


def expected(x: Tensor, w: Weight) -> Tensor:
    return x.double() @ w.numbers.T


def assert_near(
    result: Tensor, x: Tensor, w: Weight, of_weights: bool = False, reference: Tensor | None = None
):
    """``of_weights``: the weights may have been rounded to the type of x. The errors of numbers with the same bits
    and scale are alike, hence 10 / sqrt(k)."""
    reference = expected(x, w) if reference is None else reference
    k, rounding = x.shape[1], UNIT[x.dtype] if of_weights or not w.exact else 0.0
    sizes = x.double().abs() @ w.numbers.abs().T
    bound = (2**-23 * (k**0.5 + 3) + rounding * min(1, 10 / k**0.5)) * sizes + UNIT[
        result.dtype
    ] * reference.abs()
    assert result.shape == reference.shape
    worst = ((result.double() - reference).abs() / (bound * 1.1 + 1e-30)).max().item()
    assert worst <= 1, worst


KINDS = [
    ("int4", "bf16", (1, 128), "none"),
    ("int4", "f16", (1, 32), "none"),
    ("int4", "f32", (64, 64), "subtracted"),
    ("int4", "f16", (1, 256), "subtracted"),
    ("int4", "bf16", (1, 64), "added"),
    ("int4", "f32", (1, ROWS), "subtracted"),
    ("int8", "f32", (1, ROWS), "none"),
    ("int8", "f32", (1, ROWS), "added"),
    ("int8", "f16", (1, 16), "subtracted"),
    ("e4m3", "f32", (128, 128), "none"),
    ("e4m3", "f32", (1, ROWS), "none"),
    ("nf4", "f32", (1, 64), "none"),
    ("nf4", "bf16", (1, 16), "none"),
    ("e2m1", "e8m0", (1, 32), "none"),
    ("e2m1", "e4m3", (1, 16), "none"),
]
# Scales of the type of x, or of 8 bits, for groups of each size.
PAIRED = [
    ("int4", "bf16", (1, 16), "none"),
    ("int4", "f16", (1, 32), "added"),
    ("int8", "bf16", (1, 64), "none"),
    ("nf4", "bf16", (1, 128), "none"),
    ("e2m1", "bf16", (1, 64), "none"),
]


def kind_id(kind: object) -> str:
    return "-".join(map(str, kind)).replace(" ", "") if isinstance(kind, tuple) else row_id(kind)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=row_id)
@pytest.mark.parametrize("kind", [*KINDS, *PAIRED], ids=kind_id)
def test_every_kind(kind, dtype):
    code, scale, group, zero = kind
    n, k = 130, 392
    w = weight(n, k, code, scale, group, zero, whole=code == "e2m1" and (dtype == BF16 or scale == "e4m3"))
    by_rows = group[1] == ROWS
    if code == "nf4" and group[1] < 64:
        with simulated_launches(), pytest.raises(RuntimeError, match="rounded twice"):
            multiply(torch.randn(1, k).to(dtype), w)
        return
    for m, multiprocessors in (5, 2), (40, 4), (66, 2):  # 40: by tall tiles, where one wave of them is enough
        x = torch.randn(m, k).to(dtype)
        with simulated_launches(multiprocessors=multiprocessors):
            result = multiply(x, w)
            assert take_last_gemm_kernel() == "packed_wgmma"
        rounded = zero == "added" or (not by_rows and (group[1] < 128 or m > 64))
        assert_near(result, x, w, of_weights=rounded)


# m, n, k and multiprocessors: one row; all rows of the smallest tile; more rows; several tiles of x; fewer tiles
# than multiprocessors, which then share them; fewer stages than multiprocessors; a k smaller than a unit.
SHAPES = [(1, 70, 520, 1), (16, 200, 1100, 3), (17, 330, 528, 4), (40, 270, 390, 3), (64, 65, 390, 7)]
SHAPES += [(70, 300, 260, 4), (256, 64, 128, 2), (3, 1, 1, 3), (9, 577, 17, 2)]
# Clusters of two and of four blocks: one tile, several for each cluster, and a tile whose stages do not divide.
CLUSTERS = {(7, 64, 2048, 8): 4, (3, 190, 3600, 14): 4, (16, 300, 1608, 4): 2, (20, 300, 1600, 4): 2}
CLUSTERS |= {(40, 130, 2048, 9): 2}  # tall tiles
SHAPES += CLUSTERS
SHAPES += [(5, 70, 1216, 1), (16, 130, 1152, 3), (9, 200, 1088, 5)]  # one box of x for a stage of 512 columns
SHAPES += [(40, 200, 2048, 30)]  # tall tiles whose k all blocks share


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_shapes_and_strides(shape):
    m, n, k, multiprocessors = shape
    w = weight(n, k, "int4", "bf16", (1, 32), "subtracted")
    everywhere = torch.randn(m + 1, k + 8).to(BF16)
    with simulated_launches(multiprocessors=multiprocessors):
        for x in (
            *(everywhere[:m, :k], everywhere[1:, 8:]),  # in place, if k is a multiple of 8
            *(everywhere[1:, 3 : k + 3], everywhere[:1, :k].expand(m, k)),
        ):
            assert_near(multiply(x, w), x, w, of_weights=True)


@pytest.mark.parametrize("shape", CLUSTERS, ids=lambda shape: "x".join(map(str, shape)))
def test_clusters(shape):
    m, n, k, multiprocessors = shape
    w = weight(n, k, "int4", "bf16", (1, 128))
    x, bias = torch.randn(m, k).to(BF16), torch.randn(n).to(BF16)
    with simulated_launches(multiprocessors=multiprocessors, count=True) as launches:
        assert_near(multiply(x, w), x, w)
        assert_near(multiply(x, w, bias), x, w, reference=expected(x, w) + bias.double())
    clusters = [launch["cluster"] for launch in launches if launch["kernel"] == "packed_wgmma"]
    assert clusters == [CLUSTERS[shape]] * 2


def test_turns_of_tall_tiles():
    """Five tall tiles for two clusters. The last one has rows for only one of its rows of units."""
    m, n, k = 20, 570, 2048
    w, x = weight(n, k, "int8", "f32", (1, ROWS)), torch.randn(m, k).to(BF16)
    with simulated_launches(multiprocessors=4, count=True) as launches:
        assert_near(multiply(x, w), x, w)
    assert [launch["cluster"] for launch in launches if launch["kernel"] == "packed_wgmma"] == [2]


def test_many_rows_by_tall_tiles_scale_sums():
    """Codes stay exact then, and nothing is rounded before the result."""
    m, n, k = 90, 130, 2048
    w, x = weight(n, k, "int4", "bf16", (1, 128)), torch.randn(m, k).to(BF16)
    with simulated_launches(multiprocessors=30):
        assert_near(multiply(x, w, out_dtype=F32), x, w)


@pytest.mark.parametrize("multiprocessors", [2, 5])
@pytest.mark.parametrize("m", [6, 40])
def test_layers(m, multiprocessors):
    """Bias and residual, with an activation and without, rounded once; a result of float32."""
    n, k = 260, 1032
    w = weight(n, k, "int8", "f32", (1, ROWS))
    x, bias, residual = (torch.randn(*shape).to(F16) for shape in ((m, k), (n,), (m, n)))
    product = expected(x, w)
    with simulated_launches(multiprocessors=multiprocessors):
        assert_near(multiply(x, w, bias), x, w, reference=product + bias.double())
        relu = (product + bias.double()).relu() + residual.double()
        assert_near(multiply(x, w, bias, residual, activation="relu"), x, w, reference=relu)
        wide = multiply(x, w, out_dtype=F32)
    assert wide.dtype == F32
    assert_near(wide, x, w)


# Kinds whose scales serve whole rows, groups of 16 weights and groups of 64.
@pytest.mark.parametrize("kind", [KINDS[5], KINDS[8], KINDS[11]], ids=kind_id)
def test_invariant(kind):
    code, scale, group, zero = kind
    w = weight(200, 1100, code, scale, group, zero)
    x = torch.randn(70, 1100).to(BF16)
    with simulated_launches(multiprocessors=3, count=True) as launches:
        every = multiply(x, w, invariant=True)
        for rows in ([3], [*range(5, 30)], [69, 40, 7]):
            assert torch.equal(multiply(x[rows], w, invariant=True), every[rows])
    kernels = {launch["kernel"] for launch in launches}
    assert "packed_wgmma" not in kernels  # it takes only few rows, and would add in another order


def test_infinities_and_nan():
    """They stay in their rows of x and of the weight."""
    w = weight(70, 300, "int4", "bf16", (1, 128))
    x = torch.randn(4, 300).to(BF16)
    x[1, 5], x[2, 299] = torch.inf, torch.nan
    with simulated_launches(multiprocessors=2):
        result = multiply(x, w)
    assert not result[1].isfinite().any() and result[2].isnan().all()
    assert_near(result[::3], x[::3], w)


@pytest.mark.parametrize("scale, group", [("e8m0", 32), ("e4m3", 16)])
def test_every_scale_of_8_bits(scale, group):
    """The weight has a row for each scale: subnormal ones, the largest, and NaN."""
    packing = Packing(256, 2 * group, "e2m1", scale, "none", 1, group)
    codes = torch.full(packing.code_shape, 0x12, dtype=torch.uint8)  # 1 and 0.5
    scales = torch.arange(256, dtype=torch.uint8)[:, None].repeat(1, 2).view(SCALES[scale])
    w = Weight(packing._replace(units=True), to_units(Parts(codes, scales), packing), None, codes, True)
    x = torch.zeros(1, 2 * group, dtype=BF16)
    x[0, 1], x[0, group + 1] = 1, -0.5
    with simulated_launches(multiprocessors=1):
        result = multiply(x, w, out_dtype=F32)[0].double()
    torch.testing.assert_close(result, 0.25 * scales[:, 0].double(), rtol=0, atol=0, equal_nan=True)
