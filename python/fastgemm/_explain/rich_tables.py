"""Tables that are always complete: if a console is too narrow for a table, names stand on separate lines above the
figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

WIDEST = 10_000  # no table is wider
GAP = 2  # columns between figures
INDENT = 4  # of figures, below their name

Line = Sequence[Text]  # a cell for each column


@dataclass
class ByWidth:
    """``wide`` if the console has ``least`` columns (default: the width of ``wide``), else ``narrow``."""

    wide: RenderableType
    narrow: RenderableType
    least: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        least = self.least
        if least is None:
            least = Measurement.get(console, options.update(max_width=WIDEST), self.wide).maximum
        yield self.wide if options.max_width >= least else self.narrow

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, options.max_width)


def titled(title: str, left: Iterable[str] = (), right: Iterable[str] = (), **style: Any) -> Table:
    """A table whose first columns are flush left and whose other ones are flush right; words are broken if a
    column is too narrow for them."""
    table = Table(title=title, title_justify="left", title_style="bold", **style)
    for name in left:
        table.add_column(name, overflow="fold")
    for name in right:
        table.add_column(name, justify="right", overflow="fold")
    return table


def whole(table: Table) -> Table:
    """The table; words are broken if a column is too narrow for them."""
    for column in table.columns:
        column.overflow = "fold"
    return table


def stacked(
    names: Sequence[str], entries: Iterable[tuple[RenderableType | None, Sequence[Line]]], *, left: int = 0
) -> Group:
    """Lines of figures in columns with these names, the first ``left`` columns flush left; each group of lines has
    its name above it."""
    entries = list(entries)
    heading = [Text(name, style="bold") for name in names]
    lines = [heading, *(line for _, group in entries for line in group)]
    widths = [max(cell.cell_len for cell in column) for column in zip(*lines, strict=True)]

    def shown(line: Line) -> Padding:
        grid = Table.grid(padding=(0, GAP, 0, 0))
        for i, width in enumerate(widths):
            grid.add_column(width=width, justify="left" if i < left else "right", overflow="fold")
        grid.add_row(*line)
        return Padding(grid, (0, 0, 0, INDENT), expand=False)

    parts: list[RenderableType] = [shown(heading), Rule(style="dim")]
    for head, group in entries:
        parts += [] if head is None else [head]
        parts += map(shown, group)
    return Group(*parts)
