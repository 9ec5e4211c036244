"""examples/newton_schulz.py at a small size."""

from __future__ import annotations

import importlib
import json
import sys

import pytest
import torch
from click.testing import CliRunner
from pages import ROOT


@pytest.fixture(scope="module")
def example():
    sys.path.insert(0, str(ROOT / "examples"))
    yield importlib.import_module("newton_schulz")
    sys.path.remove(str(ROOT / "examples"))
    del sys.modules["newton_schulz"]


def test_ways_are_timed_and_held_against_float64(example, tmp_path):
    path = tmp_path / "newton_schulz.json"
    arguments = [
        "--device",
        "cpu",
        "--shape",
        "40x24",
        "--budget",
        "0.01",
        "--no-compile",
        "--json",
        str(path),
    ]
    result = CliRunner().invoke(example.main, arguments)
    assert result.exit_code == 0, result.output
    assert "24x40" in result.output
    data = json.loads(path.read_text())
    (row,) = data["rows"]
    assert row["shape"] == [24, 40] and set(row["ways"]) == {"torch", "fastgemm"}
    assert 0 < row["ways"]["fastgemm"]["error"] < 1e-5


def test_singular_values_come_near_1(example):
    torch.manual_seed(0)
    values = torch.linalg.svdvals(example.by_fastgemm(torch.randn(64, 128)))
    assert values.min() > 0.6 and values.max() < 1.3


def test_a_wrong_result_is_said(example, monkeypatch):
    monkeypatch.setattr(example, "by_fastgemm", lambda gradient: example.by_torch(gradient) + 0.01)
    result = CliRunner().invoke(
        example.main, ["--device", "cpu", "--shape", "16x16", "--budget", "0.01", "--no-compile"]
    )
    assert result.exit_code == 1 and "errs more than torch" in result.output


def test_usage(example):
    result = CliRunner().invoke(example.main, ["--shape", "wide"])
    assert result.exit_code == 2 and "write 4096x11008" in result.output
