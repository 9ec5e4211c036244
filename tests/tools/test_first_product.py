"""tools/first_product.py on a CPU, and the table of what it wrote."""

from __future__ import annotations

import json
import sys

from render import first_product as table
from scripts import tool


def test_first_calls_are_timed_in_processes_of_their_own(monkeypatch, tmp_path, capsys):
    path = tmp_path / "first.json"
    module = tool("first_product")
    arguments = ["first_product", "--device", "cpu", "--processes", "1", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", arguments)
    module.main()
    data = json.loads(path.read_text())
    names = [f"{which} product of {dtype}" for dtype in module.PRODUCTS for which in ("first", "second")]
    assert {"import fastgemm", "first transpose", *names} <= data["rows"].keys()
    assert all(ms > 0 for ms in data["rows"].values())
    assert "import fastgemm" in capsys.readouterr().out
    data["environment"] |= {"driver": "580", "cuda": "13.0"}
    text = table.sections([data])
    assert "| import fastgemm |" in text and "medians of 1 processes" in text
