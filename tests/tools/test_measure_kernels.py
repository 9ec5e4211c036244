"""tools/measure_kernels.py --again without a GPU: which times stay, which go, and what the file says of them."""

from __future__ import annotations

import json
import sys

from scripts import tool

measure_kernels = tool("measure_kernels")
POINTS = [
    ["float32", "NN", 1, 8, 8, 8, {"dmma": 1.0, "small": 2.0}],
    ["float32", "NT", 1, 8, 8, 8, {"small": 3.0}],
    ["float64", "NN", 1, 8, 8, 8, {"dmma": 4.0, "small": 5.0}],
]
EARLIER = {"what": "all but small", "date": "2026-01-01", "commit": "old"}


def test_kernels_that_changed_are_timed_again(monkeypatch, tmp_path):
    asked = []

    def measure(problems, budget, only):
        asked.append((problems, only))
        if "float64" in problems:  # is far behind now
            return {}
        return {("float32", "NN", 1, 8, 8, 8): {"dmma": 9.0, "torch": 7.0}}

    monkeypatch.setattr(measure_kernels, "measure", measure)
    monkeypatch.setattr(measure_kernels, "describe", lambda device: {"date": "2026-03-03", "commit": "new"})
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    head = {"environment": {"date": "2026-02-02", "commit": "middle"}, "measured before": [EARLIER]}
    before.write_text(json.dumps(head | {"points": POINTS}))
    arguments = ["measure_kernels", "--again", str(before), "--kernel", "dmma", "--json", str(after)]
    monkeypatch.setattr(sys, "argv", arguments)
    measure_kernels.main()
    assert sorted(name for problems, _ in asked for name in problems) == ["float32", "float64"]
    assert all(only == ["dmma"] for _, only in asked)
    written = json.loads(after.read_text())
    assert written["measured before"] == [
        {"what": "all but dmma", "date": "2026-02-02", "commit": "middle"},
        EARLIER,
    ]
    times = {(series, layout): times for series, layout, *_, times in written["points"]}
    assert times == {
        ("float32", "NN"): {"dmma": 9.0, "small": 2.0},
        ("float32", "NT"): {"small": 3.0},
        ("float64", "NN"): {"small": 5.0},
    }


def test_a_new_kernel_and_new_problems_are_added(monkeypatch, tmp_path):
    def measure(problems, budget, only=None):
        if only:
            return {("float32", "NN", 1, 8, 8, 8): {"crt": 9.0}}
        return {("float32", "TT", *sizes): {"small": 1.0, "torch": 2.0} for sizes, _ in problems["float32"]}

    monkeypatch.setattr(measure_kernels, "measure", measure)
    monkeypatch.setattr(measure_kernels, "describe", lambda device: {"date": "2026-03-03", "commit": "new"})
    before, after, library = tmp_path / "before.json", tmp_path / "after.json", tmp_path / "library.json"
    environment = {"date": "2026-02-02", "commit": "middle"}
    before.write_text(json.dumps({"environment": environment, "points": POINTS}))
    row = ["float32", "NN", 1, 8, 8, 8, 5.0]
    library.write_text(json.dumps({"environment": environment, "points": [row]}))
    arguments = ["--again", str(before), "--at", "dmma", "--kernel", "crt", "--dtype", "float32"]
    arguments += ["--random", "3", "--json", str(after), "--library", str(library)]
    monkeypatch.setattr(sys, "argv", ["measure_kernels", *arguments])
    measure_kernels.main()
    points = json.loads(after.read_text())["points"]
    assert ["float32", "NN", 1, 8, 8, 8, {"dmma": 1.0, "small": 2.0, "crt": 9.0}] in points
    assert len(points) == len(POINTS) + 3
    assert [time for *_, time in json.loads(library.read_text())["points"]] == [5.0, 2.0, 2.0, 2.0]
    assert json.loads(library.read_text())["measured before"] == [
        {"what": "all but new problems"} | environment
    ]
