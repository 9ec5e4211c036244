"""Tests that a rung can be read in one sitting: its file, and the headers that no earlier rung includes."""

import re
from functools import cache
from pathlib import Path

import pytest
from pages import ROOT

CSRC = ROOT / "csrc"
LADDER = CSRC / "cuda/gemm/ladder"
PACKED = sorted((CSRC / "cuda/gemm/packed").glob("level*.cu"))  # the rungs of packed weights
# In reading order.
ORDER = (
    *("level1_naive", "level2_tiled", "level3_thread_tile", "level4_vectorized"),
    *("pitfall_float4_padded65", "pitfall_double_buffer", "level5_cp_async", "level5_producer_warp"),
    *("level6_wmma", "level6_mma_ldmatrix", "level6_wgmma", "level6_wgmma_ring", "level6_wgmma_persistent"),
    *("level6_wgmma_boxes", "level6_wgmma_wide", "level6_wgmma_deep"),
    *("level6_wgmma_overlapped", "level6_wgmma_setmaxnreg", "level6_wgmma_fused"),
)
MOST_LINES = 150  # lines of a rung: three screens of 50 lines
# New lines in one sitting: one and a half hours at 400 lines an hour. Faster reviewers overlook faults (Cohen,
# Best Kept Secrets of Peer Code Review, 2006).
MOST_NEW = 600
# The first rung includes what all rungs use: the problem, whose weight may be packed and whose rows may be in
# groups, types, launches; 250 of its new lines are only for groups, which docs/grouped.md explains. wmma
# includes the main loop of mma_sync (parts/line_tile.cuh), because a simpler loop has half the rate, and
# device/wmma.cuh, which defines the simulator's fragments besides CUDA's.
MORE_NEW = {"level1_naive": 1290, "level6_wmma": 900}


def lines(file: Path) -> int:
    return len(file.read_text().splitlines())


@cache
def headers(file: Path) -> frozenset[Path]:
    """All headers that the file includes, directly or indirectly, without csrc/simt, which replaces CUDA's."""
    names = re.findall(r'^#include "(.+)"', file.read_text(), re.MULTILINE)
    direct = {CSRC / name for name in names if not name.startswith("simt/")}
    return frozenset(direct).union(*map(headers, direct))


def rung(name: str) -> Path:
    return LADDER / f"{name}.cu"


def test_every_rung_has_its_place_in_the_order() -> None:
    assert sorted(ORDER) == sorted(file.stem for file in LADDER.glob("*.cu"))


@pytest.mark.parametrize("name", ORDER)
def test_a_rung_is_short_and_so_is_what_it_brings(name: str) -> None:
    read: frozenset[Path] = frozenset().union(
        *(headers(rung(before)) for before in ORDER[: ORDER.index(name)])
    )
    new = headers(rung(name)) - read
    assert lines(rung(name)) <= MOST_LINES
    total = lines(rung(name)) + sum(map(lines, new))
    assert total <= MORE_NEW.get(name, MOST_NEW), {file.name: lines(file) for file in new}


@pytest.mark.parametrize(
    "file", [*map(rung, ORDER), *PACKED], ids=lambda file: f"{file.parent.name}-{file.stem}"
)
def test_a_rung_begins_with_the_command_that_runs_it(file: Path) -> None:
    text = file.read_text()
    kernel = re.match(r"//   make sim KERNEL=(\w+)( ARGS='--dtype bf16')?\n", text)
    assert kernel and f"void gemm_{kernel[1]}(const GemmProblem&" in text


@pytest.mark.parametrize("name", ORDER)
def test_one_rung_alone_has_the_epilogue_of_a_layer(name: str) -> None:
    """After the other rungs, a separate pass applies the epilogue (parts/epilogues/finish.cu)."""
    speaks = re.search(r"epilogue|bias|activation", rung(name).read_text())
    assert bool(speaks) == (name == "level6_wgmma_fused")
