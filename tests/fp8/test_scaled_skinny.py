"""Tests scaled_skinny, the product of few rows of codes, on the simulator and on a GPU."""

import fastgemm
import pytest
import torch
from reference import needs_simulator, simulated_launches
from scaled import BF16, E8M0, F32, assert_near, dequantized, operand

KERNEL = "scaled_skinny"
# M, N and K for which each tile is chosen (fp8/skinny_tile.h) by a GPU with so many multiprocessors.
TILES = {
    (5, 100, 530): ("64, 16, 1, true", 3),
    (16, 20, 1030): ("64, 16, 2, true", 3),
    (5, 520, 260): ("256, 16, 1, true", 3),
    (40, 100, 1030): ("64, 64, 1, true", 3),
    (64, 20, 1030): ("64, 64, 2, true", 3),
    (40, 300, 530): ("128, 64, 1, true", 3),
    (40, 800, 260): ("256, 64, 1, true", 3),
    (70, 20, 1030): ("64, 128, 2, true", 3),
    (128, 200, 260): ("128, 128, 1, true", 3),
    (70, 100, 2060): ("128, 128, 2, true", 3),
    (200, 150, 260): ("128, 128, 1, false", 3),
    (150, 100, 2060): ("128, 128, 2, false", 4),
}
RECIPES = [
    ("tensor", "row"),
    ("row", "row"),
    ("1x128", "128x128"),
    ("128x128", "128x128"),
    ("row", "128x128"),
]


def multiply(*operands, **options):
    with simulated_launches():
        return fastgemm.scaled_mm(*operands, kernel=KERNEL, **options)


def operands(m, n, k, recipes, scales=F32):
    a, scale_a = operand(m, k, recipes[0], scale=scales)
    w, scale_b = operand(n, k, recipes[1])
    exact = dequantized(a, scale_a, recipes[0]), dequantized(w, scale_b, recipes[1]).mT
    names = {"recipe_a": recipes[0], "recipe_b": recipes[1]}
    return (a, w.mT, scale_a, scale_b.mT), exact, names


@needs_simulator
@pytest.mark.parametrize("recipe", ["row", "128x128"])
@pytest.mark.parametrize("shape", TILES, ids=str)
def test_tiles(shape, recipe):
    given, exact, names = operands(*shape, (recipe, recipe))
    tile, multiprocessors = TILES[shape]
    with simulated_launches(multiprocessors) as launches:
        result = fastgemm.scaled_mm(*given, kernel=KERNEL, out_dtype=F32, **names)
    assert_near(result, *exact)
    assert any(f"SkinnyShape<{tile}," in launch["function"] for launch in launches)


@needs_simulator
@pytest.mark.parametrize("recipes", RECIPES, ids="-".join)
def test_recipes(recipes):
    """The scales of a lie along k and along its rows."""
    for m, n, k, out in (
        (4, 140, 2500, F32),
        (20, 300, 1030, BF16),
        (7, 33, 260, F32),
        (200, 150, 260, BF16),
    ):
        given, exact, names = operands(m, n, k, recipes)
        assert_near(multiply(*given, out_dtype=out, **names), *exact)
        turned = (*given[:2], given[2].mT.contiguous().mT, given[3])
        assert_near(multiply(*turned, out_dtype=out, **names), *exact)
    if recipes[0] == "1x128":
        given, exact, names = operands(20, 140, 530, recipes, E8M0)
        assert_near(multiply(*given, out_dtype=F32, **names), *exact)


@needs_simulator
def test_epilogue_is_fused():
    """The kernel itself applies bias, activation and residual, to the sums."""
    for m, n, out in ((5, 100, BF16), (70, 100, F32), (40, 301, BF16), (150, 130, BF16)):
        given, exact, names = operands(m, n, 530, ("1x128", "128x128"))
        bias, residual = torch.randn(n).to(out), (100 * torch.randn(m, n)).to(out)
        with simulated_launches() as launches:
            result = fastgemm.scaled_mm(
                *given, bias=bias, activation="relu", residual=residual, out_dtype=out, kernel=KERNEL, **names
            )
        expected = torch.relu(exact[0] @ exact[1] + bias.double()) + residual.double()
        assert_near(result, *exact, expected)
        assert not any("epilogue" in launch["function"] for launch in launches)


@needs_simulator
def test_layouts_and_special_numbers():
    given, _, names = operands(12, 70, 300, ("row", "row"))
    expected = multiply(*given, out_dtype=F32, **names)
    for i in range(2):
        turned = list(given)
        turned[i] = given[i].view(torch.uint8).mT.contiguous().view(given[i].dtype).mT
        assert torch.equal(multiply(*turned, out_dtype=F32, **names), expected)
    a = given[0].clone()
    a.view(torch.uint8)[3, 299] = 0x7F
    scale = given[2].clone()
    scale[5] = torch.inf
    result = multiply(a, given[1], scale, given[3], out_dtype=F32, **names)
    others = [i for i in range(12) if i not in (3, 5)]
    assert torch.equal(result[others], expected[others])
    assert result[3].isnan().all() and not result[5].isfinite().any()


@needs_simulator
@pytest.mark.parametrize(
    ("shape", "recipes"),
    [
        ((2000, 20, 300), ("row", "row")),
        ((5, 20, 200), ("row", "row")),
        ((5, 20, 300), ("1x128", "1x128")),
        ((5, 20, 300), ("1x32", "128x128")),
    ],
    ids=["rows", "k", "columns", "groups"],
)
def test_what_it_leaves_to_other_rows(shape, recipes):
    given, exact, names = operands(*shape, recipes)
    with pytest.raises(RuntimeError, match="kernel 'scaled_skinny' cannot run here"):
        multiply(*given, **names)
    with fastgemm.simulate():
        assert_near(fastgemm.scaled_mm(*given, level=6, out_dtype=F32, **names), *exact)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    "shape",
    [(1, 4096, 4096), (16, 8192, 1000), (64, 520, 7168), (128, 28672, 530), (300, 5000, 2060)],
    ids=str,
)
@pytest.mark.parametrize("recipes", RECIPES, ids="-".join)
def test_on_a_gpu(shape, recipes):
    given, exact, names = operands(*shape, recipes)
    moved = [x.cuda() for x in given]
    result = fastgemm.scaled_mm(*moved, kernel=KERNEL, out_dtype=F32, **names)
    assert_near(result, *exact)
    assert torch.equal(result, fastgemm.scaled_mm(*moved, kernel=KERNEL, out_dtype=F32, **names))
