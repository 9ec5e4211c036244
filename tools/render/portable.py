"""The path of every GPU beside that of Hopper, on one Hopper GPU, in Markdown.

A file is {"environment": ..., "results": [{"name", "dtype", "shape": [m, n, k], "portable_seconds",
"hopper_seconds", "torch_seconds"}]}; a time that there is none of is null.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from .markdown import table

INTEGERS = ("int8", "int32", "int64")
NOT_YET = "Not measured yet."


def sections(files: Iterable[dict[str, Any]]) -> str:
    return "\n\n".join(map(_section, files)) or NOT_YET


def _section(data: dict[str, Any]) -> str:
    lines = []
    for row in data["results"]:
        times = [row[f"{who}_seconds"] for who in ("portable", "hopper", "torch")]
        rates = [2 * prod(row["shape"]) / time / 1e12 if time else None for time in times]
        portable, hopper, torch = rates
        unit = "TOPS" if row["dtype"] in INTEGERS else "TFLOPS"
        shape = "x".join(map(str, row["shape"]))
        cells = [f"{row['dtype']} {shape}", f"`{row['name']}`", unit]
        cells += ["-" if rate is None else f"{rate:.3g}" for rate in rates]
        cells += [f"{portable / other:.2f}" if portable and other else "-" for other in (hopper, torch)]
        lines.append(cells)
    header = ["product", "kernel", "unit", "portable path", "sm_90a", "`torch.matmul`"]
    header += ["portable, of sm_90a", "times as fast as torch"]
    env = data["environment"]
    commit = env["commit"]
    if env.get("portable_commit", commit) != commit:
        commit = f"{env['portable_commit']} (portable), {commit} (sm_90a)"
    place = (
        f"Measured on {env['device']} (driver {env['driver']}, CUDA {env['cuda']}, cuBLAS {env['cublas']}), torch "
        f"{env['torch']}, {env['date'][:10]}, commit {commit}."
    )
    return f"{table(header, lines, numbers_from=3)}\n\n{place}"
