"""Finds the files of benchmarks/results that a block shows."""

from __future__ import annotations

from pathlib import Path

from fastgemm.bench.records import Report
from studies.accuracy import COMMAND, read_accuracy
from studies.reports import read_report


def read(path: Path) -> Report:
    return read_accuracy(path) if path.stem == COMMAND else read_report(path)


def reports(results: Path, name: str, device_type: str = "") -> dict[str, Report]:
    """Reports by measured device, which is the name of the file's folder. GPUs come first."""
    found = {path.parent.name: read(path) for path in sorted(results.glob(f"*/{name}.json"))}
    return {
        device: report
        for kind in ("cuda", "cpu")
        for device, report in found.items()
        if report.environment["device_type"] == kind and device_type in ("", kind)
    }
