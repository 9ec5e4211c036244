"""What a program waits for once, in Markdown, from what tools/first_product.py wrote."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .markdown import table


def sections(files: Iterable[dict[str, Any]]) -> str:
    return "\n\n".join(map(_section, files))


def _section(data: dict[str, Any]) -> str:
    env, size = data["environment"], data["size"]
    lines = [[name, f"{value:.3g}"] for name, value in data["rows"].items()]
    steps = table(["in this order", "ms"], lines, numbers_from=1)
    return (
        f"{steps}\n\nProducts of {size} x {size} matrices; medians of {data['processes']} processes that had imported torch and made a context. Measured on {env['device']} "
        f"(driver {env['driver']}, CUDA {env['cuda']}), torch {env['torch']}, {env['date'][:10]}, commit "
        f"{env['commit']}, by `python tools/first_product.py`."
    )
