"""Tests every tile that one_wave is compiled for, in both directions, with all kinds of stores."""

import re
from pathlib import Path

import pytest
import torch
from counter_model import BF16, F32, I8
from reference import check_gemm, needs_simulator, poisoned, random_tensor, row_id, simulated_launches
from test_simulator import operands

pytestmark = needs_simulator

F16 = torch.float16
NN, NT, TN, TT = (False, False), (False, True), (True, False), (True, True)
PLAN = Path(__file__).resolve().parents[2] / "csrc/cuda/gemm/predict/one_wave_plan.h"
# (rows, columns, splits, resident), and a problem for this tile: shorter, longer side of C, k, multiprocessors.
TILES = {
    (64, 32, 1, 1): (32, 32, 64, 1),
    (64, 32, 2, 1): (32, 32, 600, 2),
    (64, 64, 1, 1): (32, 48, 64, 1),
    (64, 64, 1, 2): (32, 80, 64, 1),
    (64, 64, 2, 1): (32, 48, 900, 2),
    (64, 64, 4, 1): (32, 32, 900, 4),
    (64, 128, 1, 1): (32, 80, 328, 1),
    (64, 128, 1, 2): (32, 144, 64, 1),
    (128, 64, 1, 1): (80, 80, 328, 2),
    (128, 64, 2, 1): (80, 80, 2400, 5),
    (128, 96, 1, 1): (80, 80, 328, 1),
    (128, 128, 1, 1): (80, 112, 600, 1),
    (128, 128, 1, 2): (80, 144, 64, 1),
    (128, 192, 1, 1): (80, 144, 328, 1),
    (192, 128, 1, 1): (144, 144, 328, 1),
}
# If an operand is not contiguous along k, tiles consist of boxes of 64.
TILES_OF_BOXES = {
    (64, 64, 1, 1): (32, 32, 64, 1),
    (64, 64, 1, 2): (32, 80, 64, 1),
    (64, 64, 2, 1): (32, 32, 600, 3),
    (64, 64, 4, 1): (32, 32, 600, 4),
    (64, 128, 1, 1): (32, 80, 328, 1),
    (128, 64, 1, 1): (80, 80, 328, 2),
    (128, 128, 1, 1): (80, 80, 64, 1),
    (128, 128, 1, 2): (32, 144, 64, 1),
    (128, 192, 1, 1): (32, 144, 328, 1),
    (192, 128, 1, 1): (144, 144, 328, 1),
}


def compiled(macro: str) -> set[tuple[int, ...]]:
    """The tiles of a macro of one_wave_plan.h."""
    body = re.search(rf"#define {macro}\(X\)((?:.*\\\n)*.*\n)", PLAN.read_text(encoding="utf-8"))
    return {tuple(map(int, tile.split(","))) for tile in re.findall(r"X\(([\d, ]+)\)", body[1])}


def launched_tile(launches: list[dict]) -> tuple[int, ...]:
    function = next(each["function"] for each in launches if each["kernel"] == "one_wave")
    return tuple(map(int, re.search(r"Tile<([\d, ]+)>", function)[1].split(",")))


def test_all_tiles_are_here():
    of_boxes = compiled("FASTGEMM_WAVE_TILES_OF_BOXES")
    assert of_boxes == TILES_OF_BOXES.keys()
    assert of_boxes | compiled("FASTGEMM_WAVE_TILES") == TILES.keys()


@pytest.mark.parametrize("tile", TILES, ids=row_id)
def test_tiles_along_k(tile):
    short, long, k, multiprocessors = TILES[tile]
    for m, n, dtype in ((short, long, BF16), (long, short, F16)):
        a, b = operands(m, n, k, dtype, NT)
        with simulated_launches(multiprocessors) as launches:
            check_gemm(a, b, kernel="one_wave")
            check_gemm(a, b, random_tensor(m, n, dtype=dtype), alpha=-1, beta=2, kernel="one_wave")
            check_gemm(a, b, out_dtype=torch.float32, kernel="one_wave")
        assert launched_tile(launches) == tile


@pytest.mark.parametrize("tile", TILES_OF_BOXES, ids=row_id)
@pytest.mark.parametrize("layout", [NN, TN, TT], ids=["NN", "TN", "TT"])
def test_tiles_of_boxes(tile, layout):
    short, long, k, multiprocessors = TILES_OF_BOXES[tile]
    for m, n in ((short, long), (long, short)):
        a, b = operands(m, n, k, BF16, layout)
        with simulated_launches(multiprocessors) as launches:
            check_gemm(a, b, kernel="one_wave")
        assert launched_tile(launches) == tile


@pytest.mark.parametrize("dtype", [I8, F32, F16], ids=row_id)
@pytest.mark.parametrize("slack", [0, 3], ids=["aligned", "unaligned"])
def test_edges_and_types(dtype, slack):
    """Sides and k that are no multiples of a tile or stage, rows at any address, and a column-major C."""
    precision = {"precision": "tf32"} if dtype == F32 else {}
    for m, n, k, multiprocessors in ((33, 50, 77, 3), (140, 70, 700, 4), (1, 130, 1100, 2), (65, 129, 64, 2)):
        for layout in (NN, NT):
            a, b = operands(m, n, k, dtype, layout, slack)
            with simulated_launches(multiprocessors):
                check_gemm(a, b, kernel="one_wave", **precision)
                out = poisoned(n, m, dtype=torch.int32 if dtype == I8 else dtype).t()
                check_gemm(a, b, out=out, kernel="one_wave", **precision)
