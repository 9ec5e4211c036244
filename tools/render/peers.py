"""This library measured beside its alternatives for users of torch."""

from __future__ import annotations

from typing import Any

from fastgemm.bench.formatting import rate, ratio
from fastgemm.bench.records import Report
from fastgemm.bench.timing import geometric_mean

from .spec import PLACE, Block, Column, Line, Rows, Table, beside

NOTES = (
    "Rates: {method[text]}; and {method[back_to_back]}. JAX works on a stream of its own, which events on "
    "torch's "
    "stream do not measure, so it has only the second rate. Over torch: by the second rate, geometric "
    "mean over the sizes. "
    "Error: the largest \\|C - C64\\| / (\\|A\\| \\|B\\|) of the elements of {results[0].rows_checked} "
    "rows, C64 "
    "by float64 on the CPU (for float64, another order of the same sum). Set-up: seconds until "
    "the first results, with compilation and autotuning; no rate contains this time, and each product had "
    "{method[setup_seconds]:.0f} s for it. torch.compile: mode max-autotune without CUDA graphs, because these "
    "copy operands. Triton: a plain kernel with the best of its tiles. "
)


def _product(row: Any) -> str:
    return "**fastgemm**" if row.role == "rung" else row.kernel.partition(",")[0]


def _short(row: Any) -> str:
    """A short name: the side of a cube, else the label."""
    return str(row.shape[0]) if len(set(row.shape)) == 1 and row.layout == "NN" else row.label


def _over_torch(line: Line) -> float | None:
    gains = [row.speedup.median for row in line.rows.values() if row.speedup]
    return 1.0 if line.first.role == "baseline" else geometric_mean(gains) if gains else None


def _all(name: str, together: Any):
    def value(line: Line) -> float | None:
        found = [value for row in line.rows.values() if (value := getattr(row, name)) is not None]
        return together(found) if found else None

    return value


def _columns(rows: Rows) -> list[Column]:
    sizes = dict.fromkeys(map(_short, rows))
    return [
        Column("product", lambda line: _product(line.first)),
        Column("asked for", "choice", "`{}`"),
        *(Column(f"{size}, cold", (size, "rate"), rate) for size in sizes),
        *(Column(f"{size}, back to back", (size, "back_to_back_rate"), rate) for size in sizes),
        Column("over torch", _over_torch, ratio),
        Column("error", _all("component_error", max), "{:.1e}"),
        Column("set-up, s", _all("setup_seconds", sum), "{:.1f}"),
    ]


def _contenders(rows: Rows) -> list[Line]:
    """One line per contender, for all problems of its group."""
    found = beside(rows, lambda row: (_product(row), row.choice), _short)
    return [line for line in found if any(row.back_to_back for row in line.rows.values())]


def _untimed(report: Report) -> str:
    """The contenders without a figure, by reason."""
    reasons: dict[str, list[str]] = {}
    for row in report.results:
        if row.message:
            what = f"{_product(row).strip('*')} `{row.choice}`, {row.dtype} {_short(row)}"
            reasons.setdefault(row.message.replace("|", "/"), []).append(what)
    lines = (f"- {reason} ({'; '.join(found)})" for reason, found in reasons.items())
    return "\n".join(["Without a figure:\n", *lines]) if reasons else ""


def _versions(report: Report) -> str:
    versions = report.environment.get("peers", {}).items()
    return ", ".join(f"{name} {version or 'not installed'}" for name, version in versions)


BLOCKS = {
    "gpu_peers": Block(
        "peers",
        Table(_columns, _contenders, words=2, by="group", title="**{0.group}**, {0.unit}"),
        _untimed,
        lambda report: f"{NOTES.format(**vars(report))}{_versions(report)}. {PLACE}",
        device="cuda",
    ),
}
