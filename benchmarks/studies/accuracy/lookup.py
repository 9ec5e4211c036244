"""Finds errors in a report by contender, distribution and shape, also in units of the library's error."""

from __future__ import annotations

from .contenders import BASELINE, LIBRARY
from .data import Shape
from .records import AccuracyReport, Error

# Precisions about as accurate as float32 arithmetic. For others, only the order of magnitude is shown.
CLOSE = ("ieee", "fp16x3")
MEASURES = ("normwise", "componentwise")


def library_name(report: AccuracyReport) -> str:
    return "cuBLAS SGEMM" if report.environment["device_type"] == "cuda" else LIBRARY


def name(report: AccuracyReport, kernel: str, precision: str) -> str:
    """A contender's name in tables and pictures."""
    if kernel != LIBRARY:
        return f"{kernel} (tf32)" if precision == "tf32" else kernel
    return library_name(report) if precision == "ieee" else f"cuBLAS, {precision}"


class Study:
    """The errors of a report, with functions to find them."""

    def __init__(self, report: AccuracyReport):
        self.report = report
        self._errors = {(e.kernel, e.precision, e.distribution, (e.m, e.n, e.k)): e for e in report.results}
        self.contenders = list(dict.fromkeys((e.kernel, e.precision) for e in report.results))
        self.distributions = list(dict.fromkeys(e.distribution for e in report.results))
        shapes = list(dict.fromkeys((e.m, e.n, e.k) for e in report.results))
        self.sizes = list(
            dict.fromkeys((m, n) for m, n, _ in shapes)
        )  # pictures and main tables show the first size
        self.shapes: dict[tuple[int, int], list[Shape]] = {
            size: [shape for shape in shapes if shape[:2] == size] for size in self.sizes
        }

    @property
    def rivals(self) -> list[tuple[str, str]]:
        return [c for c in self.contenders if c != (BASELINE.kernel, BASELINE.precision)]

    def taken(self, contender: tuple[str, str], size: tuple[int, int]) -> list[Shape]:
        """The shapes of a size that a contender takes. Some kernels reject short sums."""
        first = self.distributions[0]
        return [shape for shape in self.shapes[size] if (*contender, first, shape) in self._errors]

    def error(self, contender: tuple[str, str], distribution: str, shape: Shape) -> Error:
        return self._errors[(*contender, distribution, shape)]

    def ratio(self, contender: tuple[str, str], distribution: str, shape: Shape, measure: str) -> float:
        """The error in units of the library's error."""
        ours = getattr(self.error(contender, distribution, shape), measure)
        theirs = getattr(self.error((BASELINE.kernel, BASELINE.precision), distribution, shape), measure)
        return ours / theirs if theirs else 1.0 if not ours else float("inf")

    def worst(
        self, contender: tuple[str, str], size: tuple[int, int], measure: str
    ) -> tuple[float, str, int] | None:
        """The largest ratio of a size, with its distribution and K; None if the contender takes no shape of it."""
        return max(
            (
                (self.ratio(contender, distribution, shape, measure), distribution, shape[2])
                for distribution in self.distributions
                for shape in self.taken(contender, size)
            ),
            default=None,
        )
