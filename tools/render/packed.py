"""Layers with weights of 4 and 8 bits: speedups over torch's bfloat16, times of each kernel, counters of rungs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import fastgemm
import torch
from fastgemm.bench.formatting import percent, rate, ratio
from fastgemm.bench.records import Report, select

from .products import microseconds
from .spec import KERNEL, PLACE, Block, Column, Line, Rows, Table, beside, look_up, speedup

FORMAT, WEIGHT = Column("format", lambda line: line.first.group), Column("N x K", lambda line: _weight(line))
OWN, TORCH, READ, QUANTIZE = "fastgemm", "torch", "read", "quantize"
LADDER = "int4, all rungs"
IN_DETAIL = ("int4, groups of 128", "int8")  # formats whose kernels have a table


def _weight(line: Line) -> str:
    return " x ".join(map(str, line.first.shape[1:]))


def _layers(rows: Rows) -> Rows:
    return [row for row in rows if row.choice != QUANTIZE and row.group != LADDER and row.seconds]


def _by_rows_of_x(rows: Rows) -> list[Line]:
    """A line for each weight; its rows are found by the rows of x and the contender."""
    return beside(
        _layers(rows), lambda row: (row.group, *row.shape[1:]), lambda row: (row.shape[0], row.choice)
    )


def _columns(value: Any, form: Any, most: int | None = None) -> Any:
    """A column for each number of rows of x. ``value`` computes a cell from the line and this number."""

    def columns(rows: Rows) -> list[Column]:
        counts = sorted({row.shape[0] for row in _layers(rows) if most is None or row.shape[0] <= most})
        found = [FORMAT, WEIGHT]
        for m in counts:
            head = f"{m} row{'s' if m > 1 else ''}" if m == counts[0] else str(m)
            found.append(Column(head, lambda line, m=m: value(line, m) or "", form))
        return found

    return columns


def _speedup(line: Line, m: int) -> float | None:
    return look_up(line, ((m, OWN), "speedup", "median"))


def _of_read(line: Line, m: int) -> float | None:
    times = [look_up(line, ((m, name), "seconds", "median")) for name in (READ, OWN)]
    return times[0] / times[1] if all(times) else None


def _that_are_read(rows: Rows) -> list[Line]:
    return [line for line in _by_rows_of_x(rows) if any(name == READ for _, name in line.rows)]


def _of_first_weights(rows: Rows) -> Rows:
    """The rows of the first weight of each format that has a table of its kernels."""
    first = {row.group: row.shape[1:] for row in reversed(_layers(rows))}
    return [row for row in _layers(rows) if row.group in IN_DETAIL and row.shape[1:] == first[row.group]]


def _kernels(report: Report) -> str:
    def columns(rows: Rows) -> list[Column]:
        names = dict.fromkeys(row.choice for row in rows if row.choice not in (OWN, TORCH, READ))
        ways = {TORCH: "torch", OWN: "`level=None`", **{name: f"`{name}`" for name in names}}
        return [
            Column("rows of x", lambda line: line.first.shape[0]),
            *(Column(head, (way, "seconds", "median"), microseconds) for way, head in ways.items()),
            Column("`level=None` takes", (OWN, "kernel"), "`{}`"),
        ]

    table = Table(
        columns,
        lambda rows: beside(rows, "shape", "choice"),
        by=("group",),
        title="{0.group}, {0.shape[1]} x {0.shape[2]}, microseconds:",
    )
    return table.text(_of_first_weights(report.results))


def _errors(report: Report) -> str:
    """For each format, the errors with the least and with the largest number of rows of x."""
    counts = [row.shape[0] for row in _layers(report.results)]
    columns = [FORMAT]
    for m in (min(counts), max(counts)):
        for name, head in ((OWN, "fastgemm"), (TORCH, "torch")):
            path = ((m, name), "more", "error")
            columns.append(Column(f"{m} row{'s' if m > 1 else ''}, {head}", path, "{:.2e}"))
    table = Table(
        columns,
        lambda rows: beside(rows, "group", lambda row: (row.shape[0], row.choice)),
        title="Errors, relative to the float64 product with the quantized weight:",
    )
    return table.text(_layers(report.results))


def _quantization(report: Report) -> str:
    rows = select(report.results, choice=QUANTIZE)
    if not rows:
        return ""
    times = ", ".join(f"{rate(row.seconds.median * 1e3)} ({row.group})" for row in rows if row.seconds)
    n, k = rows[0].shape
    return f"`fastgemm.quantize_weight` of {n} x {k}, milliseconds: {times}."


READS = Table(
    _columns(_of_read, percent, most=16),
    _that_are_read,
    words=2,
    title="Share of the rate at which a kernel only reads the packed weight:",
)
RUNGS = Table(
    [
        KERNEL,
        Column("microseconds", "seconds.median", microseconds),
        Column("times as fast as torch", speedup, ratio),
    ],
    lambda rows: [row for row in rows if row.group == LADDER and row.seconds],
    title="int4, groups of 128, {0.shape[0]} rows of x, a weight of {0.shape[1]} x {0.shape[2]}:",
)


def _rungs(report: Report) -> str:
    rows = [replace(row, kernel=row.choice) for row in select(report.results, group=LADDER)]
    return f"{RUNGS.text(rows)}\n\n{PLACE}" if rows else ""


SIMULATED = (64, 256, 512)  # rows of x, N, K
LEVEL_6 = ("packed_mma", "packed_wgmma", "packed_tiles")  # in reading order


def _counters() -> str:
    """Counters of the rungs on the simulator."""
    own = [row for row in fastgemm.kernels("gemm", "cuda") if "none" not in row.codes]
    names = [row.name for row in own if row.level < 6]
    reports = [
        fastgemm.explain("gemm", kernel=name, shape=SIMULATED, dtype=torch.bfloat16, weight="int4")
        for name in [*names, *LEVEL_6]
    ]

    def of(report: Any, field: str, **wanted: str) -> int:
        sites = (s for s in report.sites if all(getattr(s, name) == value for name, value in wanted.items()))
        return sum(getattr(site, field) for site in sites)

    return Table(
        [
            Column("level", "level"),
            KERNEL,
            Column("requests for the weight", lambda r: of(r, "requests", buffer="codes"), "{:,}"),
            Column("sectors", lambda r: of(r, "sectors", buffer="codes"), "{:,}"),
            Column("sectors of `x`", lambda r: of(r, "sectors", buffer="a"), "{:,}"),
            Column("shared wavefronts", lambda r: of(r, "wavefronts", space="shared"), "{:,}"),
            Column("tensor-core instructions", lambda r: of(r, "requests", kind="mma"), "{:,}"),
        ],
        words=2,
    ).text(reports)


OF_THE_BUILD = {"packed_counters": _counters}
BLOCKS = {
    "packed_rungs": Block("packed", _rungs, device="cuda"),
    "packed": Block(
        "packed",
        Table(_columns(_speedup, ratio), _by_rows_of_x, words=2),
        READS,
        _kernels,
        _errors,
        _quantization,
        PLACE,
    ),
}
