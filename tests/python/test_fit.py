"""Tests that fitted constants do not depend on the processor that computes the fit."""

from __future__ import annotations

import random

import pytest
from fastgemm._choice.fit import FASTEST, fit, fit_limited, predict, predict_limited, thin
from fit_costs import nearness
from generated_files import same_but_for_rounding


def test_only_the_first_of_proportional_counts_gets_a_constant():
    pytest.importorskip("scipy")
    rows = [(1.0, work, 4 * work, beside) for work, beside in ((5, 1), (7, 9), (11, 4), (20, 2))]
    seconds = [3 + 0.5 * work + 2 * beside for _, work, _, beside in rows]
    assert fit(rows, seconds) == pytest.approx([3, 0.5, 0, 2])
    exchanged = [(one, four, work, beside) for one, work, four, beside in rows]
    assert fit(exchanged, seconds) == pytest.approx([3, 0.125, 0, 2])


def test_constants_are_not_negative():
    pytest.importorskip("scipy")
    costs = fit([(1, 1), (1, 2), (1, 3)], [3.0, 2.0, 1.0])
    assert min(costs) >= 0
    assert predict((1, 1), costs) > 0


def gpu_points() -> tuple[list[tuple[float, ...]], list[float]]:
    """Counts of launches, work, the same work in whole tiles, and bytes; and times with some noise."""
    noise = random.Random(5)
    works = [noise.uniform(1, 100) for _ in range(1000)]
    rows = [(1.0, work, work * noise.uniform(1, 1.02), noise.uniform(1, 2)) for work in works]
    return rows, [(3 + 0.5 * work) * noise.uniform(0.97, 1.03) for work in works]


def test_of_two_counts_that_explain_the_same_one_is_dropped():
    pytest.importorskip("scipy")
    rows, seconds = gpu_points()
    launch, work, tiles, _ = fit_limited(rows, seconds)
    assert (work == 0) != (tiles == 0)
    assert launch == pytest.approx(3, rel=0.05) and work + tiles == pytest.approx(0.5, rel=0.05)


def test_hardly_any_time_is_below_the_limit_of_a_prediction():
    pytest.importorskip("scipy")
    rows, seconds = gpu_points()
    costs = fit_limited(rows, seconds)
    below = sum(time < row[-1] * costs[-1] for row, time in zip(rows, seconds, strict=True))
    assert 0 < below <= FASTEST * len(rows)
    assert predict_limited((1, 10, 10, 1000), costs) == 1000 * costs[-1]
    assert predict_limited((1, 10, 10, 0), costs, 1.0) == pytest.approx(
        2.718 * predict((1, 10, 10), costs[:-1]), 1e-3
    )


def test_points_near_the_fastest_kernel_weigh_more():
    pytest.importorskip("scipy")
    seconds = {"a": 4.0, "b": 5.0, "c": 40.0, "library": 1.0}
    near, slower, slow = (nearness(kernel, seconds, {"a", "b", "c"}) for kernel in "abc")
    assert near == 1 > slower > slow > 0.5
    rows = [(1.0, float(work)) for work in range(1, 9)]
    curved = [1 + work**1.5 for _, work in rows]
    costs = fit(rows, curved, weights=[100.0 if work < 4 else 1.0 for _, work in rows])
    even = fit(rows, curved)

    def off(constants: list[float]) -> float:
        return max(
            abs(predict(row, constants) / time - 1) for row, time in zip(rows[:3], curved, strict=False)
        )

    assert off(costs) < off(even)


def test_points_are_thinned_the_same_whatever_the_order_of_equals():
    pytest.importorskip("scipy")
    places = [(float(x), float(y)) for x in range(8) for y in range(8)]
    off = [0.1 * ((x + y) % 3) for x, y in places]
    kept = thin(places, off, 20)
    assert len(set(kept)) == 20
    noise = random.Random(1)
    assert thin(places, [x * (1 + 1e-14 * noise.uniform(-1, 1)) for x in off], 20) == kept


COSTS = "FASTGEMM_COSTS(tiled, hopper, f32, .launch = 7457, .steps = 1.586e+03)"
CPU_COSTS = "FASTGEMM_CPU_COSTS(simd, avx2, f64, {kCall, 0.7974})"
POINT = "    {1, 954, 2048, 777, T, N, -5},"


@pytest.mark.parametrize(
    ("text", "same", "different"),
    [
        (COSTS, "7457 7458, 1.586e 1.587e", "7457 7557, steps tiles, f32 f33, 1.586e+03 0"),
        (CPU_COSTS, "7974 7975", "0.79 0.89"),
        (POINT, "-5 -6, -5 -4", "-5 -7, 2048 2049, N T"),
    ],
)
def test_rounding_alone_makes_no_file_stale(text, same, different):
    for changes, alike in ((same, True), (different, False)):
        for change in changes.split(", "):
            assert same_but_for_rounding(text, text.replace(*change.split())) == alike, change
    assert not same_but_for_rounding(COSTS, COSTS.replace(", .steps = 1.586e+03", ""))
