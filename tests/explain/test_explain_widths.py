"""Tests fastgemm.explain in terminals of 80 and 160 columns. Both must show whole source lines."""

import re

import explain_model as model
import pytest
from click.testing import CliRunner
from fastgemm._explain import text
from fastgemm.cli import main
from pages import ROOT
from rich.console import Console

# The source lines of the tile, each above its counters.
STACKED = f"""\
csrc/cuda/transpose/shared_tile.cuh
    access             requests  lanes  sectors   used  conflict
{"─" * 80}
21    FASTGEMM_UNROLL
22    for (int i = y; i < kSharedTile; i += kSharedTileRows)
23      if (row + i < t.rows && col + x < t.cols) staged[i][x] = t.from<T>(row +
        i, col + x);
    load a, 4 B            2048     32     4.00  100 %
    store staged, 4 B      2048     32                      1.00
24    __syncthreads();
25    FASTGEMM_UNROLL
26    for (int j = y; j < kSharedTile; j += kSharedTileRows)
27      if (row + x < t.rows && col + j < t.cols) t.to<T>(row + x, col + j) =
        staged[x][j];
    load staged, 4 B       2048     32                      32.0
    store out, 4 B         2048     32     4.00  100 %
28  }}
29"""
BESIDE = """\
 access              requests   lanes   sectors    used   conflict   line   source
 {rule}
{blank}21     FASTGEMM_UNROLL
{blank}22     for (int i = y; i < kSharedTile; i += kSharedTileRows)
 load a, 4 B             2048      32      4.00   100 %                23       {load}
{more}+ x);
 store staged, 4 B       2048      32                         1.00
{blank}24     __syncthreads();
{blank}25     FASTGEMM_UNROLL
{blank}26     for (int j = y; j < kSharedTile; j += kSharedTileRows)
 load staged, 4 B        2048      32                         32.0     27       {store}
{more}staged[x][j];
 store out, 4 B          2048      32      4.00   100 %
{blank}28   }}
{blank}29"""
EXPECTED = {
    80: STACKED,
    160: BESIDE.format(
        rule="─" * 158,
        blank=" " * 71,
        more=" " * 80,
        load="if (row + i < t.rows && col + x < t.cols) staged[i][x] = t.from<T>(row + i, col",
        store="if (row + x < t.rows && col + j < t.cols) t.to<T>(row + x, col + j) =",
    ),
}


def printed(parts, width: int) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


@pytest.mark.parametrize("width", EXPECTED)
def test_the_text_of_a_source_table(report_of, width):
    report = report_of(model.transposed(32), "transpose", "shared", (256, 256))
    assert EXPECTED[width] in printed(text.source_tables(report), width)


def without_spaces(text: str) -> str:
    return re.sub(r"\s", "", text)


def shown(command: str, width: int) -> str:
    """The output of a command. No line may be cut off or wider than the terminal."""
    result = CliRunner().invoke(main, ["explain", *command.split()], env={"COLUMNS": str(width)})
    assert result.exit_code == 0, result.output
    assert "…" not in result.stdout and max(map(len, result.stdout.splitlines())) <= width
    return result.stdout


@pytest.mark.parametrize(
    ("command", "width"),
    [
        ("gemm --level 3 --compare 2 --shape 64", 80),
        ("gemm --kernel wgmma_specialized --dtype bf16 --shape 128", 80),
        ("gemm --kernel wgmma_specialized --dtype bf16 --shape 128", 160),
        ("transpose --level 3 --compare 2 --shape 64", 100),
        ("gemm --level 3 --compare 2 --shape 64", 160),
    ],
)
def test_nothing_is_cut(command, width):
    out = shown(command, width)
    if width < text.BESIDE:  # source beside counters is wrapped between their rows
        numbered = re.findall(r"^ *(\d+)  +\S", out, re.M)
        assert len(numbered) > 5
        (file, *_) = re.findall(r"^csrc/\S+$", out, re.M)
        lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
        (first, *_) = re.findall(rf"^{file}\n.*\n─+\n *(\d+) ", out, re.M)
        assert first + without_spaces(lines[int(first) - 1]) in without_spaces(out)


def test_two_sources_beside_each_other_are_whole():
    out = shown("transpose --level 3 --compare 2 --shape 64", 240)
    (line,) = re.findall(r"^.*staged\[x\]\[j\];.*$", out, re.M)
    assert line.count("t.to<T>(row + x, col + j) = staged[x][j];") == 2
