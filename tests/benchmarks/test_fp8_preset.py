"""Tests the preset fp8: its contenders, its operands and its checks."""

from __future__ import annotations

import fastgemm
import pytest
from contests import Settings, of_contests
from fastgemm.bench.timing import CpuTimer
from presets import fp8

RECIPES = (fp8.TENSOR, fp8.ROW, fp8.BLOCKS, fp8.FINE, fp8.MX)
PROBLEMS = [(what, recipes, (32, 48, 256)) for what in (fp8.PRODUCT, fp8.ERRORS) for recipes in RECIPES]


def test_products_are_checked_and_timed():
    report = of_contests("fp8", {"cpu": PROBLEMS}, fp8.contest)(Settings("cpu", budget=1e-4))
    assert report.right, [row.message for row in report.results if not row.right]
    own = [row for row in report.results if row.choice == "fastgemm"]
    assert len(own) == len(PROBLEMS) and all(0 < row.more["error"] < 2e-3 for row in own)
    assert all((row.seconds is None) == row.group.startswith(fp8.ERRORS) for row in own)
    assert "torch" in {row.choice for row in report.results}


def test_layouts_and_quantizing():
    (layouts,) = [fp8.contest("cpu", fp8.LAYOUTS, fp8.TENSOR, (32, 48, 64)).run(1e-4, CpuTimer())]
    assert {row.choice for row in layouts} == {"torch", "fastgemm", "NN", "TN", "TT"}
    assert all(row.right for row in layouts)
    rows = fp8.contest("cpu", fp8.QUANTIZE, ("row", "row"), (64, 1, 64)).run(1e-4, CpuTimer())
    assert {row.choice for row in rows} == {"copy", "fastgemm"}


def test_results_of_8_bits(monkeypatch):
    problem = fp8.SWIGLU, ("row", "row"), (8, 128, 64)
    rows = fp8.contest("cpu", *problem).run(1e-4, CpuTimer())
    assert {row.choice for row in rows} == {"separate", "fastgemm", "product"}
    assert all(row.right and row.seconds for row in rows)
    real = fastgemm.linear
    monkeypatch.setattr(fastgemm, "linear", lambda x, w, **code: real(x, w.flip(0) if code else w, **code))
    rows = fp8.contest("cpu", *problem).run(1e-4, CpuTimer())
    assert [row.choice for row in rows if not row.right] == ["fastgemm"]


@pytest.mark.parametrize("recipes", RECIPES, ids="-".join)
def test_a_wrong_product_is_found(recipes, monkeypatch):
    real = fastgemm.scaled_mm
    monkeypatch.setattr(fastgemm, "scaled_mm", lambda *args, **options: real(*args, **options) * 1.01)
    rows = fp8.contest("cpu", fp8.PRODUCT, recipes, (32, 48, 256)).run(1e-4, CpuTimer())
    assert [row.choice for row in rows if not row.right] == ["fastgemm"]
