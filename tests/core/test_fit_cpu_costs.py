"""Tests benchmarks/fits/fit_cpu_costs.py: its measurements on this machine, and the files that it writes."""

from __future__ import annotations

import fit_cpu_costs
import pytest
from fastgemm import _introspect
from fastgemm.bench import describe
from points import read_points
from static_tables.generate import ARITHMETIC_TYPES
from studies.environment import folder_of


@pytest.fixture
def short(tmp_path, monkeypatch):
    """Uses small products, and a temporary folder instead of the repository's files."""
    monkeypatch.setattr(fit_cpu_costs, "MOST_WORK", 2**18)
    monkeypatch.setattr(fit_cpu_costs, "MOST_LARGE_WORK", 2**19)
    monkeypatch.setattr(fit_cpu_costs, "SLOW_IN_TORCH", ())
    monkeypatch.setattr(fit_cpu_costs, "BUDGET", 0.0)
    monkeypatch.setattr(fit_cpu_costs, "DATA", tmp_path)
    return tmp_path / f"{folder_of(describe('cpu'))}.json"


def test_it_measures_every_kernel_that_takes_any_product(short):
    found = fit_cpu_costs.measure(8, 0)
    assert {point["dtype"] for point in found} == {*ARITHMETIC_TYPES}
    for point in found:
        problem = fit_cpu_costs.problem_of(point)
        predicted = {name for name, _ in _introspect.cpu_predictions(problem, point["threads"])}
        assert {*point["seconds"]} == predicted, "except shortcuts, which take only some products"
        assert min(point["seconds"].values()) > 0
    large = [point for point in found if min(point[size] for size in ("m", "n", "k")) >= 64]
    assert len(large) >= 2 * 3 and {p["batch"] > 1 for p in found} == {True, False}
    assert {point["threads"] for point in found} == {1, fit_cpu_costs.CORES}


def test_what_was_measured_before_is_kept_where_asked(short):
    fit_cpu_costs.measure_here(1, 0, add=False)
    fit_cpu_costs.measure_here(1, 1, add=True)
    assert len(read_points(short)[1]) == 2 * len(ARITHMETIC_TYPES)
    fit_cpu_costs.measure_here(1, 2, add=False)
    assert len(read_points(short)[1]) == len(ARITHMETIC_TYPES)


def test_generated_text_is_compared_but_for_rounding():
    text = "    {1, 1, 8, 8, 8, N, T, {12, kNotTimed, -3}},\n{kCall, 1.449e+04}\n"
    same = fit_cpu_costs.same_but_for_rounding

    def compare(other: str) -> bool:
        return same(fit_cpu_costs.comparable(text), fit_cpu_costs.comparable(other))

    assert compare(text) and compare(text.replace("12", "13").replace("1.449", "1.450"))
    assert not compare(text.replace("12", "15"))
    assert not compare(text.replace("8, 8, 8", "8, 8, 9"))
    assert not compare(text.replace("kNotTimed", "0"))
