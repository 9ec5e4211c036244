"""A report: the findings, and the views of them. A view is imported when it is used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._extras import needed_by
from .findings import Findings

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Report(Findings):
    """The memory accesses of a kernel, by source line. Prints as text, in a notebook with colours.

    Attributes:
        op, shape, dtype, layout: the problem; ``weight``: the format of a packed weight, or None.
        level, kernel: the row of the kernel table that ran; ``idea`` is its summary.
        gpu: which GPU occupancy and roofline are for.
        launches: the kernels that the operation launched, in order.
        roofline: arithmetic and bytes against the limits of that GPU.
        notes: hints for reading the figures.
        error: why the operation ended early, or None.
    """

    def to_dict(self) -> dict[str, Any]:
        """Everything, with the derived figures, ready for JSON."""
        from .serialize import as_dict

        return as_dict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=1)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draws the bank map of the worst shared access and the sectors of the worst global one.

        Args:
            path: also write it there (.svg, .png or .pdf).
        """
        with needed_by("a plot"):
            from .plots import access_figure, save

        figure = access_figure([self])
        if path is not None:
            save(figure, Path(path))
        return figure

    def __str__(self) -> str:
        with needed_by("a report as text"):
            from .text import as_text

        return as_text(self)

    def __repr__(self) -> str:
        return f"<fastgemm.Report {self.title}, {len(self.sites)} sites, {len(self.problems)} problems>"

    def _repr_html_(self) -> str:
        with needed_by("a report as text"):
            from .text import as_html

        return as_html(self)
