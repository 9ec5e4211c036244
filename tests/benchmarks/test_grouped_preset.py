"""Tests the preset grouped: its routing, its contenders and its checks."""

from __future__ import annotations

import fastgemm
from contests import Settings, of_contests
from fastgemm.bench.timing import CpuTimer
from presets import grouped

TINY = grouped.Layer(5, 32, 48, 2)
PROBLEMS = [
    (what, TINY, 7, dtype) for what in (grouped.FORWARD, grouped.GRADIENT) for dtype in grouped.ALLOWED
]


def test_tokens_go_to_different_experts_in_the_same_way_each_time():
    sizes = grouped.sizes_of(grouped.MANY, 256)
    assert sizes == grouped.sizes_of(grouped.MANY, 256)
    assert len(sizes) == 128 and sum(sizes) == 8 * 256 and max(sizes) <= 256
    assert max(sizes) > 3 * sorted(sizes)[32]  # skewed


def test_products_are_checked_and_timed():
    report = of_contests("grouped", {"cpu": PROBLEMS}, grouped.contest)(Settings("cpu", budget=1e-4))
    assert report.right, [row.message for row in report.results if not row.right]
    assert {row.choice for row in report.results} == {"fastgemm", "torch"}
    assert all(row.seconds and 0 < row.more["error"] < 4e-3 for row in report.results)


def test_a_wrong_product_is_found(monkeypatch):
    real = fastgemm.grouped_mm
    monkeypatch.setattr(
        fastgemm, "grouped_mm", lambda *operands, **options: real(*operands, **options) * 1.01
    )
    for problem in PROBLEMS:
        rows = grouped.contest("cpu", *problem).run(1e-4, CpuTimer())
        assert [row.choice for row in rows if not row.right] == ["fastgemm"]
