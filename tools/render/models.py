"""Whole models: the results of the programs in examples/."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastgemm.bench.formatting import percent, rate, ratio
from fastgemm.bench.records import Report, select

from .spec import PLACE, Block, Column, Line, Rows, Table, beside, look_up

WAYS = {
    "patch": "patch",
    "convert": "convert",
}  # kernels of the rows beside torch: the ways of running a model


def milliseconds(seconds: float) -> str:
    return rate(seconds * 1e3)


def _kernels(routed: dict[str, Any]) -> str:
    return ", ".join(f"`{name}` {n}" for name, n in routed["kernels"].items()) or "none"


def _beside_torch(words: dict[str, str], across: str, ways: dict[str, str], group: str = "") -> Table:
    """A table with a line for each value of the fields ``words``. For each value of the field ``across`` it
    shows torch's time, and how many times as fast the others are."""

    def lines(rows: Rows) -> list[Line]:
        found = select(rows, group=group) if group else rows
        return beside(found, tuple(words.values()), (across, "kernel"))

    def columns(rows: Rows) -> list[Column]:
        found = [Column(head, field) for head, field in words.items()]
        for value in dict.fromkeys(name for line in lines(rows) for name, _ in line.rows):
            found.append(Column(f"{value}, torch ms", ((value, "torch"), "seconds", "median"), milliseconds))
            found += [Column(head, ((value, way), "speedup", "median"), ratio) for way, head in ways.items()]
        return found

    return Table(columns, lines, words=len(words))


def _kept(report: Report) -> str:
    """For runs with ``--invariant``: how many products have the same bits."""
    table = Table(
        [
            Column("model", "label"),
            Column("type", "dtype"),
            Column("products with the same bits", lambda run: f"{run['same_bits']} of {run['products']}"),
        ],
        words=2,
    )
    return table.text(run for run in report.summary["runs"] if "same_bits" in run)


def _farthest(report: Report) -> str:
    row = max(report.results, key=lambda row: row.worst_error or 0)
    return (
        f"Largest difference from torch's outputs and gradients, divided by the difference that rounding "
        f"can explain: "
        f"{row.worst_error or 0:.2f} ({row.label}, {row.dtype}, {row.kernel})."
    )


def _best(report: Report) -> str:
    """A sentence: the model with the largest gain from a patch, and the range over all models."""
    models = beside(select(report.results, group="eager"), ("label", "dtype"), "kernel")
    gains = [(gain, line) for line in models if (gain := look_up(line, "patch.speedup.median"))]
    if not gains:
        return ""
    least, (most, best) = min(gain for gain, _ in gains), max(gains, key=lambda each: each[0])
    return (
        f"Inside `fastgemm.patch()`, models of the transformers library run {ratio(least)} to "
        f"{ratio(most)} times "
        f"as fast as by torch. The largest speedup is {ratio(most)}: {best.first.label}, {best.first.dtype}, "
        f"{milliseconds(best.get('torch').seconds.median)} ms by torch. {PLACE}"
    )


def _differences(report: Report) -> str:
    def cell(i: int) -> Callable[[dict], str]:
        return lambda run: "{largest:.1e} ({of_bound:.2f})".format(**run["differences"][i])

    runs = report.summary["runs"]
    table = Table(
        [
            Column("type", lambda run: "tf32" if run["precision"] == "tf32" else run["dtype"]),
            Column("model", "group"),
            Column("products of a step by kernel", lambda run: _kernels(run["routed_in_a_step"])),
            *(Column(each["kind"], cell(i)) for i, each in enumerate(runs[0]["differences"])),
        ],
        words=3,
    )
    return table.text(runs)


def _host_times(report: Report) -> str:
    times = ", ".join(f"`{name}` {time:.1f}" for name, time in report.summary["host_us"].items())
    return f"Time on the host of one call on 16 x 16 matrices, in microseconds: {times}."


TRANSFORMER = (
    "**{results[0].label}**",
    _beside_torch({"type": "type_name", "model": "group"}, "op", {"fastgemm": "times as fast"}),
    "Largest difference from torch's loss, logits, gradients and weights after the step; in brackets, "
    "divided by the difference that rounding can explain:",
    _differences,
    _host_times,
    PLACE,
)


def _seconds(head: str, way: str) -> Column:
    return Column(head, f"{way}.seconds.median", lambda seconds: f"{seconds * 1e3:#.3g}".rstrip("."))


def _efficiency(way: str) -> Column:
    """The efficiency of two devices."""
    return Column("efficiency", lambda line: line.get(way).speedup.median / 2, percent)


def _of_devices(head: str, way: str, *columns: Column) -> Table:
    first = (
        Column(head, f"{way}.shape", lambda shape: "x".join(map(str, shape))),
        Column("type", "type_name"),
    )
    return Table([*first, *columns], lambda rows: beside(rows, ("label", "type_name"), "choice"), words=2)


def _devices(report: Report) -> str:
    env = report.environment
    through = f"NCCL {env['nccl']}" if env["backend"] == "nccl" else env["backend"]
    return f"On {env['devices']} devices through {through}. {PLACE}"


SCALING = _of_devices(
    *("tokens x hidden x ffn", "one device"),
    _seconds("one device, ms", "one device"),
    Column("TFLOPS", "one device.rate", rate),
    _seconds("compute", "compute"),
    _seconds("all-reduce", "all-reduce"),
    Column("bus GB/s", "all-reduce.rate", rate),
    _seconds("both by hand", "by hand"),
    _efficiency("by hand"),
    _seconds("by DTensor", "whole"),
    _efficiency("whole"),
)
CUTS = _of_devices(
    *("M x N x K", "one product"),
    _seconds("one device, ms", "one product"),
    _seconds("cut along N", "columns"),
    _efficiency("columns"),
    _seconds("cut along K", "inner"),
    _efficiency("inner"),
)
MODELS = {"model": "label"}
BLOCKS = {
    "models": Block(
        "models",
        "The tables show torch's time for a step, and the speedup under `patch` and after `convert`:",
        _beside_torch(MODELS, "dtype", WAYS, "eager"),
        _beside_torch({"the same by `torch.compile`": "label"}, "dtype", WAYS, "compiled"),
        "These calls multiply inside torch's functions, or in a chain of products:",
        _beside_torch({"call": "label"}, "dtype", {"patch": "patch"}, "chain"),
        _farthest,
        PLACE,
    ),
    "invariant_models": Block(
        "invariant_models", _beside_torch(MODELS, "dtype", WAYS, "eager"), _kept, PLACE
    ),
    "models_best": Block("models", _best),
    "transformer": Block("transformer", *TRANSFORMER),
    "transformer_wide": Block("transformer_wide", *TRANSFORMER),
    "gpu_scale": Block("tensor_parallel", SCALING, _devices),
    "gpu_scale_cuts": Block("tensor_parallel", CUTS, _devices),
}
