"""Comparing generated files of fitted numbers."""

from __future__ import annotations

import math
import re


def same_but_for_rounding(text: str, other: str) -> bool:
    """Whether two generated texts differ only in the last digits of fitted numbers: constants (``.name = 1.2``,
    ``{kName, 1.2}``) and the octaves at the end of a library's point. Processors round sums differently."""
    fitted = re.compile(r"(= |\{k[A-Za-z]+, |[NT], )(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
    if fitted.sub(r"\1", text) != fitted.sub(r"\1", other):
        return False
    return all(
        math.isclose(float(x), float(y), rel_tol=2e-3, abs_tol=1 if before[0] in "NT" else 0)
        for (before, x), (_, y) in zip(fitted.findall(text), fitted.findall(other), strict=True)
    )
