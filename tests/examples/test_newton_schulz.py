"""Tests examples/newton_schulz.py at a small size."""

import json

import newton_schulz as example
import torch
from click.testing import CliRunner

QUICK = ["--device", "cpu", "--budget", "0.01", "--no-compile"]


def test_ways_are_timed_and_held_against_float64(tmp_path):
    path = tmp_path / "newton_schulz.json"
    result = CliRunner().invoke(example.main, [*QUICK, "--shape", "40x24", "--json", str(path)])
    assert result.exit_code == 0, result.output
    assert "24x40" in result.output
    (row,) = json.loads(path.read_text())["rows"]
    assert row["shape"] == [24, 40] and set(row["ways"]) == {"torch", "fastgemm"}
    assert 0 < row["ways"]["fastgemm"]["error"] < 1e-5


def test_singular_values_come_near_1():
    torch.manual_seed(0)
    values = torch.linalg.svdvals(example.by_fastgemm(torch.randn(64, 128)))
    assert values.min() > 0.6 and values.max() < 1.3


def test_a_wrong_result_is_said(monkeypatch):
    monkeypatch.setattr(example, "by_fastgemm", lambda gradient: example.by_torch(gradient) + 0.01)
    result = CliRunner().invoke(example.main, [*QUICK, "--shape", "16x16"])
    assert result.exit_code == 1 and "errs more than torch" in result.output


def test_usage():
    result = CliRunner().invoke(example.main, ["--shape", "wide"])
    assert result.exit_code == 2 and "write 4096x11008" in result.output
