"""Reference values: sums in numpy's extended precision, and for integers exact sums that wrap."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import torch
from fastgemm.bench.checking import error_bound
from torch import Tensor

ROWS, COLUMNS = 8, 48  # the number of elements of a result that are checked


def _extended(x: Tensor) -> np.ndarray:
    if x.dtype.is_complex:
        return x.resolve_conj().cpu().to(torch.complex128).numpy().astype(np.clongdouble)
    return (
        x.cpu().double().numpy().astype(np.longdouble)
        if x.dtype.is_floating_point
        else x.cpu().long().numpy()
    )


def _double(x: np.ndarray) -> Tensor:
    return torch.from_numpy(x.astype(np.float64))


class Exact:
    """Some elements of a @ b. Sums are pairwise, so 2^16 terms lose no more accuracy than 16 terms would."""

    def __init__(self, a: Tensor, b: Tensor):
        self._rows, self._columns = (
            torch.linspace(0, size - 1, min(most, size), device=a.device).long()
            for size, most in ((a.shape[0], ROWS), (b.shape[1], COLUMNS))
        )
        x, y = _extended(a[self._rows]), _extended(b[:, self._columns].mT.contiguous())
        self.k = a.shape[1]
        self.value = np.stack([(row * y).sum(-1) for row in x])
        x, y = (np.abs(each).astype(np.float64) for each in (x, y))
        self.magnitudes = x @ y.T
        self.norms = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(y, axis=1)

    def part(self, result: Tensor) -> Tensor:
        return result[self._rows][:, self._columns]

    def errors(self, result: Tensor) -> np.ndarray:
        return abs(_extended(self.part(result)) - self.value)

    def check(self, result: Tensor, precision: str) -> dict[str, Any]:
        """Fields of a row. The error is the largest error of an element, relative to the element of |a| |b|."""
        if self.value.dtype == np.int64:
            right = torch.equal(self.part(result).cpu(), torch.from_numpy(self.value).to(result.dtype))
            return {} if right else {"right": False, "message": "not exact"}
        error = self.errors(result)
        bound = error_bound(
            _double(abs(self.value)), _double(self.magnitudes), self.k, result.dtype, precision
        )
        found = {"component_error": float((error / self.magnitudes).max())}
        right = bool((_double(error) <= bound).all())
        return found if right else {**found, "right": False, "message": "elements are beyond their bound"}


def errors_of(results: Tensor, draws: list[Exact]) -> dict[str, Any]:
    """The errors of results for several draws of the operands. The first is the largest error relative to the
    element of |a| |b|. The second is the root mean square error relative to the norms of row and column. Both
    are in units of 2^-53, or of 2^-24 for float32."""
    unit = 2**24 if results.dtype == torch.float32 else 2**53
    errors = [exact.errors(result) for exact, result in zip(draws, results, strict=True)]
    largest = max(float((e / d.magnitudes).max()) for e, d in zip(errors, draws, strict=True))
    square = statistics.fmean(float(((e / d.norms) ** 2).mean()) for e, d in zip(errors, draws, strict=True))
    return {"more": {"errors": [largest * unit, square**0.5 * unit]}}
