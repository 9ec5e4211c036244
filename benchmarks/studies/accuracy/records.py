"""The report of an accuracy study."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fastgemm.bench.records import Report, as_text

from studies.reports import read_head, rows_of

from .contenders import LIBRARY

COMMAND = "accuracy"


@dataclass(frozen=True)
class Error:
    """The error of one float32 product, over all trials."""

    distribution: str
    m: int
    n: int
    k: int
    threads: int
    kernel: str
    precision: str
    normwise: float  # |C - ref| / |ref| in Frobenius norms
    componentwise: float  # the largest |C - ref| / (|A| |B|)
    of_bound: float  # componentwise, in units of the bound that its precision promises
    repeats: bool = True  # whether a second call gave the same bits

    @property
    def is_library(self) -> bool:
        return self.kernel == LIBRARY

    @property
    def right(self) -> bool:
        """A kernel's promise for "ieee" holds for all data. Other precisions promise it only in a range."""
        promised = self.precision == "ieee" and not self.is_library
        return self.repeats and (self.of_bound <= 1 or not promised)

    @property
    def message(self) -> str:
        return f"{self.of_bound:.3g} of the bound" + ("" if self.repeats else ", other bits when repeated")


@dataclass(frozen=True)
class SpecialValue:
    """Whether a product of unusual operands has the result of float32 arithmetic."""

    case: str
    kernel: str
    precision: str
    elements: int
    wrong: int = 0

    @property
    def right(self) -> bool:
        return self.wrong == 0 or self.precision != "ieee" or self.kernel == LIBRARY


@dataclass(frozen=True)
class IntegerProduct:
    """An int32 product of numbers from the whole range, compared with the exact product modulo 2^32."""

    kernel: str
    m: int
    n: int
    k: int
    wrong: int = 0

    @property
    def right(self) -> bool:
        return self.wrong == 0


@dataclass
class AccuracyReport(Report):
    """``results`` holds errors."""

    results: list[Error] = field(default_factory=list)
    special: list[SpecialValue] = field(default_factory=list)
    integers: list[IntegerProduct] = field(default_factory=list)

    @property
    def right(self) -> bool:
        return all(row.right for row in (*self.results, *self.special, *self.integers))

    @property
    def drawable(self) -> bool:
        return bool(self.results)

    def wrong_lines(self) -> list[str]:
        """A line for each wrong result in the report."""
        errors = [
            f"{row.kernel}, {row.distribution} {row.m}x{row.n}x{row.k}: {row.message}"
            for row in self.results
            if not row.right
        ]
        others = [
            f"{row.kernel}, {row.case}: {row.wrong} of {row.elements} elements wrong"
            for row in self.special
            if not row.right
        ]
        exact = [
            f"{row.kernel}, int32 {row.m}x{row.n}x{row.k}: {row.wrong} elements wrong"
            for row in self.integers
            if not row.right
        ]
        return errors + others + exact

    def to_json(self, raw: bool = False) -> str:
        tables = {name: (getattr(self, name), problem) for name, (_, problem) in TABLES.items()}
        return as_text(self._head(), tables, raw)


# The type of each table's rows, and the fields that describe the problem.
TABLES: dict[str, tuple[type, tuple[str, ...]]] = {
    "results": (Error, ("distribution", "kernel", "precision", "m", "n", "threads")),  # a line for all k
    "special": (SpecialValue, ("case",)),
    "integers": (IntegerProduct, ("m", "n", "k")),
}


def read_accuracy(path: Path) -> AccuracyReport:
    """Reads what ``AccuracyReport.to_json`` wrote. Raises ValueError for any other file."""
    data = read_head(path)
    if data["command"] != COMMAND:
        raise ValueError(f"{path}: not an accuracy report")
    return AccuracyReport(
        **data | {name: [kind(**row) for row in rows_of(data[name])] for name, (kind, _) in TABLES.items()}
    )
