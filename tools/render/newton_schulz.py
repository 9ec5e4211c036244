"""Newton-Schulz iterations, in Markdown, from what examples/newton_schulz.py wrote."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .markdown import source, table

HEAD = ["type", "layer", "torch us", "fastgemm", "`torch.compile`", "error of torch", "of fastgemm"]


def sections(files: Iterable[dict[str, Any]]) -> str:
    return "\n\n".join(map(_section, files))


def _row(row: dict[str, Any]) -> list[str]:
    torch, own, compiled = (row["ways"].get(way) for way in ("torch", "fastgemm", "torch.compile"))
    return [
        *(row["dtype"], " x ".join(map(str, row["shape"])), f"{torch['microseconds']:.0f}"),
        *("-" if way is None else f"{way['of_torch']:.2f}" for way in (own, compiled)),
        *(f"{way['error']:.1e}" for way in (torch, own)),
    ]


def _section(data: dict[str, Any]) -> str:
    return (
        f"{table(HEAD, [_row(row) for row in data['rows']], 2)}\n\n"
        "Five steps: torch's time, how many times as fast as that, and how far each is from the same steps in "
        f"float64, relative to their result. {source(data)}"
    )
