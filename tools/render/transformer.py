"""Tables of examples/transformer.py in Markdown."""

from __future__ import annotations

from typing import Any

from fastgemm.bench.formatting import rate, ratio
from fastgemm.bench.records import Measurement, Report

from .markdown import place, table


def _type(run: dict[str, Any]) -> str:
    return run["precision"] if run["precision"] == "tf32" else run["dtype"]


def _pairs(report: Report) -> dict[tuple[str, str], list[tuple[Measurement, Measurement]]]:
    """Torch's row and the patched one of each phase, by type and model."""
    found: dict[tuple[str, str], list[tuple[Measurement, Measurement]]] = {}
    for theirs, own in zip(report.results[::2], report.results[1::2], strict=True):
        found.setdefault((own.type_name, own.group), []).append((theirs, own))
    return found


def _times(report: Report) -> str:
    pairs = _pairs(report)
    phases = [own.op for _, own in next(iter(pairs.values()))]
    header = [
        "type",
        "model",
        *(text for phase in phases for text in (f"{phase}, torch ms", "times as fast")),
    ]
    lines = []
    for (kind, group), rows in pairs.items():
        cells = [
            text
            for theirs, own in rows
            for text in (rate(theirs.seconds.median * 1e3), ratio(own.speedup.median))
        ]
        lines.append([kind, group, *cells])
    return table(header, lines, numbers_from=2)


def _kernels(run: dict[str, Any]) -> str:
    return ", ".join(f"`{name}` {n}" for name, n in run["routed_in_a_step"]["kernels"].items())


def _differences(report: Report) -> str:
    runs = report.summary["runs"]
    kinds = [d["kind"] for d in runs[0]["differences"]]
    lines = [
        [_type(run), run["group"], _kernels(run)]
        + [f"{d['largest']:.1e} ({d['of_bound']:.2f})" for d in run["differences"]]
        for run in runs
    ]
    return table(["type", "model", "products of a step by kernel", *kinds], lines, numbers_from=3)


def section(report: Report) -> str:
    host = ", ".join(f"`{name}` {time:.1f}" for name, time in report.summary["host_us"].items())
    return "\n\n".join(
        [
            f"**{report.results[0].label}**",
            _times(report),
            "Largest difference to torch's loss, logits, gradients and weights after the step; in brackets as a "
            "share of what rounding explains:",
            _differences(report),
            f"Host time of one call on 16 x 16 matrices, in microseconds: {host}.",
            place(report),
        ]
    )
