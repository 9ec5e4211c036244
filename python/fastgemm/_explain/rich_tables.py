"""Tables that are always complete: if a console is too narrow for a table, names stand on separate lines above the
figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
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


@dataclass
class Stacked:
    """Lines of figures in columns with these names, the first ``left`` columns flush left; each group of lines has
    its name above it. If a console is too narrow for a line, the columns of its rest stand below those of its
    beginning, so that no figure is broken."""

    names: Sequence[str]
    entries: Sequence[tuple[RenderableType | None, Sequence[Line]]]
    left: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        heading = [Text(name, style="bold") for name in self.names]
        lines = [heading, *(line for _, group in self.entries for line in group)]
        widths = [max(cell.cell_len for cell in column) for column in zip(*lines, strict=True)]
        places = _places(widths, options.max_width - INDENT)
        yield self._shown(heading, places)
        yield Rule(style="dim")
        for head, group in self.entries:
            if head is not None:
                yield head
            yield from (self._shown(line, places) for line in group)

    def _shown(self, line: Line, places: list[int]) -> Padding:
        grid = Table.grid(padding=(0, GAP, 0, 0))
        for width in places:
            grid.add_column(width=width, overflow="fold")
        for i, cell in enumerate(line):
            cell.justify = "left" if i < self.left else "right"
        for start in range(0, len(line), len(places)):
            grid.add_row(*line[start : start + len(places)])
        return Padding(grid, (0, 0, 0, INDENT), expand=False)


def _places(widths: Sequence[int], room: int) -> list[int]:
    """The widths of the columns of a line, of which a narrow console gets fewer: column i is in place i modulo
    their number."""
    for lines in range(1, len(widths) + 1):
        count = -(-len(widths) // lines)
        places = [max(widths[i::count]) for i in range(count)]
        if sum(places) + GAP * (count - 1) <= room:
            break
    return places


def stacked(
    names: Sequence[str], entries: Iterable[tuple[RenderableType | None, Sequence[Line]]], *, left: int = 0
) -> Stacked:
    """A :class:`Stacked` of any entries."""
    return Stacked(names, list(entries), left)
