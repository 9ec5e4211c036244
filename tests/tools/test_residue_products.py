"""tools/residue_products.py on a CPU, and the tables of what it wrote."""

from __future__ import annotations

import json
import sys
from fractions import Fraction

import torch
from render import residue_products as tables
from scripts import tool


def test_products_are_timed_and_their_errors_found(monkeypatch, tmp_path, capsys):
    path = tmp_path / "residues.json"
    module = tool("residue_products")
    arguments = ["--device", "cpu", "--budget", "0.001", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", ["residue_products", *arguments])
    module.ways = lambda device: {
        name: torch.matmul for name in ("torch", "fastgemm", "dmma", "crt", "crt14")
    }
    module.main()
    data = json.loads(path.read_text())
    for row in data["errors"]:
        assert all(0 < componentwise < row["k"] for componentwise, _ in row["errors"].values()), row
    assert all(row["exact"] for row in data["int64"])
    assert all(all(row["exact"].values()) for row in data["narrow_integers"])
    assert "| 128 | uint8 x int8 to int32 |" in tables.narrow_integers([data])
    for row in data["float32_errors"]:  # of millions of elements, each a sum of 100 terms
        assert all(0 < componentwise < 50 for componentwise, _ in row["errors"].values()), row
    assert {row["distribution"] for row in data["float32"]} == {"normal", "relu", "wide"}
    assert "int64 128" in capsys.readouterr().out
    assert "| normal | 40 x 50 x 60 |" in tables.times([data])
    assert "| wide | 40 |" in tables.errors([data])
    assert "| 128 |" in tables.integers([data])
    assert "| relu | 128 x 128 x 128 |" in tables.float32_times([data])
    assert "| wide | 100 |" in tables.float32_errors([data])


def test_the_reference_has_twice_the_precision():
    module = tool("residue_products")
    a, b = torch.randn(2, 37, dtype=torch.float64), torch.randn(37, 3, dtype=torch.float64)
    high, low = module.product_in_twice_the_precision(a, b)
    for i in range(2):
        for j in range(3):
            exact = sum(
                Fraction(x) * Fraction(y) for x, y in zip(a[i].tolist(), b[:, j].tolist(), strict=True)
            )
            found = Fraction(high[i, j].item()) + Fraction(low[i, j].item())
            assert abs(found - exact) < Fraction(1, 2**95)


def test_an_error_is_seen():
    module = tool("residue_products")
    a, b = module.operands("normal", 64, 64, 64, "cpu")
    right = a @ b
    seen = module.errors({"right": right, "wrong": right * (1 + 2**-45)}, a, b)
    assert seen["right"][0] < 8 < seen["wrong"][0]
