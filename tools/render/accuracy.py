"""The study's tables, in Markdown for docs: errors in units of the library's, special values, int32."""

from __future__ import annotations

from collections.abc import Iterable

from fastgemm.bench.accuracy.contenders import LIBRARY
from fastgemm.bench.accuracy.lookup import CLOSE, MEASURES, Study, library_name, name
from fastgemm.bench.accuracy.records import AccuracyReport, IntegerProduct, SpecialValue
from fastgemm.bench.formatting import ratio

from .markdown import place, table

NOTICEABLE = 1.05  # times the library's error
SUMMARY_DEPTHS = (64, 1024, 16384)


def multiple(value: float) -> str:
    """How many times the library's error: bold above it."""
    text = f"{value:.0e}" if value >= 1000 else f"{value:.0f}" if value >= 100 else ratio(value)
    return f"**{text}**" if text not in ("1.00", "1.0") and value > 1 else text


def ratios_table(study: Study, measure: str) -> str:
    size = study.sizes[0]
    lines = []
    for distribution in study.distributions:
        for contender in study.rivals:
            if contender[1] not in CLOSE:
                continue
            taken = study.taken(contender, size)
            cells = [
                multiple(study.ratio(contender, distribution, shape, measure)) if shape in taken else "-"
                for shape in study.shapes[size]
            ]
            lines.append([distribution, f"`{contender[0]}`", *cells])
    depths = [f"{shape[2]}" for shape in study.shapes[size]]
    return table([f"{measure}, K =", "kernel", *depths], lines, numbers_from=2)


def ratios_section(report: AccuracyReport) -> str:
    """Both measures at the first size, by distribution and K."""
    study = Study(report)
    m, n = study.sizes[0]
    tables = [ratios_table(study, measure) for measure in MEASURES]
    trials = report.method["trials"]
    draws = "one draw" if trials == 1 else f"{trials} draws"
    said = (
        f"Products of {m} x K by K x {n}, {draws} of each. Errors in units of {library_name(report)}'s in the"
        " same product; above 1, in bold, the kernel is less accurate. The float64 reference's own error is at"
        f" most {report.summary['reference_error']:.0e} of any error here."
    )
    return "\n\n".join([*tables, f"{said} {place(report)}"])


def sizes_section(report: AccuracyReport) -> str:
    """The worst ratios of each size, and where they are."""
    study = Study(report)
    lines = []
    for contender in study.rivals:
        if contender[1] not in CLOSE:
            continue
        for m, n in study.sizes:
            found = [study.worst(contender, (m, n), measure) for measure in MEASURES]
            cells = [f"{multiple(worst[0])} ({worst[1]}, K = {worst[2]})" for worst in found if worst]
            depths = [shape[2] for shape in study.taken(contender, (m, n))]
            if not depths:
                continue
            span = f"{min(depths)} to {max(depths)}" if len(depths) > 1 else f"{depths[0]}"
            lines.append([f"`{contender[0]}`", f"{m} x {n}", span, *cells])
    header = ["kernel", "M x N", "K", *(f"worst ratio, {measure}" for measure in MEASURES)]
    return f"{table(header, lines, numbers_from=5)}\n\n{place(report)}"


def exceptions_section(report: AccuracyReport) -> str:
    """Where kernels of "ieee" err noticeably more than the library."""
    study = Study(report)
    lines = []
    for contender in (c for c in study.rivals if c[1] == "ieee" and c[0] != LIBRARY):
        for distribution in study.distributions:
            for m, n in study.sizes:
                ratios = {
                    k: [study.ratio(contender, distribution, (m, n, k), measure) for measure in MEASURES]
                    for _, _, k in study.taken(contender, (m, n))
                }
                above = {k: pair for k, pair in ratios.items() if max(pair) > NOTICEABLE}
                if above:
                    worst = [multiple(max(values)) for values in zip(*above.values(), strict=True)]
                    depths = ", ".join(map(str, above))
                    lines.append([f"`{contender[0]}`", distribution, f"{m} x {n}", depths, *worst])
    said = f"by more than {NOTICEABLE - 1:.0%}".replace("%", " %")
    library = library_name(report)
    if not lines:
        return f'Nowhere does a kernel of `"ieee"` exceed {library}\'s error {said}. {place(report)}'
    header = ["kernel", "data", "M x N", "K", *(f"worst ratio, {measure}" for measure in MEASURES)]
    text = table(header, lines, numbers_from=4)
    return f'{text}\n\nAll cases in which a kernel of `"ieee"` exceeds {library}\'s error {said}. {place(report)}'


def summary_section(report: AccuracyReport) -> str:
    """The error itself of every contender on normal data, and the worst of all against the library's."""
    study = Study(report)
    size = study.sizes[0]
    depths = [shape for shape in study.shapes[size] if shape[2] in SUMMARY_DEPTHS] or study.shapes[size][:1]
    lines = []
    for contender in study.contenders:
        taken = study.taken(contender, size)
        errors = [
            study.error(contender, study.distributions[0], shape) if shape in taken else None
            for shape in depths
        ]
        found = [[study.worst(contender, s, measure) for s in study.sizes] for measure in MEASURES]
        worst = [max(w[0] for w in of_sizes if w) for of_sizes in found]
        lines.append(
            [
                name(report, *contender) if contender[0] == LIBRARY else f"`{contender[0]}`",
                contender[1],
                *(f"{getattr(e, measure):.1e}" if e else "-" for measure in MEASURES for e in errors),
                *(multiple(value) for value in worst),
            ]
        )
    header = ["product", "precision"]
    header += [f"{measure}, K = {shape[2]}" for measure in MEASURES for shape in depths]
    header += [f"worst ratio, {measure}" for measure in MEASURES]
    said = f"Errors on {study.distributions[0]} data; worst ratios over all distributions and shapes."
    return f"{table(header, lines, numbers_from=2)}\n\n{said} {place(report)}"


def _verdict(rows: Iterable[SpecialValue]) -> str:
    (row,) = rows
    return "yes" if not row.wrong else f"**no**: {row.wrong} of {row.elements}"


def special_section(report: AccuracyReport) -> str:
    """Cases by contenders."""
    rows = report.special
    contenders = list(dict.fromkeys((row.kernel, row.precision) for row in rows))
    lines = [
        [
            case,
            *(_verdict(r for r in rows if (r.case, r.kernel, r.precision) == (case, *c)) for c in contenders),
        ]
        for case in dict.fromkeys(row.case for row in rows)
    ]
    names = [name(report, *c) if c[0] == LIBRARY else f"`{c[0]}`, {c[1]}" for c in contenders]
    return f"{table(['operands', *names], lines, numbers_from=len(names) + 1)}\n\n{place(report)}"


def _shapes(rows: Iterable[IntegerProduct]) -> str:
    return ", ".join(f"{row.m}x{row.n}x{row.k}" for row in rows)


def integers_section(report: AccuracyReport) -> str:
    lines = []
    for kernel in dict.fromkeys(row.kernel for row in report.integers):
        rows = [row for row in report.integers if row.kernel == kernel]
        wrong = sum(row.wrong for row in rows)
        elements = sum(row.m * row.n for row in rows)
        lines.append([f"`{kernel}`", _shapes(rows), f"**{wrong}**" if wrong else "0", str(elements)])
    header = ["kernel of int32", "products", "wrong elements", "of"]
    return f"{table(header, lines, numbers_from=2)}\n\n{place(report)}"


SECTIONS = {
    "accuracy_summary": summary_section,
    "accuracy_ratios": ratios_section,
    "accuracy_sizes": sizes_section,
    "accuracy_exceptions": exceptions_section,
    "accuracy_special": special_section,
    "accuracy_integers": integers_section,
}
