"""The contenders: float32 products of the library, and this package's kernels of each precision."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from fastgemm import ops
from fastgemm.bench.problems import Gemm, torch_precision
from fastgemm.table import kernels
from torch import Tensor

LIBRARY = "torch.matmul"
LEVEL = "level="


@dataclass(frozen=True)
class Contender:
    """A float32 product. ``kernel`` is a row of the table, ``"level=6"`` for that level's choice, or torch.matmul
    with torch's precision of that name."""

    kernel: str
    precision: str = "ieee"

    @property
    def is_library(self) -> bool:
        return self.kernel == LIBRARY

    def takes(self, a: Tensor, b: Tensor) -> bool:
        """Whether the kernel takes this product. bf16x6, for example, rejects short sums."""
        try:
            self(a, b)
        except RuntimeError as refusal:
            if "cannot run here" not in str(refusal):
                raise
            return False
        return True

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        if self.kernel.startswith(LEVEL):
            level = int(self.kernel.removeprefix(LEVEL))
            return ops.matmul(a, b, level=level, precision=self.precision)
        if not self.is_library:
            return ops.matmul(a, b, kernel=self.kernel, precision=self.precision)
        precision = self.precision if a.is_cuda else None
        with torch_precision(Gemm(a.shape[0], b.shape[1], a.shape[1], precision=precision)):
            return torch.matmul(a, b)


BASELINE = Contender(LIBRARY)


def contenders(device: str, more: tuple[str, ...] = ()) -> list[Contender]:
    """The library, level 6, a kernel that computes in float32, every kernel of level 6 that claims IEEE accuracy,
    and the fastest kernel of each other precision. ``more`` names further kernels.

    On a CPU all products have IEEE accuracy, and level 5 sums in the same order as level 6.
    """
    table = {row.name: row for row in kernels("gemm", device, torch.float32)}

    def of(level: int, precision: str) -> list[Contender]:
        rungs = [row for row in table.values() if row.available and row.role == "rung"]
        return [Contender(r.name, precision) for r in rungs if (r.level, r.precision) == (level, precision)]

    level6 = of(6, "ieee")
    if device == "cpu":
        found = [BASELINE, *level6[:1]]
    else:
        found = [BASELINE, Contender(f"{LEVEL}6"), *level6[:1]]
        found += of(5, "ieee")[:1] + level6[1:]
        for precision in ("fp16x3", "bf16x3", "tf32"):
            found += of(6, precision)[:1]
        found.append(Contender(LIBRARY, "tf32"))
    found += [Contender(name, table[name].precision) for name in more]
    return list(dict.fromkeys(found))


def integer_kernels(device: str) -> list[str]:
    """The rungs of int32 products at levels 5 and 6."""
    rows = kernels("gemm", device, torch.int32)
    return [row.name for row in rows if row.available and row.role == "rung" and row.level in (5, 6)]
