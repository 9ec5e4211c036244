"""Complex products beside torch's, in Markdown, from what tools/complex_products.py wrote."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .markdown import source, table

HEAD = ["type", "size", "layout", "TFLOPS", "times as fast as torch", "level 6", "error", "torch's error"]


def sections(files: Iterable[dict[str, Any]]) -> str:
    return "\n\n".join(map(_section, files))


def _row(row: dict[str, Any]) -> list[str]:
    operations = 8 * row["size"] ** 3
    rate = operations / row["microseconds"]["fastgemm"] / 1e6
    ratios, errors = row["of_torch"], row["error"]
    size = f"{row['size']}"
    return [
        *(row["dtype"], size, row["layout"], f"{rate:.3g}"),
        *(f"{ratios['fastgemm']:.2f}", f"{ratios['level 6']:.2f}"),
        *(f"{errors['fastgemm']:.1e}", f"{errors['torch']:.1e}"),
    ]


def _section(data: dict[str, Any]) -> str:
    return (
        f"{table(HEAD, [_row(row) for row in data['rows']], 3)}\n\n"
        "Square products, 8 N^3 operations. Layouts: T transposed, C conjugated and transposed, as a view. Errors "
        f"in units of the element of abs(A) abs(B). {source(data)}"
    )
