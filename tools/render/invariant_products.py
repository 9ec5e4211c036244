"""Products with ``invariant=True``, in Markdown, from what tools/invariant_products.py wrote."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .markdown import source, table

HEAD = ["type", "M x N x K", "us", "of torch", "`level=None`, of torch", "which takes"]


def sections(files: Iterable[dict[str, Any]]) -> str:
    return "\n\n".join(map(_section, files))


def _row(row: dict[str, Any]) -> list[str]:
    return [
        row["precision"] or row["dtype"],
        f"{row['m']} x {row['n']} x {row['k']}",
        f"{row['microseconds']['invariant']:.0f}",
        f"{row['of_torch']['invariant']:.2f}",
        f"{row['of_torch']['fastgemm']:.2f}",
        f"`{row['chosen']}`",
    ]


def _section(data: dict[str, Any]) -> str:
    return (
        f"{table(HEAD, [_row(row) for row in data['rows']], 2)}\n\n"
        f"`x @ weight.T`. Ratios: how many times as fast as torch, whose rows have no such promise. {source(data)}"
    )
