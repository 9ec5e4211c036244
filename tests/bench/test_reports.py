"""Tests the output files of a run: reports as JSON and CSV, and pictures."""

import io
import json
import sys

import pytest
from fastgemm.bench import Gemm, Summary, Transpose
from fastgemm.bench import plots as plot_module
from fastgemm.bench.environment import describe
from fastgemm.bench.ladder import run_ladder
from fastgemm.bench.ladder_plots import ladder_figure
from fastgemm.bench.records import Report
from reports import small_sweep
from studies.reports import read_report


def test_report_round_trip(tmp_path):
    report = small_sweep()
    report.results[0].back_to_back = Summary.of([1e-3, 2e-3])
    report.results[0].more = {"over": {"general": 1.5}}
    path = tmp_path / "r.json"
    path.write_text(report.to_json())
    again = read_report(path)
    assert again.to_json() == report.to_json()
    assert again.results[0].back_to_back.median == 1.5e-3
    assert plot_module.fingerprint(again) == plot_module.fingerprint(read_report(path))
    path.write_text(report.to_json(raw=True))
    assert read_report(path) == report, "raw files have all digits"
    for name in ("device", "torch", "fastgemm", "date", "threads", "cpu_model"):
        assert again.environment[name]
    text = io.StringIO()
    report.write_csv(text)
    lines = text.getvalue().splitlines()
    assert len(lines) == 1 + len(report.results) and "speedup_median" in lines[0]


def test_rows_with_the_same_fields_are_stored_as_columns(tmp_path):
    report, path = small_sweep(), tmp_path / "r.json"
    rows = report.results[:2]
    for row in rows:
        row.shape, row.label, row.dtype, row.layout, row.level = (2, 3, 4), "", "float32", "NN", 1
        row.seconds, row.speedup = Summary.of([1e-3]), Summary.of([2.0])
    report.results = rows
    for speedup, form in ((Summary.of([2.0]), '"rows":{'), (None, '"rows":[{')):
        rows[0].speedup = speedup
        path.write_text(report.to_json())
        assert form in path.read_text()
        assert [row.speedup for row in read_report(path).results] == [speedup, Summary.of([2.0])]


def test_other_files_are_no_reports(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match="not a fastgemm report"):
        read_report(path)


def test_pictures(tmp_path):
    ladder = run_ladder([Gemm(16, 16, 16), Transpose(16, 16)], budget=0.001)
    assert [p.name for p in plot_module.save(ladder, tmp_path / "ladder")] == ["ladder.png", "ladder.svg"]
    pictures = []
    for name in ("a.svg", "b.svg"):
        plot_module.save(ladder, tmp_path / name)
        pictures.append((tmp_path / name).read_bytes())
    assert plot_module.fingerprint(ladder).encode() in pictures[0]
    assert pictures[0] == pictures[1], "the same report gives the same picture"
    assert plot_module.save(small_sweep(), tmp_path / "bench.png") == [tmp_path / "bench.png"]


def test_environment():
    found = describe()
    assert found["cores"] >= 1 and found["date"].endswith("+00:00")


def test_the_plot_of_a_ladder_names_a_missing_package(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match="a plot needs matplotlib; pip install"):
        ladder_figure(Report("ladder", {}, {}))
