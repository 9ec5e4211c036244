"""Errors of float32 products against float64, by distribution and K.

Two measures of C, the result, against ref:

    normwise         ||C - ref|| / ||ref||, Frobenius norms: how good the matrix is as a whole
    componentwise    the largest |C - ref| / (|A| |B|): how good the worst element is, relative to the sum of
                     the magnitudes of its terms

The reference is computed in float64 on the same device. It holds products of two float32 numbers exactly, and its
sums round 2^29 times finer than float32's. The study also measures the error of the reference, by summing over K
in the opposite order (``summary["reference_error"]``, as a share of the least error of any contender).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from fastgemm.bench.checking import PRODUCT_ERROR
from fastgemm.bench.environment import using_threads
from fastgemm.bench.ladder import Progress
from torch import Tensor

from studies.environment import describe

from .contenders import Contender, contenders, integer_kernels
from .data import DISTRIBUTIONS, Draw, Shape
from .records import COMMAND, AccuracyReport, Error
from .special import run_integers, run_special

DEPTHS = (40, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
UNIT_ROUNDOFF = 2.0**-24

# SIZES: whole tiles and a last column of partial ones, at every K. ODD_SIZES: multiples of no tile. LARGE: so many
# tiles that a library does not split K. NARROW: so few rows that it splits K and sums the parts separately.
SIZES = {"cuda": (768, 1024), "cpu": (96, 128)}
ODD_SIZES = {"cuda": (333, 517), "cpu": (67, 93)}
LARGE = tuple((4096, 3072, k) for k in (512, 4096, 16384))
NARROW = tuple((m, 4096, k) for m in (1, 4) for k in (500, 1000, 2048, 8192, 32768))
TRIALS = {"cuda": 3, "cpu": 1}
INTEGER_DEPTHS = (64, 1024, 8192)


def default_shapes(device: str) -> list[Shape]:
    shapes = [(*SIZES[device], k) for k in DEPTHS] + [(*ODD_SIZES[device], k - 1) for k in DEPTHS]
    return shapes + ([*LARGE, *NARROW] if device == "cuda" else [])


def integer_shapes(shapes: Sequence[Shape], device: str) -> list[Shape]:
    """The shapes of the study at which int32 products are checked."""
    default = shapes == default_shapes(device)
    return (
        [s for s in shapes if s[2] in INTEGER_DEPTHS or s[2] + 1 in INTEGER_DEPTHS]
        if default
        else list(shapes)
    )


def bound(precision: str, k: int) -> float:
    """The bound of the componentwise error. As in the tests, it assumes nearly random rounding errors."""
    return 2 * UNIT_ROUNDOFF * (math.sqrt(k) + 3) + PRODUCT_ERROR[precision]


def _rounded(value: float) -> float:
    """Rounds to the significant digits."""
    return float(f"{value:.4g}")


@dataclass
class _Sums:
    """Sums of squares of a contender's error and of the reference, and the worst element's error, over trials."""

    error: float = 0.0
    norm: float = 0.0
    worst: float = 0.0
    repeats: bool = True

    def add(self, result: Tensor, value: Tensor, scale: Tensor) -> None:
        difference = result.double().sub_(value)
        self.error += float(difference.square().sum())
        self.norm += float(value.square().sum())
        relative = float(difference.abs_().div_(scale).max())  # max() passes a NaN on
        self.worst = max(self.worst, math.inf if math.isnan(relative) else relative)

    @property
    def normwise(self) -> float:
        relative = math.sqrt(self.error / self.norm)
        return math.inf if math.isnan(relative) else relative


@dataclass
class Case:
    """The sums of every contender for one distribution and shape."""

    distribution: str
    shape: Shape
    sums: dict[Contender, _Sums]
    reference_error: float = 0.0  # componentwise

    def run(self, draw: Draw, by_columns: bool = False) -> None:
        """Runs one more trial. B may be stored by columns."""
        make, _ = DISTRIBUTIONS[self.distribution]
        a, b = make(draw, *self.shape)
        if by_columns:
            b = b.t().contiguous().t()
        wide_a, wide_b = a.double(), b.double()
        value, scale = wide_a @ wide_b, wide_a.abs() @ wide_b.abs()
        if not self.reference_error:
            other_order = wide_a.flip(1) @ wide_b.flip(0)
            self.reference_error = float(other_order.sub_(value).abs_().div_(scale).max())
            self.sums = {contender: sums for contender, sums in self.sums.items() if contender.takes(a, b)}
        for contender, sums in self.sums.items():
            result = contender(a, b)
            sums.add(result, value, scale)
            sums.repeats &= torch.equal(result, contender(a, b))

    def errors(self, threads: int) -> list[Error]:
        k = self.shape[-1]
        return [
            Error(
                *(self.distribution, *self.shape, threads, contender.kernel, contender.precision),
                *map(_rounded, (sums.normwise, sums.worst, sums.worst / bound(contender.precision, k))),
                sums.repeats,
            )
            for contender, sums in self.sums.items()
        ]

    @property
    def reference_share(self) -> float:
        """The reference's own error, in units of the most accurate contender's error."""
        least = min((sums.worst for sums in self.sums.values() if sums.worst), default=math.inf)
        return self.reference_error / least


def run_accuracy(
    device: str = "cpu",
    *,
    shapes: Sequence[Shape] = (),
    seed: int,
    rivals: Sequence[Contender] | None = None,
    integers: Sequence[str] | None = None,
    trials: int | None = None,
    threads: int | None = None,
    progress: Progress = lambda text, share: None,
) -> AccuracyReport:
    """Runs the whole study.

    Args:
        device: ``"cpu"`` or ``"cuda"``.
        shapes: (m, n, k) of the products; default: those of the published tables.
        seed: the seed of all data.
        rivals: the contenders, the library first; default: ``contenders(device)``.
        integers: kernels of int32 that must be exact; default: ``integer_kernels(device)``.
        trials: draws of each distribution and shape.
        threads: torch's threads on a CPU.
        progress: receives the current step and the share that is done.
    """
    shapes = list(shapes) or default_shapes(device)
    rivals = list(contenders(device) if rivals is None else rivals)
    integers = list(integer_kernels(device) if integers is None else integers)
    trials = trials or TRIALS[device]
    draw = Draw(device, seed)
    method = {
        "text": "errors against float64 on the same device, every second draw with B stored by columns; normwise "
        "over all draws, componentwise the worst",
        "distributions": {name: text for name, (_, text) in DISTRIBUTIONS.items()},
        "trials": trials,
        "seed": seed,
    }
    with using_threads(threads) as count:
        report = AccuracyReport(COMMAND, describe(device), method)
        cases = [
            Case(name, shape, {c: _Sums() for c in rivals}) for name in DISTRIBUTIONS for shape in shapes
        ]
        for i, case in enumerate(cases):
            progress(f"{case.distribution} {'x'.join(map(str, case.shape))}", i / len(cases))
            for trial in range(trials):
                case.run(draw, by_columns=trial % 2 == 1)
            report.results += case.errors(count if device == "cpu" else 0)
        progress("special values and int32", 1.0)
        report.special = run_special(draw, rivals)
        report.integers = run_integers(draw, integers, integer_shapes(shapes, device))
    report.summary["reference_error"] = _rounded(max(case.reference_share for case in cases))
    return report
