"""Host time of the layers of a model in turn: what is measured, and that it sees decisions made anew."""

from __future__ import annotations

import contextlib
import csv
import io
import time

import pytest
import torch
from fastgemm.bench import turns
from fastgemm.bench.cuda_timing import HostTimer
from fastgemm.bench.host_time import run_host_time
from fastgemm.bench.overhead import run_overhead
from fastgemm.bench.records import read_report, select
from fastgemm.cli import tables
from pages import ROOT
from reference import DEVICES
from render.levels import in_turn
from render.pages import OF_FILES

LAYERS = 6


def measured_with(monkeypatch, product, inside=contextlib.nullcontext, device="cpu"):
    """One more way of calling, beside torch."""
    ways = {turns.BASELINE: turns.WAYS[turns.BASELINE], "other": turns.Way(product, inside)}
    monkeypatch.setattr(turns, "WAYS", ways)
    monkeypatch.setattr(turns, "ROWS", (8,))
    monkeypatch.setattr(turns, "DTYPES", (torch.float32,))
    torch.set_num_threads(1)  # two that wait for each other lose milliseconds where processes share the cores
    return turns.measure_turns(device, batches=5)


@pytest.mark.parametrize("device", DEVICES)
def test_every_way_type_and_number_of_rows(few_samples, device):
    torch.set_num_threads(1)  # two that wait for each other lose milliseconds where processes share the cores
    rows = turns.measure_turns(device)
    assert all(row.right for row in rows), [row.message for row in rows if not row.right]
    found = turns.lines(rows)
    assert {(line.dtype, line.rows) for line in found} == {
        (dtype, count) for dtype in ("bfloat16", "float32") for count in ("1 row", "8 rows", "32 rows")
    }
    assert len(found) == 6 * len(turns.WAYS) and len(rows) == len(found) * (1 + LAYERS)
    assert all(len(line.alone) == LAYERS and min(line.alone) > 0 and line.in_turn > 0 for line in found)
    alone = select(rows, choice=turns.ALONE, kernel=turns.BASELINE, group="8 rows", dtype="float32")
    assert len({row.shape for row in alone}) == LAYERS and {row.layout for row in alone} == {"NT"}


def test_the_layers_share_a_slot_of_64_as_those_of_models_do():
    for sizes in turns.SIZES.values():
        assert all(size % 64 == 0 for size in sizes) and len(set(sizes)) == 3


def test_a_decision_made_anew_at_every_change_of_shape_is_seen(monkeypatch):
    last = [None]

    def forgetful(a, b):
        if b.shape != last[0]:
            time.sleep(4e-3)
        last[0] = b.shape
        return a @ b

    rows = measured_with(monkeypatch, forgetful)
    dearer = {line.way: line.dearer for line in turns.lines(rows)}
    assert dearer["other"] > 8  # 4 ms in turn, 4 ms / 120 and some microseconds alone


def test_a_way_that_is_wrong_is_noticed(monkeypatch):
    rows = measured_with(
        monkeypatch, lambda a, b: torch.zeros(len(a), b.shape[1]) if b.shape[0] == 192 else a @ b
    )
    assert {row.kernel for row in rows if not row.right} == {"other"}
    assert "of the largest element" in next(row.message for row in rows if not row.right)


def test_the_context_is_entered_once_a_batch_and_not_timed(monkeypatch):
    entered = []

    @contextlib.contextmanager
    def slow_to_enter():
        entered.append(True)
        time.sleep(0.02)
        yield
        time.sleep(0.02)

    rows = measured_with(monkeypatch, torch.matmul, slow_to_enter)
    line = next(line for line in turns.lines(rows) if line.way == "other")
    assert len(entered) > 2 * (1 + LAYERS)
    assert line.in_turn < 40e6 / (turns.TurnTimer.BATCH * LAYERS)  # 40 ms a batch, were they in it
    assert (
        turns.TurnTimer.BATCH * LAYERS * 6 < 1024
    )  # launches that a GPU's queue holds; a product has up to six
    assert HostTimer.BATCH != turns.TurnTimer.BATCH


@pytest.mark.parametrize(("command", "block"), [(run_host_time, "gpu_host"), (run_overhead, "overhead")])
def test_reports_hold_them_and_are_shown(few_samples, command, block, tmp_path):
    report = command("cpu")
    file = tmp_path / "report.json"
    file.write_text(report.to_json())
    read = read_report(file)
    assert read.to_json() == report.to_json() and read.right
    text = OF_FILES[block].text(read)
    for way in turns.WAYS:
        assert f"| float32, 8 rows | `{way}` |" in text
    assert "weights of 64x64, 192x64, 64x192, 256x64, 64x256, 256x256, in turn" in text
    assert tables.turns_table(read).wide.row_count == 6 * len(turns.WAYS)
    read.write_csv(lines := io.StringIO())
    assert len(list(csv.DictReader(lines.getvalue().splitlines()))) == len(read.results)


def test_a_report_without_them_is_shown_as_before():
    path = ROOT / "benchmarks" / "results" / "amd-26-2" / "overhead.json"
    report = read_report(path)
    report.results = turns.without(report.results)
    assert in_turn(report) == ""
    text = OF_FILES["overhead"].text(report)
    assert text.count("| --- |") == 1 and "`fastgemm.matmul, compiled`" in text
