"""tools/symmetric_products.py on a CPU, and the table of what it wrote."""

from __future__ import annotations

import json
import sys

from render import symmetric_products as table
from scripts import tool


def test_products_are_timed_beside_torchs_and_the_general_one(monkeypatch, tmp_path, capsys):
    path = tmp_path / "symmetric.json"
    module = tool("symmetric_products")
    arguments = ["--device", "cpu", "--sizes", "64", "--budget", "0.001", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", ["symmetric_products", *arguments])
    module.main()
    data = json.loads(path.read_text())
    assert [row["dtype"] for row in data["rows"]] == list(module.DTYPES["cpu"])
    for row in data["rows"]:
        assert row["of_general"]["general"] == row["of_torch"]["torch"] == 1.0
        assert set(row["microseconds"]) == {"fastgemm", "general", "symmetric", "torch"}
    assert "complex128 64 (" in capsys.readouterr().out
    assert "| float32 | 64 | `" in table.sections([data])


def test_a_type_that_torch_does_not_multiply():
    row = {
        "dtype": "int32",
        "size": 64,
        "chosen": "int8x10",
        "microseconds": {"fastgemm": 9.0},
        "of_torch": {},
        "of_general": {"fastgemm": 1.5},
    }
    head = {
        "environment": {"device": "x", "torch": "2", "date": "2026-01-01", "commit": "abc"},
        "command": "c",
    }
    assert "| int32 | 64 | `int8x10` | 9 | - | 1.50 | - |" in table.sections([head | {"rows": [row]}])
