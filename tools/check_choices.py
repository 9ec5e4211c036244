"""How good choices are: what was chosen beside the best of all that was measured.

    python tools/check_choices.py FILE...     files of tools/measure_kernels.py

Prints for each series the geometric mean of chosen / best time, the worst, and how many are far off: of level 6 among
own kernels of that level, of level=None among all; and the errors of the predictions.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastgemm import _introspect
from fastgemm.bench.timing import geometric_mean
from fit_costs import H200, problem_of

LIBRARY = "library"
LEVELS = {row["name"]: row["level"] for row in _introspect.table() if (row["op"], row["device"]) == ("gemm", "cuda")}


@dataclass
class Quality:
    """Of one series: chosen / best for each point, and relative errors of predicted times."""

    level6: list[tuple[float, str]] = field(default_factory=list)
    free: list[tuple[float, str]] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)

    def add(self, problem: tuple, microseconds: dict[str, float], gpu: dict[str, Any]) -> None:
        predicted = {name: s * 1e6 for name, s in _introspect.predictions(problem, gpu) if name in microseconds}
        name = "x".join(map(str, problem[3:6])) + " " + "".join("NT"[t] for t in problem[6:])
        own = {k: t for k, t in predicted.items() if k != LIBRARY}
        self.errors += [abs(t / microseconds[k] - 1) for k, t in own.items()]
        for chosen_from, into in (({k: t for k, t in own.items() if LEVELS[k] == 6}, self.level6), (predicted, self.free)):
            if chosen_from:
                chosen, best = (min(chosen_from, key=times.__getitem__) for times in (chosen_from, microseconds))
                into.append((microseconds[chosen] / microseconds[best], f"{name}: {chosen}, not {best}"))

    def line(self) -> str:
        parts = []
        for label, ratios in (("level 6", self.level6), ("None", self.free)):
            values = [r for r, _ in ratios]
            beyond = [sum(r > limit for r in values) for limit in (1.15, 1.4)]
            parts.append(f"{label} {geometric_mean(values):.4f}, worst {max(values):.2f}, beyond 1.15 and 1.4: {beyond}")
        off = statistics.quantiles(self.errors, n=20)
        return f"{'; '.join(parts)}; errors: median {off[9]:.1%}, 95 % below {off[18]:.0%}"


def measured(path: Path) -> Iterator[tuple[str, tuple, dict[str, float]]]:
    """Series, problem, microseconds by kernel and of the library."""
    library = {}
    beside = path.with_name("library.json")
    if path.name == "kernels.json":
        library = {tuple(p[:6]): p[6] for p in json.loads(beside.read_text())["points"]}
    for series, layout, *sizes, microseconds in json.loads(path.read_text())["points"]:
        times = {k: t for k, t in microseconds.items() if k in LEVELS and LEVELS[k] < 7}
        library_time = microseconds.get("torch", microseconds.get("cublaslt_1", library.get((series, layout, *sizes))))
        if library_time:
            times[LIBRARY] = library_time
        yield series, problem_of(series, layout, sizes), times


def qualities(path: Path, gpu: dict[str, Any]) -> dict[str, Quality]:
    found: dict[str, Quality] = {}
    for series, problem, microseconds in measured(path):
        found.setdefault(series, Quality()).add(problem, microseconds, gpu)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--worst", type=int, default=0, help="name so many of the worst choices")
    parser.add_argument("--multiprocessors", type=int, default=H200["multiprocessors"])
    options = parser.parse_args()
    for path in options.files:
        print(path)
        for series, quality in qualities(path, {**H200, "multiprocessors": options.multiprocessors}).items():
            print(f"  {series:9s} {len(quality.free)} points: {quality.line()}")
            for kind in (quality.level6, quality.free):
                for ratio, what in sorted(kind, reverse=True)[: options.worst]:
                    print(f"      {ratio:.2f} {what}")


if __name__ == "__main__":
    main()
