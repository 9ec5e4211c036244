"""The tables of an accuracy study."""

from __future__ import annotations

from fastgemm._explain.rich_tables import ByWidth, stacked, whole
from fastgemm.cli.console import console
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from .lookup import MEASURES, Study, name
from .records import AccuracyReport


def _scientific(value: float) -> str:
    return f"{value:.1e}"


def _multiple(value: float) -> str:
    text = _scientific(value) if value >= 100 else f"{value:.2f}"
    return f"[red]{text}[/]" if value > 1 else text


def _worst_table(report: AccuracyReport, study: Study) -> ByWidth:
    """A row for each distribution and contender, with the worst errors and the worst ratios over all shapes. In a
    narrow terminal there are two rows, with the errors in the second."""
    wide = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for title in ("distribution", "product", "precision"):
        wide.add_column(title, no_wrap=True)
    figures = (*MEASURES, *(f"of {name(report, *study.contenders[0])}'s" for _ in MEASURES))
    for title in figures:
        wide.add_column(title, justify="right")
    stack: list[tuple[RenderableType, list[list[Text]]]] = []
    for distribution in study.distributions:
        for contender in study.contenders:
            cells, labels = _worst(study, distribution, contender), (name(report, *contender), contender[1])
            wide.add_row(distribution, *labels, *cells)
            above = Text(", ".join((distribution, *labels)))
            stack.append((above, [[Text.from_markup(cell) for cell in cells]]))
        wide.add_section()
    return ByWidth(wide, stacked(figures, stack))


def _worst(study: Study, distribution: str, contender: tuple[str, str]) -> list[str]:
    """Each measure's largest error over all shapes, then its largest ratio."""
    shapes = [shape for size in study.sizes for shape in study.taken(contender, size)]
    errors = [study.error(contender, distribution, shape) for shape in shapes]
    worst = [_scientific(max(getattr(e, measure) for e in errors)) for measure in MEASURES]
    ratios = [
        _multiple(max(study.ratio(contender, distribution, shape, measure) for shape in shapes))
        for measure in MEASURES
    ]
    return [*worst, *ratios]


def _special_table(report: AccuracyReport) -> Table:
    table = Table(title="as IEEE float32 arithmetic", title_justify="left", title_style="bold")
    table.add_column("operands")
    columns = list(dict.fromkeys((row.kernel, row.precision) for row in report.special))
    for column in columns:
        table.add_column(name(report, *column))
    for case in dict.fromkeys(row.case for row in report.special):
        found = {(row.kernel, row.precision): row for row in report.special if row.case == case}
        cells = ["yes" if not found[c].wrong else f"[red]no[/]: {found[c].wrong}" for c in columns]
        table.add_row(case, *cells)
    return whole(table)


def show(report: AccuracyReport) -> None:
    out = console()
    study = Study(report)
    out.print("largest errors over all shapes, and largest multiples of the library's in the same product")
    out.print(_worst_table(report, study))
    out.print(_special_table(report))
    for row in report.integers:
        exact = "exact" if not row.wrong else f"[red]{row.wrong} elements wrong[/]"
        out.print(f"int32 {row.m}x{row.n}x{row.k}, {row.kernel}: {exact}")
    share = report.summary["reference_error"]
    out.print(f"the error of the float64 reference is at most {share:.0e} of any error above", style="dim")
