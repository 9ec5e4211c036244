"""Fits the constants of scaled_wgmma, and of scaled_skinny for more than 64 rows (csrc/cuda/gemm/fp8/*_tile.h).

    python benchmarks/fits/fit_fp8.py

h200_fp8.json has the times of all tiles for some products, measured with a cold L2. This prints the constants, in
cycles, and how good a choice by them is. They were rounded by hand: not all tiles have a kernel for scales of
blocks, and 192 x 128 of whole scales was measured with a slower main loop than it has now. kScaledTurned is not
fitted: with any value from 1.02 to 1.07 these products take 1.006 instead of 1.007 times as long as by their best
tile.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares

DATA = Path(__file__).resolve().parent / "h200_fp8.json"
PROCESSORS, CHUNK = 132, 4
CYCLES = 0.89 * 1980  # a microsecond
LAUNCH = {"scaled_wgmma": 5.7, "scaled_skinny": 3.3}  # us
WGMMA, SKINNY = [(256, 128), (192, 128), (256, 64), (192, 64)], [(64, True), (128, True), (128, False)]
STAGES = [(kind, tile, scales) for kind, tiles in (("wgmma", WGMMA), ("skinny", SKINNY))
          for tile in tiles for scales in ("whole", "blocks")]  # fmt: skip
NAMES: list[Any] = [
    *STAGES,
    *(("tile", tile) for tile in WGMMA),
    *["hand_over", "collect", "start", "split", "line"],
]
FIRST = [0.6] * 8 + [0.3] * 6 + [2.0] * 4 + [11.0, 1.0, 3.0, 1.5, 0.015]  # us
FAR = 2.2  # tiles that take so much longer than the fastest are not fitted


class Measured(NamedTuple):
    scales: str  # whole, blocks
    shape: tuple[int, int, int]
    kernel: str
    rows: int  # of a tile
    columns: int
    splits: int
    turned: bool  # a tile of C^T
    shares: bool  # blocks share tiles if that is predicted to pay
    us: float

    def sides(self) -> tuple[int, int]:
        m, n, _ = self.shape
        return (n, m) if self.turned else (m, n)


def points() -> Iterator[Measured]:
    """A tile is named 192x128, of C^T 192x128t; one of scaled_skinny also by its splits, 128x128x2t. The last
    letter is w if whole tiles were computed by force."""
    for product in json.loads(DATA.read_text(encoding="utf-8"))["products"]:
        for name, us in product["us"].items():
            kernel, tile = name.split()
            rows, columns, *splits = map(int, tile.rstrip("tw").split("x"))
            yield Measured(
                product["scales"],
                tuple(product["shape"]),
                kernel,
                rows,
                columns,
                (splits or [1])[0],
                "t" in tile,
                "w" not in tile,
                us,
            )


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def lines_in_flight(p: Measured, below: float, beside: float) -> float:
    rows, columns = p.sides()
    return min(below * p.rows, rows) + min(beside * p.columns, columns)


def wgmma_us(p: Measured, c: dict[Any, float]) -> float:
    """As scaled_cycles() in scaled_tile.h."""
    (rows, columns), stages = p.sides(), max(ceil_div(p.shape[2], 128), CHUNK)
    down, across = ceil_div(rows, p.rows), ceil_div(columns, p.columns)
    tiles, chunks = down * across, stages // CHUNK
    each = PROCESSORS // tiles
    even = each >= 2 and each * tiles * 10 >= PROCESSORS * 9
    blocks = min(each * tiles if even else PROCESSORS, tiles * chunks)
    busy = min(tiles, blocks)
    beside = min(across, busy / min(down, 16))
    tile = p.rows, p.columns
    step = (
        c["wgmma", tile, p.scales] + c["line"] * lines_in_flight(p, min(down, busy / beside), beside) / 1000
    )
    left = tiles % blocks
    shares = p.shares and left > 0 and left * chunks / blocks + 2.0001 + blocks / left <= chunks
    whole = tiles // blocks if shares else ceil_div(tiles, blocks)
    us = whole * (stages * step + c["tile", tile])
    if not shares:
        return us
    share = ceil_div(left * chunks, blocks) * CHUNK
    others = max(ceil_div(stages, share) - 1, 1)
    fix_up = (c["hand_over"] + c["collect"] * others) * p.rows * p.columns / (256 * 128)
    return us + share * step + c["tile", tile] + fix_up


def skinny_us(p: Measured, c: dict[Any, float]) -> float:
    """As wide_skinny_cycles() in skinny_tile.h."""
    (rows, columns), stages = p.sides(), max(ceil_div(p.shape[2], 128), CHUNK)
    down, across = ceil_div(rows, p.rows), ceil_div(columns, p.columns)
    blocks = down * across * p.splits
    tiles = min(blocks, PROCESSORS) / p.splits
    lines = lines_in_flight(p, min(down, tiles), min(max(tiles / down, 1), across))
    step = c["skinny", (p.rows, p.turned), p.scales] + c["line"] * p.splits * lines / 1000
    wave = c["start"] + c["split"] * (p.splits - 1) + ceil_div(stages, p.splits) * step
    return ceil_div(blocks, PROCESSORS) * wave


def is_offered(p: Measured) -> bool:
    """As takes_rows() in skinny_tile.h."""
    m = p.shape[0]
    if p.kernel == "scaled_wgmma":
        return p.shares
    return m <= (256 if p.rows == 64 else 128) if p.turned else m > 128


def predicted(p: Measured, constants: Any) -> float:
    us = wgmma_us if p.kernel == "scaled_wgmma" else skinny_us
    return LAUNCH[p.kernel] + us(p, dict(zip(NAMES, constants, strict=True)))


def main() -> None:
    products: dict[Any, list[Measured]] = defaultdict(list)
    for p in points():
        products[p.scales, p.shape].append(p)
    near = [p for tiles in products.values() for p in tiles if p.us < FAR * min(q.us for q in tiles)]

    def errors(constants: Any) -> list[float]:
        return [math.log(predicted(p, constants) / p.us) for p in near]

    fit = least_squares(errors, FIRST, x_scale=FIRST, bounds=(0, np.inf), loss="soft_l1", f_scale=0.08)
    for name, us in zip(NAMES, fit.x, strict=True):
        print(name, round(us * CYCLES, 2))
    print(f"{len(near)} times, mean error {statistics.fmean(map(abs, errors(fit.x))):.3f}")
    offered = [[p for p in tiles if is_offered(p)] for tiles in products.values()]
    chosen = [min(tiles, key=lambda p: predicted(p, fit.x)).us for tiles in offered]
    losses = [us / min(p.us for p in tiles) for us, tiles in zip(chosen, offered, strict=True)]
    print(
        f"{len(losses)} products, of the best {statistics.geometric_mean(losses):.3f}, at most {max(losses):.2f}"
    )


if __name__ == "__main__":
    main()
