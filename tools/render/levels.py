"""The levels one by one: the ladder, the sizes, and the host time of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastgemm.bench.formatting import percent, rate, ratio
from fastgemm.bench.problems import LAYOUTS
from fastgemm.bench.records import Report, select
from studies import plots, turns
from studies.gpu_presets import RUNGS_GROUP, STEPS, TENSOR_CORE_RUNGS

from .groups import PROBLEMS, own
from .spec import KERNEL, PLACE, Block, Column, Line, Picture, Rows, Table, beside, quoted, speedup

FP32 = "fp32 4096 "  # the groups of the ladder's problem, one per layout


def nanoseconds(seconds: float) -> str:
    return f"{seconds * 1e9:.0f}"


def _own(name: str):
    """A field of own rows; empty for libraries."""
    return lambda row: getattr(row, name) if row.role == "rung" else ""


def _ladder(rows: Rows) -> list[Column]:
    limit = next((row.limit_name for row in rows if row.limit_name), "limit")
    return [
        Column("level", _own("level")),
        KERNEL,
        Column(rows[0].unit, "rate", rate),
        Column(f"of {limit}", "share_of_limit", percent),
        Column(f"of `{rows[0].baseline or 'torch'}`", speedup, ratio),
        Column("over the level below", _own("gain"), "{:.2f}x"),
    ]


def _rungs_and_libraries(rows: Rows) -> Rows:
    return [row for role in ("rung", "baseline", "library") for row in select(rows, role=role)]


LADDER = Table(
    _ladder,
    _rungs_and_libraries,
    words=2,
    by="op",
    title="**{0.op}, {0.type_name} {0.label}**",
)


def _levels_by_layout(rows: Rows) -> list[Line]:
    found = [row for row in rows if row.group.startswith(FP32)]
    return [
        *beside(own(found), "level", "layout"),
        *beside(select(found, role="baseline"), "kernel", "layout"),
    ]


def _over_the_level_below(line: Line) -> float | str | None:
    if not line.first.level:
        return ""
    return line.get("NN").rate / line.below.get("NN").rate if line.below else None


RUNGS = Table(
    [
        Column("level", lambda line: line.first.level or ""),
        Column("kernel", lambda line: quoted(row.kernel for row in line.rows.values())),
        *(Column(layout, f"{layout}.rate", rate) for layout in LAYOUTS),
        Column("of cuBLAS, NN", lambda line: speedup(line.get("NN")), ratio),
        Column("of FMA peak", "NN.share_of_limit", percent),
        Column("over the level below, NN", _over_the_level_below, "{:.2f}x"),
    ],
    _levels_by_layout,
    words=2,
    title="**gemm, float32 4096x4096x4096, TFLOPS**",
)


def _tensor_rungs(rows: Rows) -> Rows:
    found = select(rows, group=RUNGS_GROUP)
    return [
        row for name in (*TENSOR_CORE_RUNGS, "torch.matmul") for row in select(found, kernel=name) if row.rate
    ]


TENSOR_RUNGS = Table(
    [
        KERNEL,
        Column("TFLOPS", "rate", rate),
        Column("of the data sheet's rate", "share_of_limit", percent),
        Column("of cuBLAS", speedup, ratio),
    ],
    _tensor_rungs,
)


def _side(row: Any) -> str:
    return str(row.shape[0])


def _steps(rows: Rows) -> list[Line]:
    """A line for each step, in the order in which they are read, and cuBLAS behind them."""
    names = (*(name for steps in STEPS.values() for name in steps), "torch.matmul")
    return beside((row for name in names for row in select(rows, kernel=name) if row.rate), "kernel", _side)


def _over_the_step_before(side: str) -> Callable[[Line], float | str | None]:
    def gain(line: Line) -> float | str | None:
        if line.first.role == "baseline":
            return ""
        both = line.get(side), line.below.get(side) if line.below else None
        return both[0].rate / both[1].rate if all(both) else None

    return gain


def _steps_by_side(rows: Rows) -> list[Column]:
    columns = [KERNEL]
    for side in dict.fromkeys(map(_side, rows)):
        columns += [
            Column(f"{side}, TFLOPS", f"{side}.rate", rate),
            Column("over the step before", _over_the_step_before(side), "{:.2f}x"),
        ]
    return columns


LADDER_STEPS = Table(_steps_by_side, _steps, by="dtype", title="**{0.dtype}, NT**")


def _sizes(rows: Rows) -> list[Column]:
    first = Column(rows[0].unit, lambda line: line.first.choice or "`torch.matmul`")
    return [first, *(Column(n, f"{n}.rate", rate) for n in dict.fromkeys(map(_side, rows)))]


def _calls(rows: Rows) -> list[Column]:
    """Columns with host times of repeated calls, one for each number of products in a call."""
    found = [Column(f"{rows[0].dtype} {rows[0].label}", "kernel", "`{}`")]
    for group in dict.fromkeys(row.group for row in turns.without(rows)):
        found += [
            Column(f"ns a product, {group}", (group, "seconds", "median"), nanoseconds),
            Column(
                f"times as fast as `{rows[0].baseline}`", lambda line, g=group: speedup(line.get(g)), ratio
            ),
        ]
    return found


def _repeated(rows: Rows) -> list[Column]:
    first = rows[0]
    return [
        Column("call", "kernel", "`{}`"),
        Column("ns on the host", "seconds.median", nanoseconds),
        Column(f"of `{first.kernel}`", lambda row: row.seconds.median / first.seconds.median, ratio),
    ]


CALLS = Table(_calls, lambda rows: beside(turns.without(rows), "kernel", "group"))
IN_TURN = Table(
    [
        Column("layers in turn", lambda line: f"{line.dtype}, {line.rows}"),
        Column("call", "way", "`{}`"),
        Column("ns a product, in turn", "in_turn", "{:.0f}"),
        Column("times as fast as `torch.matmul`", "speedup", ratio),
        Column("ns, each alone", lambda line: f"{min(line.alone):.0f} to {max(line.alone):.0f}"),
        Column("in turn, of the mean alone", "dearer", ratio),
    ],
    words=2,
)


def in_turn(report: Report) -> str:
    """The layers of a model, called in turn and each alone; empty if the report has none."""
    shapes = dict.fromkeys(row.shape[1:] for row in select(report.results, choice=turns.ALONE))
    layers = ", ".join(f"{n}x{k}" for n, k in shapes)
    table = IN_TURN.text(turns.lines(report.results))
    calls = "called one after the other (in turn), and each layer alone"
    return f"Layers with weights of {layers}, {calls}:\n\n{table}" if table else ""


def _other_problems(report: Report) -> str:
    return PROBLEMS.text(row for row in report.results if not row.group.startswith(FP32))


RATES = Picture("ladder", "Rates of the levels on")
BLOCKS = {
    "ladder": Block("ladder", LADDER, PLACE, picture=RATES),
    "ladder_picture": Block("ladder", PLACE, picture=RATES, device="cuda"),
    "overhead": Block("overhead", CALLS, in_turn, PLACE),
    "gpu_host": Block("host", Table(_repeated, turns.without), in_turn, PLACE, device="cuda"),
    "gpu_rungs": Block("reference", RUNGS, PLACE, device="cuda"),
    "gpu_reference": Block("reference", RUNGS, _other_problems, PLACE, device="cuda"),
    "gpu_tensor_rungs": Block(
        "tensor_cores", "**bfloat16 8192x8192x8192**", TENSOR_RUNGS, PLACE, device="cuda"
    ),
    "gpu_ladder_steps": Block("ladder_steps", LADDER_STEPS, PLACE, device="cuda"),
    "gpu_sizes": Block(
        "sizes",
        Table(_sizes, lambda rows: beside([*own(rows), *select(rows, role="baseline")], "choice", _side)),
        "A dash means that one run takes more than 50 ms. {place}",
        picture=Picture("sizes", "Rates against size on", plots.sizes_figure),
        device="cuda",
    ),
}
