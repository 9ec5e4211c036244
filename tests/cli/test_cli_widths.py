"""Tests that no table is cut off in terminals of 80, 100 and 160 columns."""

from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from fastgemm.bench.records import Measurement
from fastgemm.bench.timing import Summary
from fastgemm.cli import info, main, tables, tune
from rich.console import Console

WIDTHS = (80, 100, 160)


def measured(kernel: str, choice: str, role: str = "rung") -> Measurement:
    shape = 28672, 4096, 14336
    row = Measurement("gemm", shape, "x".join(map(str, shape)) + " TN", "bfloat16", "TN", 2, kernel, 6)
    row.role, row.choice, row.group, row.unit, row.rate = role, choice, "llama-3-8b bfloat16", "TFLOPS", 712.3
    row.limit, row.worst_error, row.baseline = row.rate / 0.72 if row.rate else None, 0.12, "torch.matmul"
    row.speedup = Summary(median=1.07, q1=1.06, q3=1.08, least=1.0)
    return row


ROWS = [
    measured("wgmma_specialized", "kernel wgmma_specialized"),
    measured("wgmma_overlapped", "level 6"),
    measured("torch.matmul", "", "baseline"),
]
NARROW = """\
          rate  of limit  torch  ratio  spread  error
────────────────────────────────────────────────────────────────────────────────
llama-3-8b bfloat16
  28672x4096x14336 TN, threads 2, kernel wgmma_specialized
    712 TFLOPS      72 %    712   1.07     1 %   0.12
  28672x4096x14336 TN, threads 2, level 6, wgmma_overlapped
    712 TFLOPS      72 %    712   1.07     1 %   0.12
"""


# Columns of figures that have no place stand below others, so that no figure is broken.
NARROWEST = """\
          rate  of limit  torch
         ratio    spread  error
────────────────────────────────────────
llama-3-8b bfloat16
  28672x4096x14336 TN, threads 2, kernel
wgmma_specialized
    712 TFLOPS      72 %    712
          1.07       1 %   0.12
  28672x4096x14336 TN, threads 2, level
6, wgmma_overlapped
    712 TFLOPS      72 %    712
          1.07       1 %   0.12
"""
NARROWEST_LADDER = """\
gemm bfloat16 28672x4096x14336 TN, 2
threads
    TFLOPS  of limit  of torch.matmul
      gain    spread            error
────────────────────────────────────────
6 wgmma_specialized
       712      72 %             1.07
         -       1 %             0.12
6 wgmma_overlapped
       712      72 %             1.07
         -       1 %             0.12
torch.matmul
       712      72 %             1.00
                 1 %
"""


def printed(part, width: int) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(part)
    return "".join(line.rstrip() + "\n" for line in captured.get().splitlines())


def test_a_narrow_bench_table_has_figures_below_their_labels():
    shown = {width: printed(tables.bench_table(ROWS), width) for width in WIDTHS}
    assert shown[80] == NARROW
    assert shown[100] == NARROW.replace("─" * 80, "─" * 100)
    line = "28672x4096x14336 TN  2        kernel wgmma_specialized  wgmma_specialized  712 TFLOPS      72 %"
    assert line in shown[160]


def test_the_kernel_table_breaks_no_word_in_40_columns():
    shown = CliRunner().invoke(main, ["info", "--kernels"], env={"COLUMNS": "40"}).stdout
    assert "1 naive, rung, here: yes; float64," in shown and max(map(len, shown.splitlines())) <= 40


def test_no_figure_of_a_narrower_table_is_broken():
    assert printed(tables.bench_table(ROWS), 40) == NARROWEST
    assert printed(tables.ladder_table(ROWS, "NVIDIA H200"), 40) == NARROWEST_LADDER
    means = {"llama-3-8b bfloat16": {"problems": 1_000, "speedup": 1.07, "least": 1.06}}
    shown = printed(tables.means_table(SimpleNamespace(summary={"geometric_means": means})), 30)
    assert shown.splitlines()[-2:] == ["llama-3-8b bfloat16", "        1000   1.07   1.06"]


@pytest.mark.parametrize(
    ("command", "width"),
    [
        *(("info", width) for width in WIDTHS),
        *(("ladder --shape 32 --no-files --budget 0.001 --device cpu", width) for width in (40, 80)),
        ("bench --shape 8x1000x8x8 --level 6 --kernel microkernel --budget 0.001 --device cpu", 80),
    ],
)
def test_nothing_is_cut(command, width, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, command.split(), env={"COLUMNS": str(width)})
    assert result.exit_code == 0, result.output
    assert "…" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= width


def test_a_ladder_of_long_names_fits_80_columns():
    shown = printed(tables.ladder_table(ROWS, "NVIDIA H200"), 80)
    assert (
        "wgmma_specialized" in shown and "torch.matmul" in shown and max(map(len, shown.splitlines())) <= 80
    )


@pytest.mark.parametrize("size", ["0", "00", "²", "-5", "wide", "", "9" * 30, "9" * 5000])
@pytest.mark.parametrize("name", ["COLUMNS", "LINES"])
def test_a_size_that_is_no_positive_number_counts_as_unset(name, size):
    unset, shown = (CliRunner().invoke(main, ["info"], env={name: value}) for value in (None, size))
    assert shown.exit_code == 0, repr(shown.exception)
    assert "compiler" in shown.stdout and shown.stdout == unset.stdout


TUNED = {
    "device": "NVIDIA H200",
    "problem": "float32 NN 1 x 30 x 20 x 40, a row added",
    "kernel": "wgmma_specialized",
    "microseconds": 12.5,
    "predicted": "mma_ldmatrix",
    "gain": 1.25,
}
TUNED_NARROW = """\
      us  gain
────────────────────
NVIDIA H200: float32
NN 1 x 30 x 20 x 40,
a row added,
wgmma_specialized
instead of
mma_ldmatrix
    12.5  1.25
"""


def test_a_narrow_table_of_tuned_products_is_complete():
    table = info._tuned_table([TUNED])
    assert printed(table, 20).endswith(TUNED_NARROW)
    assert "│ wgmma_specialized │ 12.5 │ mma_ldmatrix │ 1.25 │" in printed(table, 160)


TUNE_NARROW = """\
                before  after
──────────────────────────────
bfloat16, 30 problems
    level=None   1.125  1.015
    level=6      1.205      -
"""


def test_a_narrow_table_of_choices_is_complete():
    before = SimpleNamespace(points=30, free=1.125, level6=1.205)
    after = SimpleNamespace(points=30, free=1.015, level6=float("nan"))
    table = tune._table(SimpleNamespace(before={"bfloat16": before}, after={"bfloat16": after}))
    assert printed(table, 30).endswith(TUNE_NARROW)
    assert "│       30 │             1.125 │ 1.015 │          1.205 │     - │" in printed(table, 80)
