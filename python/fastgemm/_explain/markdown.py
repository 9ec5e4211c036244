"""The comparison of two reports that README.md shows."""

from __future__ import annotations

import io

from rich.console import Console

from .figures import largest_changes, operations, rate
from .report import Report
from .text import WIDTH, by_file, source_table


def comparison(before: Report, after: Report, command: str) -> str:
    """What the command prints, without the context of the lines and the tables of totals."""
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, force_terminal=False)
    for report in (before, after):
        console.print(report.title)
        for file, lines in by_file(report).items():
            console.print(source_table(file, lines, context=0))
    console.print(f"from {before.kernel} to {after.kernel}:")
    for change in largest_changes(before, after):
        console.print(f"  {change}")
    for report in (before, after):
        roof = report.roofline
        least = rate(roof.attainable, operations(report))
        console.print(f"{report.kernel} on an {report.gpu}: at most {least}, by {roof.bound}")
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    shown = [line for i, line in enumerate(lines) if line or (i and lines[i - 1])]
    return "\n".join(["```", f"$ {command}", *shown, "```"])
