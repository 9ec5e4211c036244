"""Tables of level 6 on a GPU in Markdown: what gpu_presets.tensor_cores measured."""

from __future__ import annotations

import statistics
from functools import cache

import torch
from fastgemm._explain.run import explain
from fastgemm.bench.formatting import percent, rate, ratio
from fastgemm.bench.gpu_presets import RUNGS_GROUP, TENSOR_CORE_RUNGS
from fastgemm.bench.records import Measurement, Report, select

from .markdown import place, table

# Two waves of tiles in bfloat16: every rung computes it by the instantiation that it has for large products.
LIKE_LARGE = (4096, 2048, 64)


@cache
def compiled(kernel: str) -> tuple[int | None, int]:
    """Registers of a thread (None: nvcc has not compiled it yet) and bytes of shared memory of a block."""
    launch = explain("gemm", kernel=kernel, shape=LIKE_LARGE, dtype=torch.bfloat16).main
    return launch.occupancy.registers, launch.dynamic_shared + launch.static_shared


def rungs_section(report: Report) -> str:
    """The rungs inside level 6, each against the one below, cuBLAS and the limit."""
    rows = select(report.results, group=RUNGS_GROUP)
    lines, below = [], None
    for row in (row for name in TENSOR_CORE_RUNGS for row in select(rows, kernel=name) if row.rate):
        registers, shared = compiled(row.kernel)
        lines.append(
            [
                f"`{row.kernel}`",
                rate(row.rate),
                percent(row.share_of_limit),
                ratio(row.speedup.median),
                f"{row.rate / below:.2f}x" if below else "-",
                str(registers or "-"),
                f"{shared / 1024:.0f} KB",
            ]
        )
        below = row.rate
    for row in select(rows, role="baseline"):
        lines.append([f"`{row.kernel}`", rate(row.rate), percent(row.share_of_limit), "1.00", "", "", ""])
    header = ["kernel", "TFLOPS", "of the limit", "of cuBLAS", "over the rung below"]
    text = table([*header, "registers a thread", "shared memory a block"], lines)
    limit = next((row.limit for row in rows if row.limit), None)
    said = f"The limit, {rate(limit)} TFLOPS, is the data sheet's. " if limit else ""
    return f"**bfloat16 8192x8192x8192**\n\n{text}\n\n{said}{place(report)}"


def _series(row: Measurement) -> tuple[str, str, str]:
    return row.type_name, row.layout, row.baseline


def squares_section(report: Report) -> str:
    """Level 6 in every type and layout over the sizes: rate, and how many times as fast as the library."""
    own = [row for row in select(report.results, choice="level 6") if row.rate and row.speedup]
    sizes = sorted({row.shape[0] for row in own})
    lines = []
    for series in dict.fromkeys(map(_series, own)):
        rows = {row.shape[0]: row for row in own if _series(row) == series}
        cells = [
            f"{rate(rows[n].rate)} ({ratio(rows[n].speedup.median)})" if n in rows else "" for n in sizes
        ]
        kernels = ", ".join(dict.fromkeys(f"`{row.kernel}`" for row in rows.values()))
        mean = ratio(statistics.geometric_mean(row.speedup.median for row in rows.values()))
        type_name, layout, baseline = series
        lines.append([f"{type_name} {layout}", kernels, f"`{baseline}`", *cells, mean])
    header = ["type, layout", "kernel of level 6", "library", *map(str, sizes), "geometric mean"]
    said = "TFLOPS (int8: TOPS), and how many times as fast as the library in the same run."
    return f"{table(header, lines, numbers_from=3)}\n\n{said} {place(report)}"


def means_section(report: Report) -> str:
    """Level 6 against the library by group, and what level=None makes of both."""
    lines = []
    for group in dict.fromkeys(row.group for row in select(report.results, choice="level 6")):
        rows = [r for r in select(report.results, group=group, choice="level 6") if r.rate and r.speedup]
        if not rows:
            continue
        ratios = [row.speedup.median for row in rows]
        default = report.summary["default_of_best"].get(group, {})
        lines.append(
            [
                group.removesuffix(f", {rows[0].baseline}"),
                f"{max(row.rate for row in rows):.0f} {rows[0].unit}",
                f"`{rows[0].baseline}`",
                ratio(statistics.geometric_mean(ratios)),
                ratio(min(ratios)),
                ratio(default.get("share")),
                ratio(default.get("least")),
            ]
        )
    header = ["problems", "level 6, best rate", "library", "times as fast, geometric mean", "least"]
    header += ["`level=None`, of the better of both", "least"]
    return f"{table(header, lines)}\n\n{place(report)}"
