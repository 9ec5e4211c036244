"""Products of groups of uneven size: times and speedups over torch's grouped_mm."""

from __future__ import annotations

from fastgemm.bench.formatting import ratio

from .products import microseconds
from .spec import PLACE, Block, Column, Line, Rows, Table, beside


def _lines(rows: Rows) -> list[Line]:
    timed = [row for row in rows if row.seconds]
    return beside(timed, lambda row: (row.group, row.shape, row.dtype, row.label), "choice")


def _columns(rows: Rows) -> list[Column]:
    names = [name for name in dict.fromkeys(row.choice for row in rows) if name not in ("torch", "fastgemm")]
    times = {"torch": "torch", "fastgemm": "`level=None`", **{name: f"`{name}`" for name in names}}
    return [
        Column("experts", lambda line: line.first.group),
        Column("rows x N x K", lambda line: " x ".join(map(str, line.first.shape))),
        Column("tokens", lambda line: line.first.label.removesuffix(" tokens")),
        Column("type", lambda line: line.first.dtype),
        *(Column(head, (way, "seconds", "median"), microseconds) for way, head in times.items()),
        Column("of torch, times as fast", ("fastgemm", "speedup", "median"), ratio),
    ]


BLOCKS = {"grouped": Block("grouped", Table(_columns, _lines, words=4), PLACE)}
