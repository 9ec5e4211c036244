"""Describes, as data, what a page shows of a results file: blocks of tables, sentences and pictures.

    Block("sizes", Table(columns, rows, words=1), "A dash means that one run takes more than 50 ms. {place}")

A table has columns and lines. A line is a row of the file, or several rows of one problem side by side,
distinguished by how the kernel was chosen (``beside``). A column says where in a line its value is, by a
dotted path or a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fastgemm.bench import plots
from fastgemm.bench.presets import PRESETS
from fastgemm.bench.records import Report

Rows = list[Any]
Place = str | tuple[str, ...]  # where a value is: a dotted path, or its parts
NO_VALUE = "-"
PLACE = "{place}"


class Line:
    """The rows of one problem, by a distinguishing field. Common fields are those of the first row."""

    def __init__(self, below: Line | None = None):
        self.rows: dict[str, Any] = {}
        self.below = below  # the line before this one; in ladders, the level below

    @property
    def first(self) -> Any:
        return next(iter(self.rows.values()))

    def get(self, name: Any) -> Any:
        if name in self.rows or not isinstance(name, str):
            return self.rows.get(name)
        return getattr(self.first, name, None)


Key = str | Sequence[str] | Callable[[Any], Any]


def beside(rows: Iterable[Any], shared: Key, apart: Key) -> list[Line]:
    """One line for each value of ``shared``, which names fields or is a function. ``apart`` distinguishes the
    rows of a line; of rows with the same value the first counts."""
    found: dict[Any, Line] = {}
    below = None
    for row in rows:
        key = _key(row, shared)
        if key not in found:
            found[key] = below = Line(below)
        found[key].rows.setdefault(_key(row, apart), row)
    return list(found.values())


def _key(row: Any, key: Key) -> Any:
    if callable(key):
        return key(row)
    return getattr(row, key) if isinstance(key, str) else tuple(getattr(row, name) for name in key)


def look_up(found: Any, path: Place) -> Any:
    """Follows a dotted path through lines, dictionaries and attributes. Returns None if it ends early."""
    for name in path.split(".") if isinstance(path, str) else path:
        if found is None:
            return None
        found = found.get(name) if isinstance(found, (dict, Line)) else getattr(found, name)
    return found


@dataclass(frozen=True)
class Column:
    """``form``: a format or a function for values that are neither None nor empty."""

    head: str
    value: Place | Callable[[Any], Any]
    form: str | Callable[[Any], str] = "{}"

    def cell(self, line: Any) -> str:
        value = self.value(line) if callable(self.value) else look_up(line, self.value)
        if value is None or value == "":
            return NO_VALUE if value is None else ""
        return self.form(value) if callable(self.form) else self.form.format(value)


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]], words: int) -> str:
    """A table in Markdown. Columns after the first ``words`` are right-aligned."""
    marks = ["---" if i < words else "---:" for i in range(len(header))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, marks, *lines])


@dataclass(frozen=True)
class Table:
    """``lines``: makes lines of rows. ``by``: one table for each of its values. ``title``: a format for the
    first row."""

    columns: Sequence[Column] | Callable[[Rows], Sequence[Column]]
    lines: Callable[[Rows], Iterable[Any]] = list
    words: int = 1
    by: Key = ()
    title: str = ""

    def text(self, rows: Iterable[Any]) -> str:
        found: dict[Any, Rows] = {}
        for row in rows:
            found.setdefault(_key(row, self.by), []).append(row)
        return "\n\n".join(filter(None, map(self._one, found.values())))

    def _one(self, rows: Rows) -> str:
        lines = list(self.lines(rows))
        if not lines:
            return ""
        columns = self.columns(rows) if callable(self.columns) else self.columns
        cells = ([column.cell(line) for column in columns] for line in lines)
        shown = markdown([column.head for column in columns], cells, self.words)
        return f"{self.title.format(rows[0])}\n\n{shown}" if self.title else shown


@dataclass(frozen=True)
class Picture:
    """``alt``: the device's name is appended. ``draw`` makes a figure of a report."""

    name: str
    alt: str
    draw: Callable[[Any], Any] = plots.draw


Part = Table | str | Callable[[Report], str]


class Block:
    """Parts of a page that are made from a results file: tables, formats (for the report as a dictionary,
    with ``place``), and functions of the report. ``device``: only for cuda or only for cpu."""

    def __init__(self, file: str, *parts: Part, picture: Picture | None = None, device: str = ""):
        self.file, self.parts, self.picture, self.device = file, parts, picture, device

    def text(self, report: Report) -> str:
        return "\n\n".join(filter(None, (self._part(part, report) for part in self.parts)))

    def _part(self, part: Part, report: Report) -> str:
        if isinstance(part, Table):
            return part.text(report.results)
        if callable(part):
            return part(report).replace(PLACE, place(report))
        return part.format(**vars(report), place=place(report))


def place(report: Report) -> str:
    """A sentence: where, when and with what a report was measured."""
    threads = sorted({row.threads for row in report.results})
    counts = (
        f", {' and '.join(map(str, threads))} thread{'' if threads == [1] else 's'}" if threads != [0] else ""
    )
    then = program(report)
    now = f", now `python benchmarks/run.py {PRESET_OF[then]}`" if then in PRESET_OF else ""
    return f"Measured on {versions(report.environment, counts)}, by `{then}`{now}."


# Presets of benchmarks/run.py that replace former programs.
PRESET_OF = {
    "python tools/first_product.py": "first_product",
    "python tools/complex_products.py": "complex",
    "python tools/residue_products.py": "residues",
    "python tools/invariant_products.py": "invariant",
    "python tools/symmetric_products.py": "symmetric",
    "python tools/portable_products.py": "portable",
    "python tools/fused_linear.py": "linear",
}


def versions(env: dict[str, Any], threads: str = "") -> str:
    """The device, the relevant software, the date and the commit."""
    if env["device_type"] == "cuda":
        driver = env.get("driver", "unknown")
        device = f"{env['device']} (driver {driver}, CUDA {env['cuda']}, cuBLAS {env['cublas']})"
    else:
        device = f"{env['device']} ({env['cpu_model']}){threads}"
    library = f", transformers {env['transformers']}" if env.get("transformers") else ""
    commit = f", commit {env['commit']}" if env.get("commit") else ""
    return f"{device}, torch {env['torch']}{library}, {env['date'][:10]}{commit}"


def program(report: Report) -> str:
    """The command that measured a report; for a preset that ``fastgemm bench`` had then, today's command."""
    command, preset = report.command, report.method.get("preset")
    if preset:
        seed = f" --seed {report.method['seed']}" if preset == "grid" else ""  # decides which problems
        return f"python benchmarks/run.py {preset}{seed}"
    if command.startswith("python "):
        return command
    if command == "tensor_parallel":
        return "examples/tensor_parallel.py"  # by torchrun
    if command in ("transformer", "models"):
        return f"python examples/{command}.py" + (" --invariant" if report.summary.get("invariant") else "")
    presets = report.method.get("presets", ())
    if command in ("ladder", "bench") and set(presets) <= set(PRESETS):
        return f"fastgemm {command}" + "".join(f" --preset {name}" for name in presets)
    renamed = {"host-time": "host"}
    return f"python benchmarks/run.py {' '.join(presets) or renamed.get(command, command)}"


def speedup(row: Any) -> float | None:
    return 1.0 if row.role == "baseline" else look_up(row, "speedup.median")


def quoted(names: Iterable[str], without: str = NO_VALUE) -> str:
    """Names of kernels in a list, each once."""
    return ", ".join(dict.fromkeys(f"`{name}`" for name in names)) or without


KERNEL = Column("kernel", "kernel", "`{}`")
