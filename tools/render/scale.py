"""Tables of what examples/tensor_parallel.py measured, in Markdown, and what follows for more devices."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from fastgemm.bench.formatting import percent, rate
from fastgemm.bench.records import Measurement, Report

from .markdown import place, table


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


@dataclass(frozen=True)
class Network:
    """An all-reduce of S bytes on p devices takes 2 (p - 1) (latency + S / p / bandwidth): a ring's steps."""

    latency: float  # seconds of a step
    bandwidth: float  # bytes a second that a device sends meanwhile

    @classmethod
    def fit(cls, report: Report) -> Network:
        """From the all-reduces of a report: the fastest gives the bandwidth, the shortest the latency.

        Raises ValueError where they do not tell the two apart.
        """
        devices = report.environment["devices"]
        timed = [(rows["all-reduce"], _bytes(rows["one device"])) for rows in _problems(report)]
        bandwidth = max(row.rate for row, _ in timed) * 1e9
        seconds, size = min((row.seconds.median, size) for row, size in timed)
        steps = 2 * (devices - 1)
        latency = seconds / steps - size / devices / bandwidth
        if latency <= 0:
            raise ValueError("all of the all-reduces are as fast: none is short enough to show the latency")
        return cls(latency, bandwidth)

    def all_reduce(self, size: float, devices: int) -> float:
        return 2 * (devices - 1) * (self.latency + size / devices / self.bandwidth)


def _bytes(mlp: Measurement) -> int:
    """Of its result, which is what the devices add up."""
    tokens, hidden, _ = mlp.shape
    return tokens * hidden * getattr(torch, mlp.dtype).itemsize


BETWEEN_NODES = 50e9  # bytes a second: 400 Gb/s for each GPU
PLANNED = (2, 4, 8)


def planned_table(report: Report) -> str:
    """Efficiency on more devices, had each the rate of one: one device's time shared, and a ring's all-reduce."""
    network = Network.fit(report)
    between = Network(network.latency, BETWEEN_NODES)
    header = ["tokens x hidden x ffn", "type", "2, measured", *(f"{p}, model" for p in PLANNED)]
    header += [f"{p}, one a node, model" for p in (2, 8)]
    lines = []
    for rows in _problems(report):
        one = rows["one device"]

        def modelled(devices: int, network: Network, one: Measurement = one) -> str:
            alone = one.seconds.median
            together = alone / devices + network.all_reduce(_bytes(one), devices)
            return percent(alone / together / devices)

        lines.append(
            [
                *(one.label, one.type_name),
                _efficiency(rows["by hand"], report.environment["devices"]),
                *(modelled(p, network) for p in PLANNED),
                *(modelled(p, between) for p in (2, 8)),
            ]
        )
    fitted = f"{network.latency * 1e6:.0f} us a step and {network.bandwidth / 1e9:.0f} GB/s"
    return f"{table(header, lines, numbers_from=2)}\n\nThe model's network, from the same run: {fitted}."


def _section(report: Report, lines: str) -> str:
    env = report.environment
    through = f"NCCL {env['nccl']}" if env["backend"] == "nccl" else env["backend"]
    by = place(report).replace("by `fastgemm tensor_parallel`", "by `examples/tensor_parallel.py`")
    return f"{lines}\n\nOn {env['devices']} devices through {through}. {by}"


def scaling_section(report: Report) -> str:
    return _section(report, scaling_table(report))


def cuts_section(report: Report) -> str:
    return _section(report, cuts_table(report))


def planned_section(report: Report) -> str:
    return _section(report, planned_table(report))
