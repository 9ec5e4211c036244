"""Layers with an epilogue beside torch's, in Markdown, from what tools/fused_linear.py wrote."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .markdown import source, table

HEAD = ["type", "M x N x K", "activation", "`level=None` takes", "us", "of eager", "of compiled", "of apart"]


def sections(files: Iterable[dict[str, Any]]) -> str:
    return "\n\n".join(map(_section, files))


def _row(row: dict[str, Any]) -> list[str]:
    compiled = row["speedup"].get("compiled")
    return [
        row["dtype"],
        " x ".join(map(str, row["shape"])),
        row["activation"] + (" + residual" if row["residual"] else ""),
        f"`{row['chosen']}`",
        f"{row['microseconds']['fastgemm']:.0f}",
        f"{row['speedup']['eager']:.2f}",
        "-" if compiled is None else f"{compiled:.2f}",
        f"{row['of_apart']:.2f}",
    ]


def _section(data: dict[str, Any]) -> str:
    return (
        f"{table(HEAD, [_row(row) for row in data['rows']], 4)}\n\n"
        "Ratios: how many times as fast as torch's functions one by one, as the same under `torch.compile`, "
        f"and as fastgemm's layer followed by torch's activation. {source(data)}"
    )
