"""tools/complex_products.py on a CPU, and the table of what it wrote."""

from __future__ import annotations

import json
import sys

import torch
from render import complex_products as table
from scripts import tool


def test_products_are_timed_beside_torchs_and_their_errors_found(monkeypatch, tmp_path, capsys):
    path = tmp_path / "complex.json"
    module = tool("complex_products")
    arguments = ["--device", "cpu", "--sizes", "64", "--budget", "0.001", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", ["complex_products", *arguments])
    module.main()
    data = json.loads(path.read_text())
    assert len(data["rows"]) == 2 * len(module.LAYOUTS)
    for row in data["rows"]:
        u = 2**-24 if row["dtype"] == "complex64" else 2**-53
        assert row["of_torch"]["torch"] == 1.0
        assert all(0 < error < 20 * u for error in row["error"].values()), row
    assert "complex128 64 NC" in capsys.readouterr().out
    text = table.sections([data])
    assert "| complex64 | 64 | NN |" in text


def test_an_error_is_seen():
    module = tool("complex_products")
    a, b = (torch.randn(64, 64, dtype=torch.complex128) for _ in range(2))
    right = a @ b
    assert module.largest_error(right, a, b) < 1e-14
    assert module.largest_error(right.conj(), a, b) > 1e-3
