"""Tables of what libraries do badly or not at all, in Markdown: what weak_spots measured."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from fastgemm._gpus import find_gpu
from fastgemm.bench.formatting import percent, rate, ratio
from fastgemm.bench.records import Measurement, Report, select

from .gpu import speedup
from .markdown import place, table

# Products of tensor cores, and their type, that one product of float32, int32 or int16 is made of, by what the
# names of kernels begin with.
PRODUCTS = {
    "bf16x6": (6, "bfloat16"),
    "bf16x3": (3, "bfloat16"),
    "fp16x3": (3, "float16"),
    "int8x10": (10, "int8"),
    "int16x4": (4, "int8"),
    "crt": (8, "int8"),  # of float32
}
LIMITS = (
    "Limits are the GPU's: FMA peak, of its multiply-add units at the clock measured meanwhile; tensor-core peak, "
    "by the data sheet (of float32 and int32: of what it leaves for that many products of planes or residues); "
    "plain read, a kernel that reads the larger operand and does nothing else, in the same run (where Triton "
    "compiles none: copy_, a plain copy)."
)


@dataclass(frozen=True)
class Line:
    """A problem: level 6, the default, and the library where it has this product."""

    own: Measurement
    default: Measurement | None
    library: Measurement | None

    @property
    def default_of_better(self) -> float | None:
        """What level=None reaches of the better of own and library."""
        if self.default is None or self.default.seconds is None:
            return None
        others = [row.seconds.median for row in (self.own, self.library) if row and row.seconds]
        return min(others) / self.default.seconds.median if others else None


def lines_of(report: Report, group: str) -> list[Line]:
    rows = select(report.results, group=group)

    def like(row: Measurement, **wanted: str) -> Measurement | None:
        return next((r for r in select(rows, label=row.label, **wanted) if r.rate), None)

    own = [row for row in select(rows, choice="level 6") if row.rate]
    return [Line(row, like(row, choice="fastest"), like(row, role="baseline")) for row in own]


def _groups(report: Report) -> dict[str, list[Line]]:
    names = dict.fromkeys(row.group for row in report.results)
    return {name: lines for name in names if (lines := lines_of(report, name))}


def _names(rows: list[Measurement]) -> str:
    return ", ".join(dict.fromkeys(f"`{row.kernel}`" for row in rows))


def _of_limit(row: Measurement) -> str:
    return f"{percent(row.share_of_limit)} of {row.limit_name}" if row.share_of_limit else "-"


@dataclass(frozen=True)
class Gain:
    """What level 6 reaches in a group of problems, and how it compares with the library, ready for a table."""

    most: Measurement
    libraries: str
    compared: int  # problems behind the ratios
    mean: str
    least: str


def _gain(lines: list[Line]) -> Gain:
    ratios = [line.own.speedup.median for line in lines if line.own.speedup]
    return Gain(
        most=max((line.own for line in lines), key=lambda row: row.rate),
        libraries=_names([line.library for line in lines if line.library]) or "none",
        compared=len(ratios),
        mean=ratio(statistics.geometric_mean(ratios) if ratios else None),
        least=ratio(min(ratios, default=None)),
    )


def means_section(report: Report) -> str:
    """A row for each group: the most that level 6 reaches, how it compares with the library, and what level=None
    makes of both."""
    cells = []
    for group, lines in _groups(report).items():
        gain = _gain(lines)
        shares = [share for line in lines if (share := line.default_of_better)]
        cells.append(
            [
                group,
                _names([line.own for line in lines]),
                str(gain.compared or len(lines)),
                f"{rate(gain.most.rate)} {gain.most.unit}",
                _of_limit(gain.most),
                gain.libraries,
                gain.mean,
                gain.least,
                ratio(statistics.geometric_mean(shares) if shares else None),
                ratio(min(shares, default=None)),
            ]
        )
    header = ["products", "kernel of level 6", "problems", "best rate", "of the limit", "library"]
    header += ["times as fast, geometric mean", "least", "`level=None`, of the better of both", "least"]
    return f"{table(header, cells, numbers_from=2)}\n\n{LIMITS} {place(report)}"


def _scheme(row: Measurement) -> str:
    return row.kernel.partition("_")[0]


def _tensor_share(row: Measurement, report: Report) -> str:
    """Of the tensor cores' rate by the data sheet, where a product is several of theirs."""
    count, kind = PRODUCTS.get(_scheme(row), (0, ""))
    if not count:
        return "-"
    try:
        peak = find_gpu(report.environment["device"]).tensor_peaks[kind]
    except ValueError:
        return "-"
    return percent(row.rate * 1e12 * count / peak)


def _group_table(report: Report, group: str, lines: list[Line]) -> str:
    first = lines[0].own
    with_share = any(_scheme(line.own) in PRODUCTS and line.own.unit != "GB/s" for line in lines)
    cells = []
    for line in lines:
        own, default, library = line.own, line.default, line.library
        share = [_tensor_share(own, report)] if with_share else []
        cells.append(
            [
                *(own.label, f"`{own.kernel}`", rate(own.rate), percent(own.share_of_limit), *share),
                *(_names([library]) if library else "none", rate(library.rate if library else None)),
                speedup(own),
                *(
                    f"`{default.kernel}`" if default else "-",
                    speedup(default),
                    ratio(line.default_of_better),
                ),
            ]
        )
    header = ["problem", "kernel of level 6", first.unit, f"of {first.limit_name or 'the limit'}"]
    header += ["of tensor-core peak"] if with_share else []
    header += ["library", first.unit, "times as fast", "kernel of `level=None`", "times as fast"]
    header += ["of the better of both"]
    return f"**{group}**\n\n{table(header, cells, numbers_from=2)}"


def problems_section(report: Report) -> str:
    """Every problem, a table for each group."""
    tables = [_group_table(report, group, lines) for group, lines in _groups(report).items()]
    return "\n\n".join([*tables, f"{LIMITS} {place(report)}"])


def sustained_section(report: Report) -> str:
    """What ran back to back: rate, clocks, power, temperature and energy of each call."""
    cells = []
    for row in (row for row in report.results if row.joules and row.rate):
        reading, operations = row.telemetry, row.rate * 1e12 * row.seconds.median
        cells.append(
            [
                f"{row.type_name} {row.label}",
                row.choice or "library",
                f"`{row.kernel}`",
                f"{rate(row.rate)} {row.unit}",
                speedup(row) if row.role != "baseline" else "1.00",
                f"{reading['sm_clock_mhz']:.0f}",
                f"{reading['power_w']:.0f}",
                f"{reading['temperature_c']:.0f}",
                f"{row.joules:.3g}",
                f"{row.joules / operations * 1e12:.2f}",
                ", ".join(reading["throttled_by"]) or "nothing",
            ]
        )
    if not cells:
        return ""
    header = ["problem", "asked for", "kernel", "rate", "times as fast", "SM clock, MHz", "power, W"]
    header += ["temperature, °C", "J a product", "pJ an operation", "clocks held back by"]
    method = report.method.get("back_to_back") or report.method["text"]
    said = f"{method[0].upper()}{method[1:]}; energy by the GPU's counter."
    return f"{table(header, cells, numbers_from=3)}\n\n{said} {place(report)}"
