"""Tests benchmarks/fits/measure_kernels.py --again without a GPU: which times it keeps and removes, and the file
that it writes."""

from __future__ import annotations

import sys

import pytest
from points import read_points, write_points
from scripts import tool

measure_kernels = tool("measure_kernels")
EARLIER = {"what": "all but small", "date": "2026-01-01", "commit": "old"}


def point(dtype: str, layout: str, size: int = 8, **seconds: float) -> dict[str, object]:
    sizes = {"op": "gemm", "dtype": dtype, "threads": 0, "batch": 1, "m": size, "n": size, "k": size}
    transposed = {f"{x}_transposed": letter == "T" for x, letter in zip("ab", layout, strict=True)}
    return {**sizes, **transposed, "seconds": seconds}


POINTS = [
    point("float32", "NN", dmma=1e-6, small=2e-6),
    point("float32", "NT", small=3e-6),
    point("float64", "NN", dmma=4e-6, small=5e-6),
]


@pytest.fixture
def again(monkeypatch, tmp_path):
    """Runs the program over POINTS with a fake ``measure``. Returns the head and the times by point."""

    def run(measure, *arguments):
        monkeypatch.setattr(measure_kernels, "measure", measure)
        new = {"date": "2026-03-03", "commit": "new"}
        monkeypatch.setattr(measure_kernels, "describe", lambda device: new)
        before, after = tmp_path / "before.json", tmp_path / "after.json"
        old = {"date": "2026-02-02", "commit": "middle"}
        write_points(before, {"environment": old, "measured before": [EARLIER]}, POINTS)
        named = ["measure_kernels", "--again", str(before), "--json", str(after), *arguments]
        monkeypatch.setattr(sys, "argv", named)
        measure_kernels.main()
        head, points = read_points(after)
        return head, {(p["dtype"], "NT"[p["b_transposed"]], p["m"]): p["seconds"] for p in points}

    return run


def test_kernels_that_changed_are_timed_again(again):
    asked = []

    def measure(problems, budget, only):
        asked.append((problems, only))  # in float64 the kernel is now far slower
        return [point("float32", "NN", dmma=9e-6)] if "float32" in problems else []

    head, times = again(measure, "--kernel", "dmma")
    problem = [((1, 8, 8, 8), "NN")]
    assert asked == [({"float64": problem}, ["dmma"]), ({"float32": problem}, ["dmma"])]
    older = {"what": "all but dmma", "date": "2026-02-02", "commit": "middle"}
    assert head["measured before"] == [older, EARLIER]
    assert times == {
        ("float32", "N", 8): {"dmma": 9e-6, "small": 2e-6},
        ("float32", "T", 8): {"small": 3e-6},
        ("float64", "N", 8): {"small": 5e-6},
    }


def test_a_new_kernel_and_new_problems_are_added(again):
    def measure(problems, budget, only):
        if only:
            return [point("float32", "NN", crt=9e-6)]
        return [
            point("float32", "NT", 100 + i, small=1e-6, library=2e-6) for i in range(len(problems["float32"]))
        ]

    arguments = "--at", "dmma", "--kernel", "crt", "--dtype", "float32", "--random", "3"
    head, times = again(measure, *arguments)
    assert times["float32", "N", 8] == {"dmma": 1e-6, "small": 2e-6, "crt": 9e-6}
    assert len(times) == len(POINTS) + 3 and times["float32", "T", 102] == {"small": 1e-6, "library": 2e-6}
    assert head["measured before"][0]["what"] == "all but crt, new problems"


def test_a_split_precision_adds_its_kernel_and_no_other():
    both = point("float32", "NN", torch=3e-6, bf16x6=1e-6)
    split = point("float32", "NN", bf16x6=2e-6, bf16x3=0.5e-6) | {"precision": "bf16x3"}
    found = measure_kernels.one_point([both, split], None)
    assert found["seconds"] == {"bf16x6": 1e-6, "bf16x3": 0.5e-6, "library": 3e-6}
    assert measure_kernels.one_point([both], ["dmma"]) is None
