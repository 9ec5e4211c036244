"""The results of `benchmarks/run.py accuracy`: errors relative to the library's, special values, int32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastgemm.bench.formatting import ratio
from studies.accuracy import COMMAND
from studies.accuracy.contenders import LIBRARY
from studies.accuracy.figures import FIGURES
from studies.accuracy.lookup import CLOSE, MEASURES, Study, library_name, name
from studies.accuracy.records import AccuracyReport, IntegerProduct

from .spec import PLACE, Block, Column, Picture, Table, beside

SUMMARY_DEPTHS = (64, 1024, 16384)


def multiple(value: float) -> str:
    """A multiple of the library's error; bold above 1."""
    text = f"{value:.0e}" if value >= 1000 else f"{value:.0f}" if value >= 100 else ratio(value)
    return f"**{text}**" if text not in ("1.00", "1.0") and value > 1 else text


@dataclass(frozen=True)
class Case:
    """A contender's products of one size, for one distribution or for all."""

    study: Study
    kernel: str
    precision: str
    size: tuple[int, int]
    distribution: str = ""

    @property
    def depths(self) -> list[int]:
        return [shape[2] for shape in self.study.taken((self.kernel, self.precision), self.size)]

    def error(self, measure: str, depth: int) -> float | None:
        shape = (*self.size, depth)
        found = (
            self.study.error((self.kernel, self.precision), self.distribution, shape)
            if depth in self.depths
            else None
        )
        return getattr(found, measure, None)

    def ratio(self, measure: str, depth: int) -> float | None:
        shape = (*self.size, depth)
        known = depth in self.depths
        return (
            self.study.ratio((self.kernel, self.precision), self.distribution, shape, measure)
            if known
            else None
        )

    def worst(self, measure: str) -> tuple[float, str, int]:
        """The worst value of all distributions."""
        return self.study.worst((self.kernel, self.precision), self.size, measure)


def _close(study: Study, sizes: list[tuple[int, int]], distributions: list[str]) -> list[Case]:
    """The cases of contenders that are about as accurate as the library."""
    found = (
        Case(study, *contender, size, distribution)
        for distribution in distributions
        for contender in study.rivals
        for size in sizes
        if contender[1] in CLOSE
    )
    return [case for case in found if case.depths]


KERNEL = Column("kernel", "kernel", "`{}`")


def _ratios(report: AccuracyReport) -> str:
    """Both error measures at the first size, by distribution and K."""
    study = Study(report)
    size = study.sizes[0]

    def table(measure: str) -> Table:
        depths = [shape[2] for shape in study.shapes[size]]
        found = [Column(str(k), lambda case, k=k: case.ratio(measure, k), multiple) for k in depths]
        return Table([Column(f"{measure}, K =", "distribution"), KERNEL, *found], words=2)

    return "\n\n".join(
        table(measure).text(_close(study, [size], study.distributions)) for measure in MEASURES
    )


def _how(report: AccuracyReport) -> str:
    m, n = Study(report).sizes[0]
    return (
        f"Products of {m} x K by K x {n}, draws of each: {report.method['trials']}. Errors are divided by "
        f"the error of "
        f"{library_name(report)} in the same product; above 1, in bold, the kernel is less accurate. The "
        f"error of "
        f"the float64 reference itself is at most {report.summary['reference_error']:.0e} of any error "
        f"here. {PLACE}"
    )


def _where(measure: str) -> Callable[[Case], str]:
    return lambda case: "{} ({}, K = {})".format(multiple(case.worst(measure)[0]), *case.worst(measure)[1:])


def _depths(case: Case) -> str:
    return " to ".join(map(str, dict.fromkeys((min(case.depths), max(case.depths)))))


SIZES = Table(
    [
        KERNEL,
        Column("M x N", "size", lambda size: "{} x {}".format(*size)),
        Column("K", _depths),
        *(Column(f"worst ratio, {measure}", _where(measure)) for measure in MEASURES),
    ],
    words=5,
)


def _sizes(report: AccuracyReport) -> str:
    """The worst ratios of each size, and where they occur."""
    study = Study(report)
    cases = _close(study, study.sizes, [""])
    return SIZES.text(cases)


def _summary(report: AccuracyReport) -> str:
    """The error of every contender for normal data, and its worst ratio to the library's error."""
    study = Study(report)
    depths = [k for _, _, k in study.shapes[study.sizes[0]]]

    def error(measure: str, depth: int) -> Column:
        return Column(f"{measure}, K = {depth}", lambda case: case.error(measure, depth), "{:.1e}")

    def worst(measure: str) -> Column:
        def value(case: Case) -> float:
            found = (study.worst((case.kernel, case.precision), size, measure) for size in study.sizes)
            return max(each[0] for each in found if each)

        return Column(f"worst ratio, {measure}", value, multiple)

    table = Table(
        [
            Column("product", lambda case: _named(report, case)),
            Column("precision", "precision"),
            *(error(measure, k) for measure in MEASURES for k in SUMMARY_DEPTHS if k in depths),
            *map(worst, MEASURES),
        ],
        words=2,
    )
    return table.text(Case(study, *c, study.sizes[0], study.distributions[0]) for c in study.contenders)


def _named(report: AccuracyReport, row: Any) -> str:
    return name(report, row.kernel, row.precision) if row.kernel == LIBRARY else f"`{row.kernel}`"


def _verdict(row: Any) -> str:
    return "yes" if not row.wrong else f"**no**: {row.wrong} of {row.elements}"


def _special(report: AccuracyReport) -> str:
    """A table of contenders by special cases."""
    cases = dict.fromkeys(row.case for row in report.special)
    table = Table(
        [
            Column("product", lambda line: _named(report, line.first)),
            Column("precision", "precision"),
            *(Column(case, lambda line, case=case: _verdict(line.rows[case])) for case in cases),
        ],
        words=2 + len(cases),
    )
    return table.text(beside(report.special, ("kernel", "precision"), "case"))


def _integers(report: AccuracyReport) -> str:
    rows = report.integers
    wrong, elements = sum(row.wrong for row in rows), sum(row.m * row.n for row in rows)
    kernels, shapes = (", ".join(dict.fromkeys(each)) for each in zip(*map(_of_integers, rows), strict=True))
    return f"int32 products, wrong elements: {wrong} of {elements} ({kernels}; {shapes}). {PLACE}"


def _of_integers(row: IntegerProduct) -> tuple[str, str]:
    return f"`{row.kernel}`", f"{row.m}x{row.n}x{row.k}"


def _picture(measure: str, alt: str) -> Block:
    return Block(COMMAND, picture=Picture(f"accuracy_{measure}", alt, FIGURES[measure]), device="cuda")


SAID = "Errors on normal data; worst ratios over all distributions and shapes. {place}"
BLOCKS = {
    "accuracy_summary": Block(COMMAND, _summary, SAID, device="cuda"),
    "accuracy_ratios": Block(COMMAND, _ratios, _how, device="cuda"),
    "cpu_accuracy_ratios": Block(COMMAND, _ratios, _how, device="cpu"),
    "accuracy_sizes": Block(COMMAND, _sizes, PLACE, device="cuda"),
    "accuracy_special": Block(COMMAND, _special, PLACE, device="cuda"),
    "accuracy_integers": Block(COMMAND, _integers, device="cuda"),
    "accuracy_normwise": _picture("normwise", "Normwise errors by distribution and K on"),
    "accuracy_componentwise": _picture("componentwise", "Componentwise errors by distribution and K on"),
    "accuracy_ratio": _picture("ratio", "Errors in units of the library's by distribution and K on"),
}
