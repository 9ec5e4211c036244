"""tools/fused_linear.py on a CPU, and the table of what it wrote."""

from __future__ import annotations

import json
import sys

import pytest
from render import fused_linear as table
from scripts import tool


def test_layers_are_timed_beside_torchs(monkeypatch, tmp_path, capsys):
    path = tmp_path / "linear.json"
    module = tool("fused_linear")
    arguments = [
        "--device",
        "cpu",
        "--shapes",
        "16x24x32",
        "--budget",
        "0.001",
        "--no-compile",
        "--json",
        str(path),
    ]
    monkeypatch.setattr(sys, "argv", ["fused_linear", *arguments])
    module.main()
    data = json.loads(path.read_text())
    assert [(row["dtype"], row["activation"], row["residual"]) for row in data["rows"][:6]] == [
        ("bfloat16", "gelu", False),
        *(("bfloat16", name, False) for name in ("relu", "gelu_tanh", "silu", "none")),
        ("bfloat16", "gelu", True),
    ]
    for row in data["rows"]:
        assert set(row["microseconds"]) == {"fastgemm", "apart", "eager"}
    assert "float32 16x24x32 gelu + residual (" in capsys.readouterr().out
    assert "| float32 | 16 x 24 x 32 | gelu + residual | `" in table.sections([data])


def test_a_shape_is_three_sizes():
    import argparse

    with pytest.raises(argparse.ArgumentTypeError, match="a shape is MxNxK, got '3x4'"):
        tool("fused_linear").shape_of("3x4")
