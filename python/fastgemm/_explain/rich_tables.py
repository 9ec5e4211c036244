"""Tables that are always complete: where a console is too narrow for one, the names stand above the figures, on
lines of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

WIDEST = 10_000  # no table is wider
GAP = 2  # columns between figures
INDENT = 4  # of figures, below what they belong to

Line = Sequence[Text]  # a cell for each column


@dataclass
class ByWidth:
    """``wide`` where the console has ``least`` columns, else ``narrow``; by default, those that it would fill."""

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


def whole(table: Table) -> Table:
    """The table, whose words are folded where a column is too narrow for them."""
    for column in table.columns:
        column.overflow = "fold"
    return table


def stacked(
    names: Sequence[str], entries: Iterable[tuple[RenderableType | None, Sequence[Line]]], *, left: int = 0
) -> Group:
    """Lines of figures in columns of these names, the first ``left`` of them flush left, each group of lines below
    what it belongs to."""
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
