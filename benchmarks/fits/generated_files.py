"""Comparing generated files of fitted numbers."""

from __future__ import annotations

import math
import re


def same_but_for_rounding(text: str, other: str) -> bool:
    """Whether two generated texts differ only in the last digits of fitted numbers: constants (``.name = 1.2``,
    ``{kName, 1.2}``) and the octaves at the end of a point. Processors round sums differently."""
    number, octaves = r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)", r"(?=(?:, -?\d+)*\}\})"
    fitted = re.compile(rf"(= |\{{k[A-Za-z]+, |[NT], |(?:(?<=[NT], )\{{|, )(?=-?\d+{octaves})){number}")
    if fitted.sub(r"\1", text) != fitted.sub(r"\1", other):
        return False
    return all(
        math.isclose(
            float(x), float(y), rel_tol=2e-3, abs_tol=1 if before[0] in "NT," or before == "{" else 0
        )
        for (before, x), (_, y) in zip(fitted.findall(text), fitted.findall(other), strict=True)
    )
