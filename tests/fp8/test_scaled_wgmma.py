"""Tests scaled_wgmma, which multiplies codes by the fp8 instructions of Hopper, on the simulator and on a GPU."""

from itertools import product

import fastgemm
import pytest
import torch
from reference import needs_simulator, simulated_launches
from scaled import BF16, E4M3, E5M2, E8M0, F16, F32, NAMES, assert_near, dequantized, operand

KERNEL = "scaled_wgmma"
RECIPES = [
    ("tensor", "row"), ("row", "row"), ("1x128", "128x128"), ("128x128", "1x128"), ("1x128", "1x128"),
    ("128x128", "128x128"), ("1x32", "1x32"), ("row", "1x32"), ("1x128", "row"),
]  # fmt: skip
SHAPES = [(33, 20, 140), (200, 130, 300), (5, 400, 129), (260, 7, 1030)]
# M and N, and the tile that is chosen for them (fp8/scaled_tile.h) with the simulator's three multiprocessors. A
# second tile is that for scales of columns.
TILES = {
    (12, 16): ("192, 64, 64",),
    (12, 200): ("192, 64, 64",),
    (200, 96): ("192, 128, 128",),
    (100, 512): ("192, 128, 128",),
    (12, 768): ("256, 64, 64",),
    (768, 120): ("256, 128, 64", "192, 128, 128"),
    (120, 768): ("256, 128, 64", "256, 64, 64"),
}


def multiply(a, b, scale_a, scale_b, **options):
    with simulated_launches():
        return fastgemm.scaled_mm(a, b, scale_a, scale_b, kernel=KERNEL, **options)


def check(m, n, k, recipes, codes=(E4M3, E4M3), scales=F32, *, turned=(False, False), **options):
    a, scale_a = operand(m, k, recipes[0], codes[0], scales)
    w, scale_b = operand(n, k, recipes[1], codes[1], scales)
    exact = dequantized(a, scale_a, recipes[0]), dequantized(w, scale_b, recipes[1]).mT
    if turned[0]:
        scale_a = scale_a.mT.contiguous().mT
    if turned[1]:
        scale_b = scale_b.mT.contiguous().mT
    names = {"recipe_a": recipes[0], "recipe_b": recipes[1]}
    assert_near(multiply(a, w.mT, scale_a, scale_b.mT, **names, **options), *exact)


@needs_simulator
@pytest.mark.parametrize("recipes", RECIPES, ids="-".join)
def test_recipes(recipes):
    for shape, out in zip(SHAPES, (BF16, F32, F32, BF16), strict=True):
        check(*shape, recipes, out_dtype=out)


@needs_simulator
@pytest.mark.parametrize("shape", TILES, ids=str)
@pytest.mark.parametrize("recipe", ["row", "128x128", "1x128"])
def test_tiles(shape, recipe):
    """Each tile has kernels for all kinds of scales, except that the largest one has none for scales of columns. k
    ends within a stage, and the longer k fills the ring several times."""
    tile = TILES[shape][-1 if recipe == "1x128" else 0]
    for k, out in ((140, BF16), (1030, F32)):
        a, scale_a = operand(shape[0], k, recipe)
        w, scale_b = operand(shape[1], k, recipe)
        with simulated_launches() as launches:
            result = fastgemm.scaled_mm(a, w.mT, scale_a, scale_b.mT, out_dtype=out)
        assert_near(result, dequantized(a, scale_a, recipe), dequantized(w, scale_b, recipe).mT)
        if k == 140:  # a longer k may have another tile
            assert any(f"ScaledShape<{tile}," in launch["function"] for launch in launches)


@needs_simulator
def test_blocks_share_tiles():
    """There are two tiles and three blocks: the second block does the end of the first tile and the beginning of
    the second one."""
    check(260, 7, 5700, ("row", "row"), out_dtype=F32)


@needs_simulator
def test_results_that_boxes_cannot_store():
    """For these sizes tiles of 256 rows would be chosen. But rows of 2 n bytes, no multiple of 16, must be stored
    by threads."""
    check(768, 121, 140, ("row", "row"), out_dtype=BF16)
    check(120, 769, 140, ("128x128", "128x128"), out_dtype=BF16)


@needs_simulator
def test_types():
    """Codes of both operands, scales of both types, and all types of the result."""
    for codes, recipe in product(product((E4M3, E5M2), repeat=2), ("row", "1x128", "1x32")):
        check(40, 30, 260, (recipe, recipe), codes, out_dtype=BF16)
    for recipe in NAMES:
        check(40, 12, 260, (recipe, recipe), scales=E8M0, out_dtype=F32)
    a, scale = fastgemm.quantize_fp8(torch.randn(30, 200), "1x128")
    half = multiply(a, a.mT, scale, scale.mT, out_dtype=F16)
    exact = dequantized(a, scale, "1x128")
    assert_near(half, exact, exact.mT)


@needs_simulator
def test_scales_in_place_and_spread():
    """Contiguous lines of scales are read in place if each begins at a multiple of 16 bytes."""
    for lines, turned in product((128, 132, 133), product((False, True), repeat=2)):
        check(lines, lines, 400, ("1x128", "1x128"), turned=turned, out_dtype=F32)
        check(lines, 16, 100, ("1x128", "1x128"), turned=turned, out_dtype=F32)


@needs_simulator
def test_zero_and_infinite_scales_reach_their_results_alone():
    a, scale_a = operand(70, 260, "1x128")
    w, scale_b = operand(20, 260, "128x128")
    expected = multiply(a, w.mT, scale_a, scale_b.mT, out_dtype=F32)
    scale_a[3, 1], scale_a[5, 2] = torch.inf, torch.nan
    result = multiply(a, w.mT, scale_a, scale_b.mT, out_dtype=F32)
    others = [i for i in range(70) if i not in (3, 5)]
    assert torch.equal(result[others], expected[others])
    assert not result[3].isfinite().any() and result[5].isnan().all()


@needs_simulator
def test_terms_and_batches():
    a, scale_a = operand(2 * 9, 140, "1x128")
    w, scale_b = operand(21, 140, "128x128")
    exact = dequantized(a, scale_a, "1x128"), dequantized(w, scale_b, "128x128").mT
    bias, residual = torch.randn(21).to(BF16), torch.randn(18, 21).to(BF16)
    for terms in (
        {"bias": bias},
        {"residual": residual},
        {"bias": bias, "residual": residual, "activation": "relu"},
    ):
        result = multiply(a, w.mT, scale_a, scale_b.mT, **terms)
        expected = exact[0] @ exact[1] + (terms["bias"].double() if "bias" in terms else 0)
        expected = (expected.relu() if "activation" in terms else expected) + (
            terms["residual"].double() if "residual" in terms else 0
        )
        assert_near(result, *exact, expected=expected)
    both = multiply(
        a.view(2, 9, 140),
        w.mT.expand(2, 140, 21),
        scale_a.view(2, 9, 2),
        scale_b.mT.expand(2, 2, 1),
        out_dtype=F32,
    )
    assert_near(both.view(18, 21), *exact)


@needs_simulator
def test_level_6_takes_it_and_others_do_not():
    a, scale = operand(20, 140, "row")
    for level in (6, 5):
        with simulated_launches() as launches:
            fastgemm.scaled_mm(a, a.mT, scale, scale.mT, level=level)
        assert any(KERNEL in launch["function"] for launch in launches) == (level == 6)


@needs_simulator
def test_what_it_does_not_take():
    a, scale = operand(4, 0, "row")
    with pytest.raises(RuntimeError, match="cannot run here"):
        multiply(a, a.mT, scale, scale.mT)
