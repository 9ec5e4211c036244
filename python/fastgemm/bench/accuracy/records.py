"""The report of an accuracy study."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..records import FORMAT, Report
from .contenders import LIBRARY

COMMAND = "accuracy"


@dataclass(frozen=True)
class Error:
    """The error of one float32 product, over all trials."""

    distribution: str
    m: int
    n: int
    k: int
    threads: int  # 0 on a GPU
    kernel: str
    precision: str
    normwise: float  # |C - ref| / |ref| in Frobenius norms
    componentwise: float  # the largest |C - ref| / (|A| |B|)
    of_bound: float  # componentwise, in units of what its precision promises
    repeats: bool  # whether a second call gave the same bits

    @property
    def is_library(self) -> bool:
        return self.kernel == LIBRARY

    @property
    def right(self) -> bool:
        """What a kernel promises under "ieee" holds for all data; other precisions have ranges."""
        promised = self.precision == "ieee" and not self.is_library
        return self.repeats and (self.of_bound <= 1 or not promised)

    @property
    def message(self) -> str:
        return f"{self.of_bound:.3g} of the bound" + ("" if self.repeats else ", other bits when repeated")


@dataclass(frozen=True)
class SpecialValue:
    """Whether a product of unusual operands is what float32 arithmetic makes of them."""

    case: str
    kernel: str
    precision: str
    elements: int
    wrong: int

    @property
    def right(self) -> bool:
        return self.wrong == 0 or self.precision != "ieee" or self.kernel == LIBRARY


@dataclass(frozen=True)
class IntegerProduct:
    """An int32 product of numbers from the whole range, against the exact one modulo 2^32."""

    kernel: str
    m: int
    n: int
    k: int
    wrong: int

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
        """What makes the report wrong, a line each."""
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

    def to_json(self) -> str:
        """A line for each row: there are hundreds."""
        head = {name: getattr(self, name) for name in ("command", "environment", "method", "summary")}
        text = json.dumps({"format": FORMAT, **head}, indent=1).removesuffix("\n}")
        for name in ("results", "special", "integers"):
            rows = ",\n".join("  " + json.dumps(asdict(row)) for row in getattr(self, name))
            text += f',\n "{name}": [\n{rows}\n ]' if rows else f',\n "{name}": []'
        return text + "\n}\n"


def read_accuracy(path: Path) -> AccuracyReport:
    """Reads what ``AccuracyReport.to_json`` wrote. Raises ValueError for any other file."""
    data = json.loads(path.read_text(encoding="utf-8"))
    if data.pop("format", None) != FORMAT or data.get("command") != COMMAND:
        raise ValueError(f"{path}: not an accuracy report of format {FORMAT}")
    kinds: dict[str, Any] = {"results": Error, "special": SpecialValue, "integers": IntegerProduct}
    rows = {name: [kind(**row) for row in data.pop(name)] for name, kind in kinds.items()}
    return AccuracyReport(**data, **rows)
