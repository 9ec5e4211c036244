"""What the notebooks share: source code, counters, measurements on this machine and on a GPU, and pictures.

drawings.py has the pictures that explain an idea, own_kernels.py compiles kernels that a notebook writes.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path

import fastgemm
import pandas as pd
import PIL.Image
from fastgemm._explain import figures
from fastgemm._explain.plots import access_figure
from fastgemm._gpus import BANK_BYTES, BANKS
from fastgemm.bench import Gemm, Transpose, plots
from fastgemm.bench.formatting import percent, rate, ratio
from fastgemm.bench.ladder import run_ladder
from fastgemm.bench.records import Report, select
from IPython.display import Image, Markdown, display
from matplotlib.figure import Figure

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path += [str(REPOSITORY / "tools"), str(REPOSITORY / "benchmarks")]
from render.levels import LADDER  # noqa: E402
from render.spec import Table, markdown, place  # noqa: E402
from studies.accuracy import AccuracyReport, read_accuracy  # noqa: E402
from studies.reports import read_report  # noqa: E402

from . import drawings  # noqa: E402

RESULTS = REPOSITORY / "benchmarks" / "results"
DPI, COLOURS = 80, 128  # of pictures: a notebook stays small, and its text as large as the page's
# Seconds for each kernel: enough for the order of magnitude, which a notebook needs. `fastgemm ladder` takes more.
BUDGET = 0.2

pd.set_option("display.max_colwidth", None)  # messages of the checks are sentences


# Sources.


def _source_file(file: str) -> tuple[Path, str]:
    """A file of csrc, the installed one or else that of this repository, and which of the two it is."""
    installed = Path(str(files("fastgemm"))) / "csrc" / file
    return (installed, "installed") if installed.is_file() else (REPOSITORY / "csrc" / file, "repository")


def _function(lines: list[str], name: str) -> list[str]:
    """The lines of the definition of ``name``, to its closing brace, and the lines above it up to a blank one,
    such as its comment."""
    definition = re.compile(rf"(?!\s*//).*(\b{name}\(|\b(struct|union) {name}\b)")
    at = next((i for i, line in enumerate(lines) if definition.match(line)), None)
    if at is None:
        raise ValueError(f"{name} is not defined there")
    begin = next(i for i in range(at, -1, -1) if i == 0 or not lines[i - 1].strip())
    end = next(i for i in range(at, len(lines)) if lines[i].startswith("}"))
    return lines[begin : end + 1]


def source(file: str, *names: str) -> None:
    """Shows functions or classes of a file of csrc; without names its header comment, which says what changed."""
    path, where = _source_file(file)
    _show(path.read_text(encoding="utf-8").splitlines(), f"csrc/{file}` ({where})", names)


def own_source(file: str, *names: str) -> str:
    """Shows functions of a file in this folder, and returns the text of the whole file."""
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    _show(text.splitlines(), f"notebooks/ladder_notes/{file}`", names)
    return text


def _show(lines: list[str], title: str, names: tuple[str, ...]) -> None:
    if names:
        shown = "\n\n".join("\n".join(_function(lines, name)) for name in names)
    else:
        shown = "\n".join(lines[: next(i for i, line in enumerate(lines) if not line.startswith("//"))])
    display(Markdown(f"`{title}\n```cpp\n{shown}\n```"))


# Counters of the simulator.


@cache
def explained(op: str, kernel: str, shape: tuple[int, ...], **more: object) -> fastgemm.Report:
    """``fastgemm.explain`` of a kernel, which runs once for the same arguments."""
    return fastgemm.explain(op, kernel=kernel, shape=shape, **more)


COUNTERS = (
    "sectors a request",
    "bytes moved (sectors x 32)",
    "of these asked for",
    "shared wavefronts",
    "wavefronts over ideal",
    "matrix instructions",
    "barriers",
    "bytes in flight a block",
    "blocks a multiprocessor",
)


def counters(reports: Iterable[fastgemm.Report], names: Iterable[str] = COUNTERS) -> pd.DataFrame:
    """A row for each counter, a column for each kernel; rows that are empty everywhere are left out."""
    found = {report.kernel: {m.name: m for m in figures.metrics(report)} for report in reports}
    wanted = [name for name in names if any(by_name[name].value for by_name in found.values())]
    columns = {kernel: [by_name[name].text for name in wanted] for kernel, by_name in found.items()}
    return pd.DataFrame(columns, index=wanted)


def accesses(report: fastgemm.Report) -> pd.DataFrame:
    """A row for each source line that touches memory."""
    rows = [
        {
            "line": f"{Path(site.file).name}:{site.line}",
            "access": site.what,
            "requests": figures.count(site.requests),
            "sectors a request": figures.number(site.sectors_per_request),
            "bytes used": figures.percent(site.used),
            "bank conflict": figures.number(site.conflict),
        }
        for site in report.sites
    ]
    return pd.DataFrame(rows).set_index("line")


def problems(report: fastgemm.Report) -> pd.DataFrame:
    """What the simulator's checks found, with the lines that it names."""
    rows = [
        {"check": found.check, "what": found.message, "where": ", ".join(found.places), "times": found.count}
        for found in report.problems
    ]
    return pd.DataFrame(rows, columns=["check", "what", "where", "times"]).set_index("check")


# Measurements.


@cache
def here(op: str, size: int) -> Report:
    """The ladder of this machine's CPU: every level checked, then timed in turn with the others.

    On one thread: threads that wait for each other would show what else the machine does, not what a rung does.
    """
    problem = Gemm(size, size, size) if op == "gemm" else Transpose(size, size)
    return run_ladder([problem], budget=BUDGET, threads=1)


@cache
def kept(device: str, name: str, op: str | None = None) -> Report | AccuracyReport:
    """An earlier measurement: benchmarks/results/``device``/``name``.json, or its rows of one op."""
    path = RESULTS / device / f"{name}.json"
    report = read_accuracy(path) if name == "accuracy" else read_report(path)
    return replace(report, results=select(report.results, op=op)) if op else report


def on_gpu(name: str, op: str | None = None) -> Report | AccuracyReport:
    """An earlier measurement on a GPU."""
    return kept("h100", name, op)


def gain(op: str, level: int, size: int) -> None:
    """How much faster a level is than the one below: on this machine, in a longer run on a CPU, and on a GPU."""
    runs = {
        "this machine, now": here(op, size),
        "kept": kept("amd-26-2", "ladder", op),
        "": on_gpu("ladder", op),
    }
    cells = []
    for what, report in runs.items():
        row = next(iter(select(report.results, level=level, role="rung")), None)
        if row is not None:
            threads = f"{row.threads} thread{'s' if row.threads > 1 else ''}" if row.threads else ""
            where = ", ".join(filter(None, (report.environment["device"], threads, what)))
            gained = f"{ratio(row.gain)}x" if row.gain else "-"
            cells.append([where, row.label, f"`{row.kernel}`", f"{rate(row.rate)} {row.unit}", gained])
    header = ["where", "size", f"level {level}", "rate", f"over level {level - 1}"]
    display(Markdown(markdown(header, cells, words=3)))


def rates_of(*kernels: str) -> None:
    """The rates of these kernels of gemm on a GPU, in float32."""
    report = on_gpu("ladder", "gemm")
    rows = [row for kernel in kernels for row in select(report.results, kernel=kernel) if row.level != 7]
    cells = [[f"`{row.kernel}`", row.role, rate(row.rate), percent(row.share_of_limit)] for row in rows]
    header = ["kernel", "role", rows[0].unit, f"of {rows[0].limit_name}"]
    text = markdown(header, cells, words=2)
    display(Markdown(f"**gemm, {rows[0].dtype} {rows[0].label}**\n\n{text}\n\n{place(report)}"))


def ladder_table(report: Report) -> None:
    """Rate, share of the machine's limit, gain and spread of every rung."""
    table(LADDER, report)


def table(kind: Table, report: Report) -> None:
    """A table of a report, and where it was measured."""
    display(Markdown(f"{kind.text(report.results)}\n\n{place(report)}"))


def notes_of(report: Report) -> str:
    """Which levels were not faster than the one below in this run: samples are short, and a busy machine shifts
    ratios."""
    said = [text for op in report.summary.values() for text in op["order_violations"]]
    return "; ".join(said) or "every level is faster than the one below"


# Pictures.


def show(figure: Figure, width: int | None = None) -> None:
    """Puts a figure into the notebook, the same bytes for the same figure."""
    drawn, kept = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI)
    figure.clear()
    PIL.Image.open(drawn).convert("RGB").quantize(COLOURS).save(kept, format="png", optimize=True)
    display(Image(kept.getvalue(), width=width))


def show_ladder(report: Report) -> None:
    show(plots.ladder_figure(report))


def show_accesses(*reports: fastgemm.Report, space: str) -> None:
    """One request of a whole warp from each report: its sectors (space ``"global"``) or its banks
    (``"shared"``)."""
    show(access_figure(list(reports), spaces=(space,), stacked=True))


def _bytes_for(reports: list[fastgemm.Report], unit: str, least: float | None = None) -> Figure:
    """The bytes that each kernel moves in global and in shared memory for one ``unit`` of its work."""
    figure = Figure(figsize=(9.5, 0.9 + 0.42 * len(reports)), layout="constrained")
    panels = {
        "global memory": lambda totals: totals.bytes_moved,
        "shared memory": lambda totals: totals.wavefronts * BANKS * BANK_BYTES,
    }
    names = [f"{report.level or ''}  {report.kernel}" for report in reports]
    for axis, (name, moved) in zip(figure.subplots(1, 2, sharey=True), panels.items(), strict=True):
        # The roofline's work is 2 M N K operations for a product, and the bytes read and written for a transpose.
        values = [moved(report.totals) / (report.roofline.work / 2) for report in reports]
        axis.barh(names, values, color=drawings.BLUE, height=0.66)
        for y, value in enumerate(values):
            axis.annotate(f" {value:.2f}" if value else " none", (value, y), va="center", fontsize=9)
        if least:
            axis.axvline(least, color=drawings.ORANGE, linestyle="--", linewidth=1.2)
            axis.set_title(f"dashed: {least:g}, the least possible", fontsize=9, loc="left")
        axis.set_xlim(0, 1.2 * max(values))
        axis.set_xlabel(f"{name}: bytes for one {unit}")
        axis.spines[["top", "right"]].set_visible(False)
    figure.axes[0].invert_yaxis()
    return figure


def bytes_a_multiply_add(reports: list[fastgemm.Report]) -> Figure:
    """The bytes that products move in either memory for one multiply-add."""
    return _bytes_for(reports, "multiply-add")


def bytes_a_byte(reports: list[fastgemm.Report]) -> Figure:
    """The bytes that transposes move in either memory for one byte of the matrix, and the least that is
    possible."""
    return _bytes_for(reports, "byte of the matrix", least=2)
