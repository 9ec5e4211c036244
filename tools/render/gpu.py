"""Tables of a GPU's reports in Markdown: what gpu_presets measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from fastgemm.bench import turns
from fastgemm.bench.formatting import percent, rate, ratio
from fastgemm.bench.problems import LAYOUTS
from fastgemm.bench.records import Measurement, Report, select

from .markdown import place, table, turns_table

OURS = ("rung", "companion", "pitfall", "alternative")


def ours(rows: Iterable[Measurement]) -> list[Measurement]:
    return [row for row in rows if row.role in OURS]


def speedup(row: Measurement | None) -> str:
    return ratio(row.speedup.median if row and row.speedup else None)


def _torch_rate(report: Report, row: Measurement) -> float | None:
    same = {"group": row.group, "label": row.label, "dtype": row.dtype}
    return next((r.rate for r in select(report.results, role="baseline", **same)), None)


def rungs_table(report: Report) -> str:
    """Every level at fp32 4096 in each layout: TFLOPS, what cuBLAS reaches, and the gain over the level below."""
    by_layout = {layout: select(report.results, group=f"fp32 4096 {layout}") for layout in LAYOUTS}
    if not all(by_layout.values()):
        return ""
    lines = []
    below: dict[str, float] = {}
    for level in sorted({row.level for row in ours(by_layout["NN"])}):
        rows = {layout: select(found, level=level)[0] for layout, found in by_layout.items()}
        gains = [
            f"{rows[layout].rate / below[layout]:.2f}x" if layout in below and rows[layout].rate else "-"
            for layout in LAYOUTS
        ]
        below = {layout: row.rate for layout, row in rows.items() if row.rate}
        kernels = ", ".join(dict.fromkeys(f"`{row.kernel}`" for row in rows.values()))
        rates, nn = [rate(row.rate) for row in rows.values()], rows["NN"]
        lines.append([str(level), kernels, *rates, speedup(nn), percent(nn.share_of_limit), *gains])
    torch = [select(found, role="baseline")[0] for found in by_layout.values()]
    share = percent(torch[0].share_of_limit)
    lines.append(["", "`torch.matmul`", *(rate(row.rate) for row in torch), "1.00", share, *[""] * 4])
    header = ["level", "kernel", *LAYOUTS, "of cuBLAS, NN", "of FMA peak", *(f"gain, {x}" for x in LAYOUTS)]
    return "**gemm, float32 4096x4096x4096, TFLOPS**\n\n" + table(header, lines, numbers_from=2)


def level5_table(report: Report) -> str:
    """Level 5 against torch: sizes, layouts and types."""
    rows = [row for row in ours(select(report.results, op="gemm")) if not row.group.startswith("fp32 4096 ")]
    lines = [
        [
            row.dtype,
            row.label,
            f"`{row.kernel}`",
            f"{rate(row.rate)} {row.unit}",
            rate(_torch_rate(report, row)),
            speedup(row),
            percent(row.speedup.spread if row.speedup else row.seconds.spread if row.seconds else None),
        ]
        for row in rows
    ]
    header = ["type", "problem", "kernel", "level 5", "torch", "times as fast as torch", "spread"]
    return table(header, lines, numbers_from=3) if lines else ""


def _of(rows: list[Measurement], kernel: str) -> float | None:
    return next((row.rate for row in select(rows, kernel=kernel)), None)


def movement_table(report: Report) -> str:
    """The best of levels 5 and 6 of each transpose, and level 5 of the sum, against a plain copy and libraries."""
    lines = []
    for group in dict.fromkeys(row.group for row in report.results if row.op != "gemm"):
        for label, dtype in dict.fromkeys((r.label, r.dtype) for r in select(report.results, group=group)):
            rows = select(report.results, group=group, label=label, dtype=dtype)
            candidates = [r for r in ours(rows) if r.rate and r.kernel != "cublas_geam"]
            if not candidates:
                continue
            best = max(candidates, key=lambda r: r.rate)
            geam, torch = _of(rows, "cublas_geam"), next(iter(select(rows, role="baseline")), None)
            lines.append(
                [
                    f"{best.op} {label}",
                    dtype,
                    f"`{best.kernel}`",
                    rate(best.rate),
                    percent(best.share_of_limit),
                    ratio(best.rate / geam if geam else None),
                    ratio(best.rate / torch.rate if torch and torch.rate else None),
                ]
            )
    header = ["problem", "type", "kernel", "GB/s", "of a plain copy", "times as fast as geam", "as torch"]
    return table(header, lines, numbers_from=3) if lines else ""


def rungs_section(report: Report) -> str:
    return "\n\n".join([text for text in [rungs_table(report)] if text] + [place(report)])


def reference_section(report: Report) -> str:
    tables = [rungs_table(report), level5_table(report), movement_table(report)]
    return "\n\n".join([text for text in tables if text] + [place(report)])


def random_section(report: Report) -> str:
    means = report.summary["geometric_means"]
    lines = [
        [name.removeprefix("random "), str(mean["problems"]), ratio(mean["speedup"]), ratio(mean["least"])]
        for name, mean in means.items()
    ]
    values = [row.speedup.median for row in ours(report.results) if row.speedup]
    if values:
        mean = statistics.geometric_mean(values)
        lines.append(["all", str(len(values)), ratio(mean), ratio(min(values))])
    text = table(["type", "problems", "times as fast as torch, geometric mean", "least"], lines)
    outliers = report.summary.get("outliers", [])
    again = len(report.summary.get("measured_again", []))
    found = "; ".join(f"{o['problem']} ({ratio(o['settled'])}, `{o['kernel']}`)" for o in outliers) or "none"
    worst = report.summary.get("against_torch", {}).get("worst")
    nearest = (
        f" Worst case: {worst['problem']} (`{worst['kernel']}`), {ratio(worst['speedup'])} of torch's rate, "
        f"{percent(worst['of_allowed_time'])} of that time."
        if worst
        else ""
    )
    return (
        f"{text}\n\nMeasured again with 200 pairs: {again}; still slower than max(1.04 torch, torch + 1 us): "
        f"{found}.{nearest} Seed {report.method.get('seed')}. {place(report)}"
    )


def host_section(report: Report) -> str:
    relative = report.summary["relative_to_torch_mm"]
    lines = [
        [f"`{row.kernel}`", f"{row.seconds.median * 1e9:.0f}", ratio(relative[row.kernel])]
        for row in turns.without(report.results)
    ]
    found = [table(["call", "ns on the host", "of `torch.mm`"], lines), *turns_table(report), place(report)]
    return "\n\n".join(found)


def sizes_section(report: Report) -> str:
    """TFLOPS of every level against size."""
    sizes = list(dict.fromkeys(row.shape[0] for row in report.results))
    names = list(dict.fromkeys(row.choice for row in ours(report.results)))
    lines = []
    for name in names:
        by_size = {row.shape[0]: row for row in select(ours(report.results), choice=name)}
        lines.append([name, *(rate(by_size[n].rate if n in by_size else None) for n in sizes)])
    by_size = {row.shape[0]: row.rate for row in select(report.results, role="baseline")}
    lines.append(["`torch.matmul`", *(rate(by_size.get(n)) for n in sizes)])
    header = [report.results[0].unit, *map(str, sizes)]
    return table(header, lines) + "\n\nA dash: one run takes more than 50 ms. " + place(report)


def sweep_section(report: Report) -> str:
    """The sweep in one line for each kernel: rate, clock, power and energy at its largest sizes."""
    lines = []
    for role, rows in (("level 5", ours(report.results)), ("torch", select(report.results, role="baseline"))):
        large = [row for row in rows if row.shape[0] >= 4096 and row.rate]
        if not large:
            continue
        measured = [row for row in large if row.telemetry and row.joules]
        per_operation = [2 * row.shape[0] ** 3 / row.joules / 1e9 for row in measured]
        lines.append(
            [
                role,
                ", ".join(dict.fromkeys(f"`{row.kernel}`" for row in large)),
                rate(statistics.fmean(row.rate for row in large)),
                rate(statistics.fmean(r.telemetry["sm_clock_mhz"] for r in measured) if measured else None),
                rate(statistics.fmean(r.telemetry["power_w"] for r in measured) if measured else None),
                rate(statistics.fmean(per_operation) if per_operation else None),
            ]
        )
    unit = report.results[0].unit
    header = ["", "kernels", f"{unit}, mean from 4096 up", "SM clock, MHz", "power, W", "GFLOP a joule"]
    step = report.method.get("step")
    return f"{table(header, lines, numbers_from=2)}\n\nStep {step}; {report.method['text']}. {place(report)}"
