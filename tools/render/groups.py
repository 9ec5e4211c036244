"""Groups of problems compared with libraries: geometric means, single problems, and README's first figures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from fastgemm.bench.formatting import percent, rate, ratio
from fastgemm.bench.records import Measurement, Report, select
from studies import plots

from .spec import (
    KERNEL,
    PLACE,
    Block,
    Column,
    Line,
    Picture,
    Rows,
    Table,
    beside,
    place,
    program,
    quoted,
    speedup,
    versions,
)

LIMITS = (
    "The limits are those of the GPU. FMA peak: the rate of its multiply-add units at the clock during the run. "
    "Tensor-core peak: the data sheet's rate. Plain read: the rate of a kernel that only reads the larger "
    f"operand, measured in the same run. {PLACE}"
)


def own(rows: Iterable[Measurement]) -> list[Measurement]:
    return [row for row in rows if row.role not in ("baseline", "library", "limit") and row.rate]


@dataclass(frozen=True)
class Group:
    """Rows of own kernels, one per problem. ``of_better``: the speed of level=None relative to the faster of
    own kernel and library."""

    name: str
    rows: Rows
    of_better: list[float] = field(default_factory=list)

    @property
    def gains(self) -> list[float]:
        return [row.speedup.median for row in self.rows if row.speedup]

    @property
    def most(self) -> Measurement:
        return max(self.rows, key=lambda row: row.rate or 0)


BOTH_WAYS = {"level 6", "fastest"}


def _single(rows: Rows) -> Rows:
    return [row for row in rows if row.rate and not row.joules and row.role != "limit"]


def groups(rows: Rows) -> list[Group]:
    """The groups of single calls. Level 6 is included where it was measured beside level=None."""
    names = dict.fromkeys(row.group for row in own(_single(rows)))
    return [_group(name, _side_by_side(select(rows, group=name))) for name in names]


def _side_by_side(rows: Rows) -> list[Line]:
    return beside(_single(rows), "label", lambda row: row.choice or row.role)


def _group(name: str, lines: list[Line]) -> Group:
    level6 = [line for line in lines if line.rows.keys() >= BOTH_WAYS]
    if not level6:
        return Group(name, own(row for line in lines for row in line.rows.values()))
    return Group(name, [line.rows["level 6"] for line in level6], [_of_better(line) for line in level6])


def _of_better(line: Line) -> float:
    others = [line.rows[name].seconds.median for name in ("level 6", "baseline") if name in line.rows]
    return min(others) / line.rows["fastest"].seconds.median


def _of_limit(row: Measurement) -> str | None:
    return f"{percent(row.share_of_limit)} of {row.limit_name}" if row.limit else None


def _mean(values: list[float]) -> float | None:
    return statistics.geometric_mean(values) if values else None


NAME = Column("products", "name")
KERNELS = Column("kernels", lambda group: quoted(row.kernel for row in group.rows))
COUNT = Column("problems", lambda group: len(group.gains or group.rows))
BEST = Column("best rate", lambda group: f"{rate(group.most.rate)} {group.most.unit}".rstrip())
OF_LIMIT = Column("of the limit", lambda group: _of_limit(group.most))
LIBRARY = Column(
    "library",
    lambda group: quoted((row.baseline for row in group.rows if row.speedup), without="torch has none"),
)
MEAN = Column("times as fast, geometric mean", lambda group: _mean(group.gains), ratio)
LEAST = Column("least", lambda group: min(group.gains, default=None), ratio)
OF_BETTER = (
    Column("`level=None`, of the better of both", lambda group: _mean(group.of_better), ratio),
    Column("least", lambda group: min(group.of_better, default=None), ratio),
)
MEANS = Table([NAME, KERNELS, COUNT, BEST, LIBRARY, MEAN, LEAST], groups, words=2)
MEANS_OF_BOTH = Table(
    [NAME, KERNELS, COUNT, BEST, OF_LIMIT, LIBRARY, MEAN, LEAST, *OF_BETTER],
    lambda rows: [group for group in groups(rows) if group.of_better],
    words=2,
)
ALL = Table(MEANS.columns, lambda rows: [*groups(rows), Group("all", own(rows))], words=2)


def _outliers(report: Report) -> str:
    """The slowest random products."""
    summary = report.summary
    slow = [f"{o['problem']} ({ratio(o['settled'])}, `{o['kernel']}`)" for o in summary.get("outliers", ())]
    return (
        f"A product that took longer than max(1.04 torch, torch + 1 us) was measured again with 200 pairs: "
        f"{len(summary.get('measured_again', ()))}. These were still slower: {'; '.join(slow) or 'none'}. Seed "
        f"{report.method.get('seed')}. {PLACE}"
    )


PROBLEMS = Table(
    [
        Column("type", "type_name"),
        Column("problem", lambda row: row.label if row.op == "gemm" else f"{row.op} {row.label}"),
        KERNEL,
        Column("rate", lambda row: f"{rate(row.rate)} {row.unit}"),
        Column("of the limit", _of_limit),
        Column("times as fast as torch", speedup, ratio),
        Column("spread", lambda row: row.speedup.spread if row.speedup else None, percent),
    ],
    own,
    words=3,
)
BOTH = Table(
    [
        Column("problem", "label"),
        Column("kernel of level 6", "level 6.kernel", "`{}`"),
        Column("rate", lambda line: f"{rate(line.get('level 6').rate)} {line.first.unit}"),
        Column("of the limit", lambda line: _of_limit(line.get("level 6"))),
        Column("library", lambda line: f"`{line.first.baseline}`" if "baseline" in line.rows else "none"),
        Column("times as fast", "level 6.speedup.median", ratio),
        Column("kernel of `level=None`", "fastest.kernel", "`{}`"),
        Column("times as fast", "fastest.speedup.median", ratio),
        Column("of the better of both", lambda line: _of_better(line), ratio),
    ],
    lambda rows: [line for line in _side_by_side(rows) if line.rows.keys() >= BOTH_WAYS],
    words=2,
    by="group",
    title="**{0.group}**",
)
SUSTAINED = Table(
    [
        Column("type", "type_name"),
        Column("problem", "label"),
        Column("asked for", lambda row: row.choice or "library"),
        KERNEL,
        Column("rate", lambda row: f"{rate(row.rate)} {row.unit}"),
        Column("times as fast", speedup, ratio),
        Column("SM clock, MHz", "telemetry.sm_clock_mhz", "{:.0f}"),
        Column("power, W", "telemetry.power_w", "{:.0f}"),
        Column("J a product", "joules", "{:.3g}"),
        Column("pJ an operation", lambda row: row.joules / (row.rate * row.seconds.median), "{:.2f}"),
    ],
    lambda rows: [row for row in rows if row.joules and row.rate],
    words=4,
)


def _largest(report: Report) -> str:
    """The table for the largest size of a sweep."""
    return SUSTAINED.text(select(report.results, shape=report.results[-1].shape))


# README begins with this sentence, and with a table of the speedups of level=None.
SENTENCE = (
    "On an {device}, float32 products run at **{mean} times** the rate of cuBLAS at no lower accuracy "
    "(geometric mean of {count} problems from {least_size} to {most_size}; least {least}), and a float32 "
    "training step of [a transformer](docs/drop_in.md#a-transformer) runs **{step} times** as fast as by torch "
    "alone. Large aligned bfloat16 products run at cuBLAS's own rate ({bfloat16}); [models in bfloat16]"
    "(docs/drop_in.md#models-of-the-transformers-library) are faster because of their other products: "
    "Llama {training} times in training and {decoding} times in decoding."
)
FILES = ("weak_spots", "transformer", "reference", "tensor_cores", "models", "transformer_wide")
Reports = dict[str, Report]


def _by_default(report: Report, group: str, name: str) -> Group:
    return Group(name, [row for row in select(report.results, group=group, choice="fastest") if row.rate])


def _patched(reports: Reports, dtype: str, op: str) -> Rows:
    """A model of the transformers library inside ``patch``, without torch.compile."""
    return select(reports["models"].results, group="eager", kernel="patch", type_name=dtype, op=op)


def _steps(reports: Reports, dtype: str, *files: str) -> Rows:
    """Training steps of examples/transformer.py."""
    wanted = {"op": "training step", "type_name": dtype, "role": "rung"}
    return [row for name in files for row in select(reports[name].results, **wanted)]


def _models(reports: Reports, dtype: str) -> list[Group]:
    training = _steps(reports, dtype, "transformer", "transformer_wide")
    forward = ("llama-prefill", "bert", "gpt2", "vit")
    return [
        Group(f"{dtype} models, training", [*training, *_patched(reports, dtype, "llama-training")]),
        Group(
            f"{dtype} models, forward pass", [row for op in forward for row in _patched(reports, dtype, op)]
        ),
        Group(f"{dtype} models, decoding", _patched(reports, dtype, "llama-decode")),
    ]


def _float32(reports: Reports) -> Group:
    return _by_default(reports["weak_spots"], "float32", "float32, large and aligned")


def _bfloat16(reports: Reports) -> Group:
    return _by_default(reports["tensor_cores"], "bfloat16", "bfloat16, large and aligned")


def _on_cpus(reports: Reports) -> list[Group]:
    """float32 products by all threads of each processor that was measured."""
    found = []
    for report in reports.values():
        rows = select(report.results, group="fp32 512..4096")
        if rows := [row for row in own(rows) if row.speedup]:
            device = report.environment["device"].replace("(R)", "")
            model = "-".join(report.environment["cpu_model"].split("-")[1:3])  # family and model
            name = f"float32, {rows[0].threads} threads of an {device} ({model})"
            found.append(Group(name, rows))
    return found


def _ordinary(grids: Reports) -> list[Group]:
    """16-bit products of ordinary size in CUDA graphs, on each GPU that was measured."""
    return [
        Group(
            f"16 bits, ordinary sizes, in CUDA graphs, on an {report.environment['device']}",
            select(report.results, choice="level=None"),
        )
        for report in grids.values()
    ]


def _gains(reports: Reports, processors: Reports, grids: Reports) -> str:
    """The speedups of level=None. The table also has rows without a gain."""
    moved = beside(
        select(reports["reference"].results, op="transpose", role="rung"), ("label", "dtype"), "kernel"
    )
    fastest = [max(line.rows.values(), key=lambda row: row.rate or 0) for line in moved]
    lines = [
        _float32(reports),
        *_models(reports, "float32"),
        Group("transposed copies", [row for row in fastest if row.speedup]),
        _by_default(reports["weak_spots"], "bfloat16, odd sizes", "bfloat16, odd sizes"),
        _bfloat16(reports),
        *_models(reports, "bfloat16"),
        *_ordinary(grids),
        *_on_cpus(processors),
    ]
    commands = dict.fromkeys(
        f"`{program(each)}` (commit {each.environment['commit']})" for each in reports.values()
    )
    places = "".join(f" Ordinary sizes: {place(each)}" for each in grids.values())
    places += "".join(f" On a CPU: {place(each)}" for each in processors.values())
    return (
        f"{Table([NAME, MEAN, LEAST, COUNT, BEST, LIBRARY]).text(lines)}\n\n"
        "`level=None` against torch; of transposed copies, the better of levels 5 and 6. Measured on "
        f"{versions(reports['weak_spots'].environment)}, by {', '.join(commands)}.{places}"
    )


def _headline(reports: Reports, processors: Reports, grids: Reports) -> str:
    float32 = _float32(reports)
    sizes = [size for row in float32.rows for size in row.shape]
    steps = [row.speedup.median for row in _steps(reports, "float32", "transformer")]
    llama = {
        op: _mean(Group(op, _patched(reports, "bfloat16", op)).gains)
        for op in ("llama-training", "llama-decode")
    }
    return SENTENCE.format(
        device=reports["weak_spots"].environment["device"],
        mean=MEAN.cell(float32),
        count=len(float32.rows),
        least=LEAST.cell(float32),
        least_size=min(sizes),
        most_size=max(sizes),
        step=" to ".join(dict.fromkeys(ratio(found(steps)) for found in (min, max))),
        bfloat16=MEAN.cell(_bfloat16(reports)),
        training=ratio(llama["llama-training"]),
        decoding=ratio(llama["llama-decode"]),
    )


HEADLINES: dict[str, Callable[[Reports, Reports, Reports], str]] = {"gains": _gains, "headline": _headline}
FIRST = Picture("headline", "Rates of float32 products, fastgemm and torch, on", plots.headline_figure)
SPOTS = Picture(
    "weak_spots", "float32 products and skinny products against torch on", plots.weak_spots_figure
)
POWER = Picture("sweep", "Sustained rates, power and clocks on", plots.sustained_figure)
BLOCKS: dict[str, Any] = {
    "headline_picture": Block("weak_spots", picture=FIRST, device="cuda"),
    "reference": Block("reference", MEANS, PLACE, device="cpu"),
    "gpu_random60": Block("random60", ALL, _outliers, device="cuda"),
    "gpu_tensor_cores": Block("tensor_cores", BOTH, PLACE, device="cuda"),
    "gpu_tensor_means": Block("tensor_cores", MEANS_OF_BOTH, PLACE, device="cuda"),
    "gpu_weak_spots_means": Block("weak_spots", MEANS_OF_BOTH, LIMITS, device="cuda"),
    "gpu_weak_spots": Block("weak_spots", BOTH, LIMITS, picture=SPOTS, device="cuda"),
    "gpu_weak_spots_sustained": Block(
        "weak_spots",
        SUSTAINED,
        "Back to back: {method[back_to_back]}. Energy comes from the GPU's counter. {place}",
    ),
    "gpu_sweep": Block("sweep", _largest, "Step {method[step]}; {method[text]}. {place}", picture=POWER),
}
