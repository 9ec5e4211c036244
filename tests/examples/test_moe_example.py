"""Tests docs/grouped.md, and examples/moe.py at a small size."""

import json

import fastgemm
import moe as example
import pytest
import torch
from click.testing import CliRunner
from pages import ROOT, snippets

QUICK = ["--device", "cpu", "--layers", "1", "--tokens", "4", "--budget", "0.01", "--dtype", "float32"]

pytestmark = pytest.mark.skipif(
    not hasattr(torch.nn.functional, "grouped_mm"), reason="this torch has no grouped_mm"
)


def test_the_snippets_of_the_document():
    blocks = snippets((ROOT / "docs" / "grouped.md").read_text("utf-8"))
    assert len(blocks) >= 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)  # each snippet continues the one before


def test_steps_are_timed_and_compared(tmp_path):
    path = tmp_path / "moe.json"
    result = CliRunner().invoke(example.main, [*QUICK, "--json", str(path)])
    assert result.exit_code == 0, result.output
    rows = json.loads(path.read_text())["rows"]
    assert [(row["step"], row["way"]) for row in rows] == [
        (step, way) for step in example.STEPS for way in (example.TORCH, example.PATCH, example.MOE)
    ]
    assert all(0 < row["error"] < 1e-5 and row["tokens_per_second"] > 0 for row in rows)


def test_wrong_experts_are_said(monkeypatch):
    moe = fastgemm.moe
    monkeypatch.setattr(fastgemm, "moe", lambda *given: 1.01 * moe(*given))
    result = CliRunner().invoke(example.main, QUICK)
    assert result.exit_code == 1 and "prefill, moe: " in result.output
