"""Products with a symmetric result, in Markdown, from what tools/symmetric_products.py wrote."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .markdown import source, table

HEAD = [
    "type",
    "size",
    "`level=None` takes",
    "us",
    "times as fast as torch",
    "of the general product",
    "kernel `symmetric`, times as fast",
]


def sections(files: Iterable[dict[str, Any]]) -> str:
    return "\n\n".join(map(_section, files))


def _ratio(ratios: dict[str, float], way: str) -> str:
    return f"{ratios[way]:.2f}" if way in ratios else "-"


def _row(row: dict[str, Any]) -> list[str]:
    return [
        *(row["dtype"], str(row["size"]), f"`{row['chosen']}`"),
        f"{row['microseconds']['fastgemm']:.0f}",
        _ratio(row["of_torch"], "fastgemm"),
        _ratio(row["of_general"], "fastgemm"),
        _ratio(row["of_torch"], "symmetric"),
    ]


def _section(data: dict[str, Any]) -> str:
    return (
        f"{table(HEAD, [_row(row) for row in data['rows']], 3)}\n\n"
        f"`a @ a.mT`, of complex numbers `a @ a.mH`, square. Ratios: how many times as fast. {source(data)}"
    )
