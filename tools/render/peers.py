"""What a user of torch would pick instead, measured beside this library, in Markdown."""

from __future__ import annotations

from fastgemm.bench.formatting import rate, ratio
from fastgemm.bench.records import Measurement, Report, select
from fastgemm.bench.timing import geometric_mean

from .markdown import place, table

OWN = "**fastgemm**"
COLD, BATCHES = "cold", "back to back"
NOTES = (
    "Rates: {cold}; and {batches}. JAX works on a stream of its own, which events on torch's do not see: it has "
    "the second rate alone. Over torch: by the second rate, geometric mean over the sizes. Error: the largest "
    "\\|C - C64\\| / (\\|A\\| \\|B\\|) of the elements of {rows} rows, C64 by float64 on the CPU, which for "
    "products of float64 is another order of the same sum. Set-up: seconds until the first results, with "
    "compilation and autotuning, which no rate contains; a product was given {setup:.0f} s for it in all. "
    "torch.compile: mode max-autotune without CUDA graphs, which copy operands; Triton: a plain kernel, the best "
    "of its tiles."
)


def _product(row: Measurement) -> str:
    return OWN if row.role == "rung" else row.kernel.partition(",")[0]


def _short(row: Measurement) -> str:
    """A cube by its side, anything else by its label."""
    return str(row.shape[0]) if len(set(row.shape)) == 1 and row.layout == "NN" else row.label


def _line(rows: list[Measurement], labels: list[str]) -> list[str]:
    """A contender on all problems of its group."""
    by = {_short(row): row for row in rows}
    ratios = [row.speedup.median for row in rows if row.speedup]
    errors = [row.component_error for row in rows if row.component_error is not None]
    setup = [row.setup_seconds for row in rows if row.setup_seconds is not None]
    first = rows[0]
    return [
        _product(first),
        f"`{first.choice}`",
        *(rate(by[label].rate if label in by else None) for label in labels),
        *(rate(by[label].back_to_back_rate if label in by else None) for label in labels),
        "1.00" if first.role == "baseline" else ratio(geometric_mean(ratios) if ratios else None),
        f"{max(errors):.1e}" if errors else "-",
        f"{sum(setup):.1f}" if setup else "-",
    ]


def _group_table(rows: list[Measurement]) -> str:
    contenders: dict[tuple[str, str], list[Measurement]] = {}
    for row in rows:
        contenders.setdefault((_product(row), row.choice), []).append(row)
    labels = list(dict.fromkeys(_short(row) for row in rows))
    lines = [_line(found, labels) for found in contenders.values() if any(r.back_to_back for r in found)]
    heads = [f"{label}, {how}" for how in (COLD, BATCHES) for label in labels]
    header = ["product", "asked for", *heads, "over torch", "error", "set-up, s"]
    return f"**{rows[0].group}**, {rows[0].unit}\n\n{table(header, lines, numbers_from=2)}"


def _untimed(rows: list[Measurement]) -> str:
    """What has no figure, by its reason."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        if row.message:
            name = f"{_product(row).strip('*')} `{row.choice}`"
            where = reasons.setdefault(row.message, {}).setdefault(f"{row.dtype} {_short(row)}", [])
            where.append(name)
    lines = []
    for reason, problems in reasons.items():
        what = "; ".join(f"{problem}: {', '.join(names)}" for problem, names in problems.items())
        lines.append(f"- {reason.replace('|', '/')} ({what})")
    return "Without a figure:\n\n" + "\n".join(lines) if lines else ""


def section(report: Report) -> str:
    """A table for each group, what could not run, and how it was measured."""
    groups = dict.fromkeys(row.group for row in report.results)
    tables = [_group_table(select(report.results, group=group)) for group in groups]
    method, versions = report.method, report.environment.get("peers", {})
    notes = NOTES.format(
        cold=method["text"],
        batches=method["back_to_back"],
        rows=max(row.rows_checked for row in report.results),
        setup=method["setup_seconds"],
    )
    found = ", ".join(f"{name} {version or 'not installed'}" for name, version in versions.items())
    return "\n\n".join(filter(None, [*tables, _untimed(report.results), f"{notes} {found}. {place(report)}"]))
