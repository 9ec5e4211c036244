"""The common style of all pictures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._extras import needed_by
from .records import Report


def pyplot() -> Any:
    """matplotlib in the style of all pictures."""
    with needed_by("a plot"):
        import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "svg.hashsalt": "fastgemm",
            "svg.fonttype": "path",  # the picture does not depend on the reader's fonts
            "figure.facecolor": "white",
        }
    )
    return plt


def place(report: Report, rows: Iterable[Any]) -> str:
    """The machine, date and versions of the measurement, in a line."""
    if report.environment["device_type"] == "cuda":
        env = report.environment
        return f"{env['device']}, CUDA {env['cuda']}, torch {env['torch']}, {env['date'][:10]}"
    threads = sorted({row.threads for row in rows})
    count = " and ".join(map(str, threads)) + (" thread" if threads == [1] else " threads")
    env = report.environment
    return f"{env['device']} ({env['cpu_model']}), {count}, torch {env['torch']}, {env['date'][:10]}"
