"""Tests the host time of a model's layers in turn. The measurement must show decisions that are made again."""

from __future__ import annotations

import contextlib
import time

import pytest
import torch
from fastgemm.bench.records import select
from reference import DEVICES
from studies import turns
from studies.timers import HostTimer

LAYERS = 6


@pytest.fixture
def few_samples(monkeypatch):
    """Measures only two batches of two turns."""
    monkeypatch.setattr(turns, "BATCHES", 2)
    monkeypatch.setattr(turns.TurnTimer, "BATCH", 2)


def measured_with(monkeypatch, product, inside=contextlib.nullcontext, device="cpu"):
    """Measures one further way of calling and torch."""
    ways = {turns.BASELINE: turns.WAYS[turns.BASELINE], "other": turns.CallPath(product, inside)}
    monkeypatch.setattr(turns, "WAYS", ways)
    monkeypatch.setattr(turns, "ROWS", (8,))
    monkeypatch.setattr(turns, "DTYPES", (torch.float32,))
    torch.set_num_threads(1)  # several threads lose milliseconds if other processes use the cores
    return turns.measure_turns(device, batches=5)


@pytest.mark.parametrize("device", DEVICES)
def test_every_way_type_and_number_of_rows(few_samples, device, monkeypatch):
    monkeypatch.setattr(turns, "ROWS", (1, 8))
    monkeypatch.setattr(turns, "DTYPES", (torch.float32,))
    torch.set_num_threads(1)  # several threads lose milliseconds if other processes use the cores
    rows = turns.measure_turns(device)
    assert all(row.right for row in rows), [row.message for row in rows if not row.right]
    found = turns.lines(rows)
    assert {(line.dtype, line.rows) for line in found} == {("float32", "1 row"), ("float32", "8 rows")}
    assert len(found) == 2 * len(turns.WAYS) and len(rows) == len(found) * (1 + LAYERS)
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
            time.sleep(2e-3)
        last[0] = b.shape
        return a @ b

    rows = measured_with(monkeypatch, forgetful)
    dearer = {line.way: line.dearer for line in turns.lines(rows)}
    assert dearer["other"] > 8  # in turn: 2 ms; alone: 2 ms / 120 and a few microseconds


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
    assert line.in_turn < 40e6 / (turns.TurnTimer.BATCH * LAYERS)  # simulates a batch of 40 ms
    assert (
        turns.TurnTimer.BATCH * LAYERS * 6 < 1024
    )  # a GPU's queue holds this many launches; a product has up to six
    assert HostTimer.BATCH != turns.TurnTimer.BATCH
