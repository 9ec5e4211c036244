"""How good choices are: the kernel that would be chosen, compared with the fastest measured one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .._choice.cpu_predictions import CpuPoint
from ..bench.timing import geometric_mean
from ..table import kernels
from .measuring import SPLIT, Point

TENSOR_CORES = 6  # the level
AnyPoint = TypeVar("AnyPoint", Point, CpuPoint)


@dataclass(frozen=True)
class Quality:
    """For a dtype (or tf32): the geometric means of the chosen kernel's time over the fastest kernel's. NaN
    where nothing could be chosen."""

    series: str
    points: int
    free: float  # level=None
    level6: float


def qualities(
    points: Sequence[AnyPoint], device: str, order_of: Callable[[AnyPoint], Sequence[str]]
) -> dict[str, Quality]:
    """By the current predictions, among the timed kernels. ``order_of``: gives the kernels in the order of
    choice."""
    level6 = {row.name for row in kernels("gemm", device) if row.level == TENSOR_CORES}
    ratios: dict[str, tuple[list[float], list[float]]] = {}
    counts: dict[str, int] = {}
    for point in points:
        dtype, precision, *_ = point.problem
        series = dtype if precision == "ieee" else precision
        seconds = {name: s for name, s in point.seconds.items() if name not in SPLIT}
        order = [name for name in order_of(point) if name in seconds]
        best = min(seconds.values(), default=0.0)
        counts[series] = counts.get(series, 0) + 1
        free, of_level = ratios.setdefault(series, ([], []))
        if order:
            free.append(seconds[order[0]] / best)
        of_level += [seconds[name] / best for name in order if name in level6][:1]
    return {
        series: Quality(series, counts[series], geometric_mean(free), geometric_mean(of_level))
        for series, (free, of_level) in ratios.items()
    }
