"""What the study compares: float32 products of the library, and the kernels of this package by precision."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ... import ops
from ...table import KernelInfo, kernels
from ..problems import Gemm, torch_precision

LIBRARY = "torch.matmul"

# The largest error of one product a * b, relative to |a b|, beyond float32's own rounding: what planes leave of
# an operand, or rounding it to tf32 does, on either side, and the product of planes that is left out.
#   tf32    2^-11 of each operand
#   bf16x3  2^-17 of each operand, and p1 q1, up to 2^-8 of each
#   fp16x3  2^-23 of each operand, and p1 q1, up to 2^-11 of each (within its range: 2^-28 of the row's largest)
#   bf16x6  nothing of the operands; p1 q2, p2 q1 and p2 q2: 2^-24, as much as a rounding of the result
PRODUCT_ERROR = {"ieee": 2**-24, "tf32": 2**-10, "bf16x3": 2**-15, "fp16x3": 2**-21}

# Kernels of each precision on a GPU, the first of each group that is there. On a CPU all products are IEEE ones,
# and level 5 sums in the order of level 6.
CUDA = {
    "ieee": (("bf16x6",), ("warp_specialized", "cp_async")),
    "fp16x3": (("fp16x3",),),
    "bf16x3": (("bf16x3",),),
    "tf32": (("wgmma_specialized", "mma_sync"),),
}
CPU = {"ieee": (("pipelined",),)}


@dataclass(frozen=True)
class Contender:
    """A float32 product: ``kernel`` is a row of the table, or torch.matmul in torch's precision of that name."""

    kernel: str
    precision: str = "ieee"

    @property
    def is_library(self) -> bool:
        return self.kernel == LIBRARY

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        if not self.is_library:
            return ops.matmul(a, b, kernel=self.kernel, precision=self.precision)
        precision = self.precision if a.is_cuda else None
        with torch_precision(Gemm(a.shape[0], b.shape[1], a.shape[1], precision=precision)):
            return torch.matmul(a, b)


BASELINE = Contender(LIBRARY)


def _first_available(table: dict[str, KernelInfo], names: tuple[str, ...]) -> list[str]:
    return [name for name in names if name in table and table[name].available][:1]


def contenders(device: str, more: tuple[str, ...] = ()) -> list[Contender]:
    """The library first; ``more`` names kernels that take part besides."""
    table = {row.name: row for row in kernels("gemm", device, torch.float32)}
    found = [BASELINE]
    for precision, groups in (CUDA if device == "cuda" else CPU).items():
        for names in groups:
            found += [Contender(name, precision) for name in _first_available(table, names)]
    if device == "cuda":
        found.append(Contender(LIBRARY, "tf32"))
    found += [Contender(name, table[name].precision) for name in more]
    return list(dict.fromkeys(found))


def integer_kernels(device: str) -> list[str]:
    """The own rungs of int32 products, from level 5 up."""
    rows = kernels("gemm", device, torch.int32)
    return [row.name for row in rows if row.available and row.role == "rung" and row.level in (5, 6)]
