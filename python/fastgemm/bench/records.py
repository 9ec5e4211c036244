"""Reports of a run's measurements, as JSON and CSV.

The JSON has one line for each problem, which has the common fields of its rows only once:

    {"op": "gemm", "shape": [64, 64, 64], "dtype": "float32", "rows": [
      {"kernel": "torch.matmul", "role": "baseline", "seconds": [1.451e-05, 0.023]},
      {"kernel": "tiled", "level": 2, "seconds": [8.1e-06, 0.021], "speedup": [1.79, 0.019]}]}

on one line. Rows that all have the same fields are stored as columns: ``"rows": {"k": [64, 128], ...}``. A field
with its default value is left out. Times and ratios are stored as median and spread (half the distance of the
quartiles, as a share of the median). Numbers have four digits. ``raw`` adds all samples, all digits and the values
of the GPU's sensors."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, TextIO

from .._typing import Op
from .checking import RAISED, Check
from .problems import Instance, dtype_name, label, label_of
from .timing import Interleaved, Summary

FORMAT = 2
PROBLEM = ("op", "shape", "label", "dtype", "layout", "threads", "group", "precision")  # one line of a file
# Further fields that the line has only once if all rows agree.
SHARED = ("unit", "baseline", "limit", "limit_name")
SENSED = ("sm_clock_mhz", "power_w")  # the sensors' values that are stored, for calls that lasted a second


@dataclass
class Measurement:
    """One kernel on one problem. ``seconds`` and fields that depend on it are None if the kernel was not timed."""

    op: Op = "gemm"
    shape: tuple[int, ...] = ()
    label: str = ""
    dtype: str = ""
    layout: str = ""
    threads: int = 0  # 0 on a GPU
    kernel: str = ""
    level: int | None = None  # as asked for; None: the fastest known
    role: str = "rung"  # rung, companion, pitfall; library; baseline: torch; limit: a plain copy or read
    group: str = ""
    choice: str = ""  # how the kernel was asked for, in words
    unit: str = ""
    rate: float | None = None
    limit: float | None = None
    limit_name: str = ""
    gain: float | None = None  # over the level below
    baseline: str = ""
    seconds: Summary | None = None
    speedup: Summary | None = None  # over the baseline, round by round
    worst_error: float | None = None  # in units of the bound
    component_error: float | None = None  # the largest |C - float64's| / (|A| |B|)
    rows_checked: int = 0
    right: bool = True
    message: str = ""  # what is wrong, or why it was not timed
    telemetry: dict[str, Any] | None = None  # of the GPU while the problem was measured
    joules: float | None = None  # per call, by the sustained method
    precision: str = ""  # asked for of a float32 product; empty: what torch is set to
    setup_seconds: float | None = None  # until the first result: compilation, autotuning
    back_to_back: Summary | None = None  # seconds a call, by the wall clock of a batch
    back_to_back_rate: float | None = None
    more: dict[str, Any] = field(default_factory=dict)  # values that only one preset has

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
        """Whether the call raised; then there was no result to be wrong."""
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

    @property
    def share_of_limit(self) -> float | None:
        return self.rate / self.limit if self.rate and self.limit else None


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

    def to_json(self, raw: bool = False) -> str:
        """A line for each problem. ``raw``: all digits and samples, and the values of sensors."""
        return as_text(self._head(), {"results": (self.results, PROBLEM)}, raw)

    def _head(self) -> dict[str, Any]:
        head = ("command", "environment", "method", "summary")
        return {"format": FORMAT, **{name: getattr(self, name) for name in head}}

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


def dense(value: Any) -> str:
    """JSON without spaces. With them, a twelfth of benchmarks/results would be spaces."""
    return json.dumps(value, separators=(",", ":"))


def as_text(head: dict[str, Any], tables: dict[str, tuple[Sequence[Any], Sequence[str]]], raw: bool) -> str:
    """JSON with a line for each entry of the head and for each problem. ``tables``: the rows, and the names of the
    fields that say which problem a row belongs to."""
    entries = [f" {dense(name)}:{dense(_short(value, raw))}" for name, value in head.items()]
    for name, (rows, key) in tables.items():
        lines = ",\n".join(dense(_short(problem, raw)) for problem in _problems(rows, key, raw))
        entries.append(f' "{name}":[\n{lines}\n ]' if lines else f' "{name}":[]')
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _problems(rows: Sequence[Any], key: Sequence[str], raw: bool) -> Iterator[dict[str, Any]]:
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(getattr(row, name) for name in key), []).append(_told(row, raw))
    for each in found.values():
        if len(each) == 1:
            yield from each
            continue
        said = [name for name in (*key, *SHARED) if name in each[0]]
        shared = {name: each[0][name] for name in said if all(row.get(name) == each[0][name] for row in each)}
        rest = [{name: value for name, value in row.items() if name not in shared} for row in each]
        yield {**shared, "rows": _in_columns(rest)}


def _in_columns(rows: list[dict[str, Any]]) -> list[dict[str, Any]] | dict[str, list[Any]]:
    """Each name once, if all rows have the same."""
    if not rows[0] or any(row.keys() != rows[0].keys() for row in rows):
        return rows
    return {name: [row[name] for row in rows] for name in rows[0]}


def _told(row: Any, raw: bool) -> dict[str, Any]:
    """The fields of a row whose values differ from the defaults."""
    found: dict[str, Any] = {}
    for each in fields(row):
        value = getattr(row, each.name)
        if each.name == "label" and value == label_of(row.shape, row.layout):
            continue
        if value == (each.default if each.default_factory is MISSING else each.default_factory()):
            continue
        if isinstance(value, Summary):
            value = asdict(value) if raw else [value.median, float(f"{value.spread:.2g}")]
        if each.name == "telemetry" and not raw:
            value = {name: value[name] for name in SENSED if name in value}
            if not row.joules:
                continue
        found[each.name] = value
    return found


def _short(value: Any, raw: bool) -> Any:
    """Numbers to four digits, unless ``raw``."""
    if raw:
        return value
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _short(each, raw) for name, each in value.items()}
    return [_short(each, raw) for each in value] if isinstance(value, (list, tuple)) else value


def select(rows: Iterable[Measurement], **wanted: Any) -> list[Measurement]:
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]
