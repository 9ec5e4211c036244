"""Tests the preset grouped: its routing, its contenders and its checks."""

from __future__ import annotations

import fastgemm
import torch
from contests import Settings, of_contests
from fastgemm.bench.timing import CpuTimer
from presets import grouped

TINY = grouped.Layer(5, 32, 48, 2)
PROBLEMS = [
    (what, TINY, 7, dtype)
    for what in (grouped.FORWARD, grouped.GRADIENT)
    for dtype in grouped.ALLOWED
    if dtype != grouped.FP8
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


def test_codes_with_scales(monkeypatch):
    """torch has such products only on GPUs. Here fastgemm's takes its place, and then fastgemm's own is made
    wrong."""
    real = fastgemm.scaled_grouped_mm

    def of_torch(a, b, scale_a, scale_b, offs, out_dtype):
        return real(a, b, scale_a[:, None], scale_b[:, None], offs, out_dtype=out_dtype)

    monkeypatch.setattr(torch, "_scaled_grouped_mm", of_torch)
    problem = grouped.FORWARD, TINY, 7, grouped.FP8
    rows = grouped.contest("cpu", *problem).run(1e-4, CpuTimer())
    assert all(row.right and row.seconds for row in rows)
    monkeypatch.setattr(fastgemm, "scaled_grouped_mm", lambda *operands: real(*operands) * 1.01)
    rows = grouped.contest("cpu", *problem).run(1e-4, CpuTimer())
    assert [row.choice for row in rows if not row.right] == ["fastgemm"]
