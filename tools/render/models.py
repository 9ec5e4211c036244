"""Tables of examples/models.py in Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fastgemm.bench.formatting import rate, ratio
from fastgemm.bench.records import Measurement, Report

from .markdown import place, table

TORCH, PATCH, CONVERT = "torch", "patch", "convert"  # kernels of the rows: the ways of running a model
MODEL, COMPILED, CHAIN = "eager", "compiled", "chain"  # groups of the rows


@dataclass
class Line:
    """A call in one type; ``rows`` by way. Of a call that raised there is torch's row, without a time."""

    label: str
    dtype: str
    group: str
    rows: dict[str, Measurement] = field(default_factory=dict)

    @property
    def milliseconds(self) -> str:
        seconds = self.rows[TORCH].seconds
        return rate(seconds.median * 1e3 if seconds else None)

    def times_as_fast(self, way: str) -> str:
        row = self.rows.get(way)
        return ratio(row.speedup.median if row and row.speedup else None)


def lines_of(rows: Iterable[Measurement]) -> list[Line]:
    found: dict[tuple[str, str, str], Line] = {}
    for row in rows:
        key = row.label, row.dtype, row.group
        found.setdefault(key, Line(*key)).rows[row.kernel] = row
    return list(found.values())


def _models(lines: list[Line], first: str) -> str:
    """A row for each model, and columns for each type."""
    dtypes = list(dict.fromkeys(line.dtype for line in lines))
    by = {(line.label, line.dtype): line for line in lines}
    header = [first]
    for dtype in dtypes:
        header += [f"{dtype}, torch ms", "patch", "convert"]
    cells = []
    for label in dict.fromkeys(line.label for line in lines):
        cells.append([label])
        for dtype in dtypes:
            line = by.get((label, dtype))
            of_type = (
                [line.milliseconds, line.times_as_fast(PATCH), line.times_as_fast(CONVERT)] if line else []
            )
            cells[-1] += of_type or ["-"] * 3
    return table(header, cells)


def _kernels(routed: dict[str, Any]) -> str:
    return ", ".join(f"`{name}` {n}" for name, n in routed["kernels"].items()) or "none"


def _chains(lines: list[Line], runs: list[dict[str, Any]]) -> str:
    routed = {run["label"]: _kernels(run["routed"]) for run in runs if run["group"] == CHAIN}
    cells = [
        [line.label, routed.get(line.label, "-"), line.milliseconds, line.times_as_fast(PATCH)]
        for line in lines
    ]
    return table(["call, float32", "products routed, by kernel", "torch ms", "patch"], cells, numbers_from=2)


def _farthest(report: Report) -> str:
    compared = [row for row in report.results if row.worst_error is not None]
    if not compared:
        return ""
    row = max(compared, key=lambda row: row.worst_error)
    return (
        f"Largest difference to torch's outputs and gradients, as a share of what rounding explains: "
        f"{row.worst_error:.2f} ({row.label}, {row.dtype}, {row.kernel})."
    )


def best(report: Report) -> str:
    """The model that a patch makes fastest, and the range of all of them, in a sentence."""
    patched = [
        (line.rows[PATCH].speedup.median, line)
        for line in lines_of(report.results)
        if line.group == MODEL and PATCH in line.rows and line.rows[PATCH].speedup
    ]
    if not patched:
        return ""
    gain, line = max(patched, key=lambda each: each[0])
    least = min(each for each, _ in patched)
    range_of_all = f"{ratio(least)} to {ratio(gain)}"
    return (
        f"Inside `fastgemm.patch()`, models of the transformers library run {range_of_all} times as fast as by "
        f"torch: {line.label}, {line.dtype}, {line.milliseconds} ms by torch, {ratio(gain)}. {place(report)}"
    )


def section(report: Report) -> str:
    lines = lines_of(report.results)
    models, compiled, chains = (
        [line for line in lines if line.group == group] for group in (MODEL, COMPILED, CHAIN)
    )
    parts = ["torch's time of a step, and how many times as fast it is under `patch` and after `convert`:"]
    if models:
        parts.append(_models(models, "model"))
    if compiled:
        parts.append(_models(compiled, "the same by `torch.compile`"))
    if chains:
        parts += ["Products inside torch's functions and in chains:", _chains(chains, report.summary["runs"])]
    return "\n\n".join(part for part in (*parts, _farthest(report), place(report)) if part)


def invariant_section(report: Report) -> str:
    """Of a report under ``--invariant``: times, and whose rows keep their bits."""
    kept = {
        (run["label"], run["dtype"]): f"{run['same_bits']} of {run['products']}"
        for run in report.summary["runs"]
        if "same_bits" in run
    }
    cells = [
        [
            *(
                line.label,
                line.dtype,
                line.milliseconds,
                line.times_as_fast(PATCH),
                line.times_as_fast(CONVERT),
            ),
            kept.get((line.label, line.dtype), "-"),
        ]
        for line in lines_of(report.results)
        if line.group == MODEL
    ]
    header = ["model", "type", "torch ms", "`patch`", "`convert`", "products with the same bits"]
    return f"{table(header, cells, numbers_from=2)}\n\n{place(report)}"
