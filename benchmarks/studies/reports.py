"""Reading what ``Report.to_json`` of the package wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fastgemm.bench.problems import label_of
from fastgemm.bench.records import FORMAT, Measurement, Report
from fastgemm.bench.timing import Summary


def read_head(path: Path) -> dict[str, Any]:
    """Reads a file that ``as_text`` wrote. Raises ValueError for any other file."""
    data = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
        raise ValueError(f"{path}: not a fastgemm report of format {FORMAT}")
    return data


def rows_of(problems: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for problem in problems:
        rows = problem.pop("rows", [{}])
        if isinstance(rows, dict):  # columns
            rows = [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]
        yield from ({**problem, **row} for row in rows)


def read_report(path: Path) -> Report:
    """Reads what ``Report.to_json`` wrote. Raises ValueError for any other file."""
    data = read_head(path)
    return Report(**data | {"results": [_measurement(row) for row in rows_of(data["results"])]})


def _measurement(row: dict[str, Any]) -> Measurement:
    for name in ("seconds", "speedup", "back_to_back"):
        if row.get(name):
            row[name] = _summary(*row[name]) if isinstance(row[name], list) else Summary(**row[name])
    shape = tuple(row.get("shape", ()))
    return Measurement(**{"label": label_of(shape, row.get("layout", "")), **row, "shape": shape})


def _summary(median: float, spread: float) -> Summary:
    return Summary(median, median * (1 - spread), median * (1 + spread))
