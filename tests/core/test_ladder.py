"""A rung is read in one sitting: at most 150 lines, and 400 of headers outside csrc/cuda/device."""

import re
from functools import cache
from pathlib import Path

import pytest
from pages import ROOT

CSRC = ROOT / "csrc"
RUNGS = sorted((CSRC / "cuda/gemm/ladder").glob("*.cu"))


def lines(file: Path) -> int:
    return len(file.read_text().splitlines())


@cache
def headers(file: Path) -> frozenset[Path]:
    """What the file includes, and what that includes. device/ is vocabulary, and is not followed."""
    names = re.findall(r'^#include "(.+)"', file.read_text(), re.MULTILINE)
    direct = {CSRC / name for name in names if not name.startswith("cuda/device/")}
    return frozenset(direct).union(*map(headers, direct))


@pytest.mark.parametrize("rung", RUNGS, ids=lambda file: file.stem)
def test_a_rung_is_short_and_so_is_what_it_includes(rung: Path) -> None:
    # wmma shares the main loop of mma_sync, the portable rows' pipeline: a plainer one has half the rate.
    most = 650 if rung.stem == "level6_wmma" else 400
    assert lines(rung) <= 150
    assert sum(map(lines, headers(rung))) <= most, {file.name: lines(file) for file in headers(rung)}


@pytest.mark.parametrize("rung", RUNGS, ids=lambda file: file.stem)
def test_a_rung_begins_with_the_command_that_runs_it(rung: Path) -> None:
    kernel = re.match(r"//   make sim KERNEL=(\w+)( ARGS='--dtype bf16')?\n", rung.read_text())
    assert kernel and f"void gemm_{kernel[1]}(const GemmProblem&" in rung.read_text()
