"""The first figures of README: a sentence, in each language that README has, and five rows."""

# ruff: noqa: RUF001  (Chinese has punctuation of its own)

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from fastgemm.bench.formatting import rate, ratio
from fastgemm.bench.records import Measurement, Report, select

from .markdown import table

SENTENCES = {
    "en": "On an {device}, float32 products run at **{mean} times** the rate of cuBLAS at no lower accuracy "
    "(geometric mean of {count} problems from {least_size} to {most_size}; least {least}), and a float32 "
    "training step of [a transformer](docs/drop_in.md#a-transformer) runs **{step} times** as fast as by torch "
    "alone. Large aligned bfloat16 products run at cuBLAS's own rate ({bfloat16}).",
    "zh": "在 {device} 上，float32 矩阵乘法的速度是 cuBLAS 的 **{mean} 倍**，精度不降低（{least_size} 到 "
    "{most_size} 的 {count} 个问题的几何平均，最低 {least}）；[一个 transformer](docs/drop_in.md#a-transformer) "
    "的一步 float32 训练，速度是只用 torch 时的 **{step} 倍**。对齐的大尺寸 bfloat16 乘法与 cuBLAS "
    "持平（{bfloat16}）。",
}
DEFAULT = "fastest"  # what level=None chooses
TRANSPOSES = "transpose"
NAMED = {"bfloat16": "bfloat16, large and aligned", "float32": "float32, large and aligned"}


@dataclass(frozen=True)
class Line:
    """What a call without a level gains over torch in a group of problems."""

    name: str
    rows: list[Measurement]
    report: Report

    @property
    def gains(self) -> list[float]:
        return [row.speedup.median for row in self.rows if row.speedup]

    @property
    def mean(self) -> str:
        return ratio(statistics.geometric_mean(self.gains)) if self.gains else "-"

    @property
    def best_rate(self) -> str:
        timed = [row for row in self.rows if row.rate]
        if not timed:
            return "-"
        best = max(timed, key=lambda row: row.rate)
        return f"{rate(best.rate)} {best.unit}"

    def cells(self) -> list[str]:
        library = next((row.baseline for row in self.rows if row.baseline), None)
        counts = [str(len(self.rows)), self.best_rate]
        named = f"`{library}`" if library and self.gains else "torch has none"
        return [self.name, *counts, named, self.mean, ratio(min(self.gains, default=None))]


def _group(report: Report, group: str) -> Line:
    rows = select(select(report.results, group=group), choice=DEFAULT)
    return Line(NAMED.get(group, group), [row for row in rows if row.rate], report)


def _steps(report: Report) -> list[Measurement]:
    return [row for row in report.results if row.op == "training step" and row.type_name == "float32"]


def _training(report: Report) -> Line:
    return Line("float32, a training step", [row for row in _steps(report) if row.speedup], report)


def _transposes(report: Report) -> Line:
    """The best of levels 5 and 6 for each problem."""
    rows = [row for row in report.results if row.op == TRANSPOSES and row.role == "rung" and row.speedup]
    best: dict[tuple[str, str], Measurement] = {}
    for row in rows:
        key = row.label, row.dtype
        best[key] = max((found for found in (best.get(key), row) if found), key=lambda found: found.rate)
    return Line("transposed copies", list(best.values()), report)


def _source(report: Report) -> str:
    env = report.environment
    if report.command == "transformer":
        command = "python examples/transformer.py"
    else:
        command = f"fastgemm {report.command}" + "".join(
            f" --preset {name}" for name in report.method["presets"]
        )
    return f"`{command}` ({env['date'][:10]}, commit {env['commit'][:12]})"


Reports = dict[str, Report]
FILES = ("weak_spots", "transformer", "tensor_cores", "reference")


def lines_of(reports: Reports) -> list[Line]:
    return [
        _group(reports["weak_spots"], "float32"),
        _training(reports["transformer"]),
        _transposes(reports["reference"]),
        _group(reports["weak_spots"], "bfloat16, odd sizes"),
        _group(reports["tensor_cores"], "bfloat16"),
    ]


def gains_section(reports: Reports) -> str:
    """Five rows for a reader in a hurry; where nothing is gained is one of them."""
    if not set(FILES) <= set(reports):
        return ""
    header = ["products", "problems", "best rate", "library", "times as fast, geometric mean", "least"]
    lines = lines_of(reports)
    env = reports["weak_spots"].environment
    sources = dict.fromkeys(_source(line.report) for line in lines)
    return (
        f"{table(header, (line.cells() for line in lines))}\n\n"
        f"`level=None` against torch (of transposed copies the better of levels 5 and 6), measured on "
        f"{env['device']} (driver {env['driver']}, CUDA {env['cuda']}, "
        f"cuBLAS {env['cublas']}), torch {env['torch']}, by {_and(sources)}."
    )


def _and(texts: Iterable[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def sentence(reports: Reports, language: str) -> str:
    if not set(FILES) <= set(reports):
        return ""
    float32, training, _, _, bfloat16 = lines_of(reports)
    sizes = [size for row in float32.rows for size in row.shape]
    low, high = (ratio(found(training.gains)) for found in (min, max))
    return SENTENCES[language].format(
        device=float32.report.environment["device"],
        mean=float32.mean,
        count=len(float32.rows),
        least=ratio(min(float32.gains)),
        least_size=min(sizes),
        most_size=max(sizes),
        step=low if low == high else f"{low} 到 {high}" if language == "zh" else f"{low} to {high}",
        bfloat16=bfloat16.mean,
    )
