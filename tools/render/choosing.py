"""How predictions come about and how good they are, in Markdown."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import check_choices
import fit_cpu_costs
from fastgemm import _introspect
from fastgemm.bench.formatting import percent
from fastgemm.bench.records import Measurement, Report
from fastgemm.bench.timing import geometric_mean
from fit_costs import H200

from .markdown import place, table

# Of the GPU that was measured, and as if it had not been tuned where these pages are made.
GPU = {**H200, "number": 0}
EXAMPLE = ("float32", "ieee", 1, 1000, 777, 3000, False, False)
NEIGHBOUR = ("float32", "ieee", 1, 1000, 777, 3001, True, True)  # measured, in kernels.json
# Counts of single cycles (counts.h); all others are times.
IN_CYCLES = {"launch", "more_launches", "code", "waves", "steps", "edges"}
FILES = {"kernels.json": (True, "sm_90a"), "kernels_portable.json": (False, "portable path")}
FAR = 1.15
PROCESSORS = {"avx512": "AVX-512, Zen 4", "avx2": "AVX2, Zen 3"}


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"


def terms_section() -> str:
    """The sum that makes the prediction of the kernel that is chosen for EXAMPLE."""
    kernel, seconds = _introspect.predictions(EXAMPLE, GPU)[0]
    counts = _introspect.counts(kernel, EXAMPLE, GPU)
    costs = _introspect.costs(kernel, EXAMPLE[0], GPU)
    lines = []
    for name, count, cost in zip(_introspect.COUNTS, counts, costs, strict=True):
        if not count * cost:
            continue
        cycles = name in IN_CYCLES
        counted = f"{count * GPU['clock']:.0f}" if cycles else f"{_us(count)} us"
        lines.append([f"`{name}`", counted, f"{cost:.4g}{' cycles' if cycles else ''}", _us(count * cost)])
    lines.append([f"`{kernel}` together", "", "", f"**{_us(seconds)}**"])
    return table(["count", "counted", "constant", "us"], lines)


def predictions_section(results: Path) -> str:
    """Predictions for EXAMPLE, and for its neighbour beside what was measured there."""
    file = results / "h200" / "kernels.json"
    found = check_choices.measured(file) if file.exists() else ()
    measured: dict[str, float] = next((times for _, problem, times in found if problem == NEIGHBOUR), {})
    beside = dict(_introspect.predictions(NEIGHBOUR, GPU))
    lines = []
    for name, seconds in _introspect.predictions(EXAMPLE, GPU)[:7]:
        time = f"{measured[name]:.1f}" if name in measured else "-"
        lines.append([f"`{name}`" if name != "library" else name, _us(seconds), _us(beside[name]), time])
    header = ["kernel", "1000 x 777 x 3000 NN, predicted, us", "1000 x 777 x 3001 TT, predicted, us"]
    return table([*header, "measured, us"], lines)


def quality_section(results: Path) -> str:
    """Choices beside the best that was measured, and the errors of the predictions."""
    lines, places = [], []
    for file, (wgmma, name) in FILES.items():
        path = results / "h200" / file
        if not path.exists():
            continue
        for series, quality in check_choices.qualities(path, {**GPU, "wgmma": wgmma}).items():
            cells = [name, series, str(len(quality.level6))]
            for ratios in (quality.level6, quality.free):
                values = [ratio for ratio, _ in ratios]
                beyond = sum(value > FAR for value in values) / len(values)
                cells += [f"{geometric_mean(values):.3f}", f"{max(values):.2f}", percent(beyond)]
            off = statistics.quantiles(quality.errors, n=20)
            lines.append([*cells, percent(off[9]), percent(off[18])])
        places.append(_place(json.loads(path.read_text(encoding="utf-8")), file))
    header = ["code", "products", "points"]
    for what in ("level 6", "`level=None`"):
        header += [f"{what}: chosen / best", "worst", f"above {FAR}"]
    header += ["error of predictions, median", "95 % below"]
    return "\n\n".join([table(header, lines, numbers_from=2), *places])


def cpu_section() -> str:
    """The same of products on CPUs, and how they compare with torch's."""
    lines, places = [], []
    for isa, name in PROCESSORS.items():
        for dtype in fit_cpu_costs.ARITHMETIC_TYPES:
            of_best, of_torch = zip(*fit_cpu_costs.choices(isa, dtype), strict=True)
            beyond = sum(value > FAR for value in of_best) / len(of_best)
            cells = [f"{geometric_mean(of_best):.3f}", f"{max(of_best):.2f}", percent(beyond)]
            cells += [f"{1 / geometric_mean(of_torch):.2f}", f"{1 / max(of_torch):.2f}"]
            lines.append([name, dtype, str(len(of_best)), *cells])
        places += [_of_cpu(file) for file in fit_cpu_costs.FILES[isa]]
    header = ["processor", "products", "points", "chosen / best", "worst", f"above {FAR}"]
    header += ["times as fast as torch", "least"]
    return "\n\n".join([table(header, lines, numbers_from=2), *places])


def transposes_section(reports: list[Report]) -> str:
    """The kernel that is taken where nothing was measured, beside the row of torch and beside torch's own call."""
    found: dict[tuple[int, str, str], list[tuple[float, float]]] = {}
    for report in reports:
        by_size: dict[tuple, dict[str, Measurement]] = {}
        for row in report.results:
            by_size.setdefault((row.dtype, row.shape), {})[row.kernel] = row
        for rows in by_size.values():
            own, torchs = rows["pipelined"], rows["torch"]
            sizes = "small" if own.group.startswith("small") else "others"
            gains = torchs.seconds.median / own.seconds.median, own.speedup.median
            found.setdefault((own.threads, own.dtype, sizes), []).append(gains)
    lines = []
    for (threads, dtype, sizes), gains in found.items():
        beside = [
            f"{value:.2f}" for of in zip(*gains, strict=True) for value in (geometric_mean(of), min(of))
        ]
        lines.append([str(threads), dtype, f"{sizes}, {len(gains)}", *beside])
    header = ["threads", "elements", "sizes", 'times as fast as `kernel="torch"`', "least"]
    header += ["times as fast as `copy_(a.mT)`", "least"]
    return "\n\n".join([table(header, lines, numbers_from=3), *map(place, reports)])


def _of_cpu(file: Path) -> str:
    env = json.loads(file.read_text(encoding="utf-8"))["environment"]
    where = f"`{file.name}`: measured on {env['device']} ({env['cpu_model']})"
    return f"{where}, torch {env['torch']}, {env['date'][:10]}, commit {env['commit']}."


def _place(data: dict[str, Any], file: str) -> str:
    env = data["environment"]
    older = "".join(
        f"; {before['what']}: {before['date'][:10]}, commit {before['commit']}"
        for before in data.get("measured before", [])
    )
    return (
        f"`{file}`: measured on {env['device']} (driver {env['driver']}, CUDA {env['cuda']}, cuBLAS "
        f"{env['cublas']}), torch {env['torch']}, {env['date'][:10]}, commit {env['commit']}{older}."
    )
