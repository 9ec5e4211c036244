"""What a program waits for once, in Markdown, from what tools/first_product.py wrote."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .markdown import table


def sections(files: Iterable[dict[str, Any]]) -> str:
    return "\n\n".join(map(_section, files))


def _section(data: dict[str, Any]) -> str:
    env, size, processes = data["environment"], data["size"], data["processes"]
    steps = table(["in this order", "ms"], [[name, f"{ms:.3g}"] for name, ms in data["rows"].items()], 1)
    return (
        f"{steps}\n\nProducts of {size} x {size} matrices; medians of {processes} processes that had "
        f"imported torch and made a context. Measured on {env['device']} (driver {env['driver']}, CUDA "
        f"{env['cuda']}), torch {env['torch']}, {env['date'][:10]}, commit {env['commit']}, by "
        "`python tools/first_product.py`."
    )
