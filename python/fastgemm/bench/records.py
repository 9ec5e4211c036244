"""Reports: what a run measured, as JSON and CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from .checking import RAISED, Check
from .problems import Instance, dtype_name, label
from .timing import Interleaved, Summary

FORMAT = 1


@dataclass
class Measurement:
    """One kernel on one problem. ``seconds`` and what follows from it is None where the kernel was not timed."""

    op: str
    shape: tuple[int, ...]
    label: str
    dtype: str
    layout: str
    threads: int  # 0 on a GPU
    kernel: str
    level: int | None  # as asked for; None: the fastest known
    role: str = "rung"  # rung, companion, pitfall; library; baseline: torch; limit: a plain copy or read
    group: str = ""
    choice: str = ""  # how the kernel was asked for, in words
    unit: str = ""
    rate: float | None = None
    limit: float | None = None
    limit_name: str = ""
    share_of_limit: float | None = None
    gain: float | None = None  # over the level below
    baseline: str = ""
    seconds: Summary | None = None
    speedup: Summary | None = None  # over the baseline, round by round
    worst_error: float | None = None  # in units of the bound
    rows_checked: int = 0
    right: bool = True
    message: str = ""  # what is wrong, or why it was not timed
    telemetry: dict[str, Any] | None = None  # of the GPU while the problem was measured
    joules: float | None = None  # per call, by the sustained method
    precision: str = ""  # asked for of a float32 product; empty: what torch is set to

    @classmethod
    def of(cls, instance: Instance, kernel: str, level: int | None, **more: Any) -> Measurement:
        problem = instance.problem
        return cls(
            op=problem.op,
            shape=problem.shape,
            label=label(problem),
            dtype=dtype_name(problem.dtype),
            layout=problem.layout,
            threads=instance.threads,
            kernel=kernel,
            level=level,
            unit=instance.unit[0],
            baseline=instance.baseline or "",
            precision=problem.precision or "",
            **more,
        )

    @property
    def failed(self) -> bool:
        """Whether it is not right because the call raised, and no result is known to be wrong."""
        return not self.right and self.message.startswith(RAISED)

    @property
    def type_name(self) -> str:
        """The dtype as tables show it: that of a float32 product in tf32 is tf32."""
        return self.dtype if self.precision in ("", "ieee") else self.precision

    def checked(self, outcome: Check) -> None:
        self.right, self.message = outcome.right, outcome.message
        self.worst_error, self.rows_checked = outcome.worst, outcome.rows_checked

    def timed(self, instance: Instance, samples: Interleaved, name: str, baseline: str) -> None:
        self.seconds = samples.seconds(name)
        self.rate = instance.work / self.seconds.median / instance.unit[1]
        if name != baseline and samples.has(baseline):
            self.speedup = samples.speedup(name, over=baseline)

    def against(self, limit: float | None, name: str) -> None:
        self.limit, self.limit_name = limit, name
        self.share_of_limit = self.rate / limit if self.rate and limit else None


@dataclass
class PeerMeasurement(Measurement):
    """What is measured beside other projects, bench/peers."""

    component_error: float | None = None  # the largest |C - float64's| / (|A| |B|)
    setup_seconds: float | None = None  # until the first result: compilation, autotuning
    back_to_back: Summary | None = None  # seconds a call, by the wall clock of a batch
    back_to_back_rate: float | None = None


@dataclass
class Report:
    """Everything one command measured."""

    command: str
    environment: dict[str, Any]
    method: dict[str, Any]
    results: list[Measurement] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        return all(row.right for row in self.results)

    @property
    def drawable(self) -> bool:
        return any(row.rate for row in self.results)

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"

    def write_csv(self, file: TextIO) -> None:
        rows = [_flat(asdict(row)) for row in self.results]
        columns = list(dict.fromkeys(key for row in rows for key in row))
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            flat.update({f"{key}_{name}": number for name, number in value.items()})
        elif isinstance(value, (tuple, list)):
            flat[key] = "x".join(map(str, value))
        else:
            flat[key] = value
    return flat


def read_report(path: Path) -> Report:
    """Reads what ``Report.to_json`` wrote. Raises ValueError for any other file."""
    data = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
        raise ValueError(f"{path}: not a fastgemm report of format {FORMAT}")
    results = [_measurement(row) for row in data.pop("results")]
    return Report(**data, results=results)


def _measurement(row: dict[str, Any]) -> Measurement:
    for name in ("seconds", "speedup", "back_to_back"):
        if row.get(name):
            row[name] = Summary(**row[name])
    kind = PeerMeasurement if "component_error" in row else Measurement
    return kind(**{**row, "shape": tuple(row["shape"])})


def select(rows: Iterable[Measurement], **wanted: Any) -> list[Measurement]:
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]
