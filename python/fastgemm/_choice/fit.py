"""Fits the constants of predictions to measured times, for ``fastgemm tune`` and benchmarks/fits/fit_costs.py.

A kernel's time is a sum of counts times nonnegative constants (csrc/cuda/gemm/predict/counts.h). Needs scipy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

ROUNDS = 4  # of weighting
NOISE = 0.03  # relative errors below this count the same
WORTH = 0.01  # a count is dropped if the error of the fit then grows by less than this share
FASTEST = 0.003  # the share of measurements that may be faster than the limit of `limited`
SAME = 1e-9  # counts whose cosine is nearer to 1 keep one ratio
NEAREST, FAR, NEAR, TOWARDS_MODEL = 9, 40.0, 0.05, 4.0  # as in csrc/core/measured_points.h


def fit(
    counts: Sequence[Sequence[float]],
    seconds: Sequence[float],
    weights: Sequence[float] | None = None,
    worth: float = 0,
) -> list[float]:
    """The constants that minimise relative errors: nonnegative least squares (Lawson and Hanson, "Solving Least
    Squares Problems", 1974), repeated with points weighted by the inverse square root of their error, which is a
    compromise between least squares and least absolute errors. If counts are proportional in all points, only the
    first gets a constant; otherwise the processor's rounding would decide which. Then the counts that explain
    least are dropped, one after another, while the error grows by less than ``worth`` in all."""
    import numpy as np
    from scipy.optimize import nnls

    relative = np.asarray(counts) / np.asarray(seconds)[:, None]
    scale = relative.max(axis=0)
    scale[scale == 0] = 1.0
    relative /= scale
    length = np.linalg.norm(relative, axis=0)
    direction = relative / np.where(length == 0, 1.0, length)
    said_before = np.triu(direction.T @ direction, 1).max(axis=0) > 1 - SAME
    relative[:, said_before] = 0
    given = np.ones(len(relative)) if weights is None else np.asarray(weights)
    weight = given / given.mean()
    for _ in range(ROUNDS):
        solution, _ = nnls(relative * weight[:, None], weight)
        error = np.abs(relative @ solution - 1)
        weight = given / np.sqrt(np.maximum(error, NOISE))
        weight /= weight.mean()
    weighted = relative * weight[:, None]
    most = np.linalg.norm(weighted @ solution - weight) * (1 + worth)
    while worth:
        fewer = {}
        for count in np.flatnonzero(solution):
            others = np.delete(weighted, count, axis=1)
            found, error = nnls(others, weight)
            fewer[count] = error, found
        if not fewer or min(error for error, _ in fewer.values()) > most:
            break
        drop = min(fewer, key=lambda count: fewer[count][0])
        solution = np.insert(fewer[drop][1], drop, 0)
        weighted[:, drop] = 0
    return [float(f"{value:.4g}") for value in solution / scale]


def predict(counts: Sequence[float], costs: Sequence[float]) -> float:
    """Seconds."""
    return math.fsum(count * cost for count, cost in zip(counts, costs, strict=True))


def fit_limited(
    counts: Sequence[Sequence[float]], seconds: Sequence[float], weights: Sequence[float] | None = None
) -> list[float]:
    """The same for the counts of a GPU (csrc/cuda/gemm/predict/counts.h). The last count is a limit: hardly any
    measured time is shorter than this count times its constant."""
    import numpy as np

    costs = fit([count[:-1] for count in counts], seconds, weights, WORTH)
    ratios = [time / count[-1] for count, time in zip(counts, seconds, strict=True)]
    return [*costs, float(f"{np.quantile(ratios, FASTEST):.4g}")]


def predict_limited(counts: Sequence[float], costs: Sequence[float], correction: float = 0.0) -> float:
    """Seconds, of a GPU. ``correction``: log(measured / predicted) of products nearby."""
    return max(predict(counts[:-1], costs[:-1]) * math.exp(correction), counts[-1] * costs[-1])


def error_of(counts: Sequence[float], costs: Sequence[float], seconds: float) -> float:
    """log(measured / predicted), for corrections. The least time limits a prediction only after its correction."""
    return math.log(seconds / predict(counts[:-1], costs[:-1]))


def corrections(squared: Any, off: Any) -> Any:
    """Estimates other points from measured ones, as measured_points.h. ``squared``: distances, a row for each."""
    import numpy as np

    nearest = min(NEAREST, squared.shape[1])
    # The sort is stable, so that among points at the same distance every machine takes the same ones.
    index = np.argsort(squared, axis=1, kind="stable")[:, :nearest]
    distance = np.take_along_axis(squared, index, axis=1)
    weight = np.where(distance < FAR, (distance + NEAR) ** -1.5, 0)
    return (weight * off[index]).sum(axis=1) / (weight.sum(axis=1) + 0.5 * (TOWARDS_MODEL + NEAR) ** -1.5)


def thin(places: Sequence[Sequence[float]], off: Sequence[float], count: int) -> list[int]:
    """Selects measured points from which the others are estimated best. Each step adds a few points, far from each
    other, where the estimate from the points so far is worst."""
    import numpy as np

    place, errors = np.asarray(places), np.asarray(off)
    if len(errors) <= count:
        return list(range(len(errors)))
    squared = ((place[:, None, :] - place[None, :, :]) ** 2).sum(axis=2)
    kept = [int(np.argmin(squared.sum(axis=1).round(3)))]
    while len(kept) < count:
        error = np.abs(corrections(squared[:, kept], errors[kept]) - errors)
        error[kept] = -1
        room = min(max(1, (count - len(kept)) // 6), count - len(kept))
        chosen: list[int] = []
        for i in np.argsort(-error.round(9), kind="stable"):
            if all(squared[i, j] > 0.3 for j in chosen):
                chosen.append(int(i))
            if len(chosen) == room:
                break
        kept += chosen
    return sorted(kept)
