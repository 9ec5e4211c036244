"""Tables of what examples/tensor_parallel.py measured, in Markdown."""

from __future__ import annotations

from .formatting import percent, rate
from .markdown import place, table
from .records import Measurement, Report


def _milliseconds(row: Measurement) -> str:
    value = row.seconds.median * 1e3
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def _problems(report: Report) -> list[dict[str, Measurement]]:
    """The rows of each problem, by what was timed."""
    names = dict.fromkeys((row.label, row.type_name) for row in report.results)
    return [
        {row.choice: row for row in report.results if (row.label, row.type_name) == name} for name in names
    ]


def _efficiency(row: Measurement, devices: int) -> str:
    return percent(row.speedup.median / devices)


def scaling_table(report: Report) -> str:
    """The MLP on one device and on all of them: milliseconds."""
    devices = report.environment["devices"]
    header = ["tokens x hidden x ffn", "type", "one device", "TFLOPS"]
    header += ["compute", "all-reduce", "bus GB/s", "both by hand", "efficiency", "by DTensor", "efficiency"]
    lines = []
    for rows in _problems(report):
        one, reduce, hand, whole = (rows[n] for n in ("one device", "all-reduce", "by hand", "whole"))
        lines.append(
            [
                *(one.label, one.type_name, _milliseconds(one), rate(one.rate)),
                *(_milliseconds(rows["compute"]), _milliseconds(reduce), rate(reduce.rate)),
                *(_milliseconds(hand), _efficiency(hand, devices)),
                *(_milliseconds(whole), _efficiency(whole, devices)),
            ]
        )
    return table(header, lines, numbers_from=2)


def cuts_table(report: Report) -> str:
    """One product cut along N with an all-gather, and along K with an all-reduce: milliseconds."""
    devices = report.environment["devices"]
    header = ["M x N x K", "type", "one device", "cut along N", "efficiency", "cut along K", "efficiency"]
    lines = []
    for rows in _problems(report):
        one, columns, inner = (rows[name] for name in ("one product", "columns", "inner"))
        lines.append(
            [
                *("x".join(map(str, one.shape)), one.type_name, _milliseconds(one)),
                *(_milliseconds(columns), _efficiency(columns, devices)),
                *(_milliseconds(inner), _efficiency(inner, devices)),
            ]
        )
    return table(header, lines, numbers_from=2)


def _section(report: Report, lines: str) -> str:
    env = report.environment
    through = f"NCCL {env['nccl']}" if env["backend"] == "nccl" else env["backend"]
    by = place(report).replace("by `fastgemm tensor_parallel`", "by `examples/tensor_parallel.py`")
    return f"{lines}\n\nOn {env['devices']} devices through {through}. {by}"


def scaling_section(report: Report) -> str:
    return _section(report, scaling_table(report))


def cuts_section(report: Report) -> str:
    return _section(report, cuts_table(report))
