"""The entries of counter_table.py: the intended memory accesses of a kernel, as counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import torch
from fastgemm._explain.counts import Site
from fastgemm._explain.symbols import source_lines

F32, F64, BF16, I8, C128 = torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.complex128
TYPES = (F32, BF16, I8, F64)


@dataclass(frozen=True)
class Access:
    """The intended accesses of one kind.

    Attributes:
        what: space, kind and, in global memory, buffer: ``global load a``, ``shared store``.
        bytes: of one lane; None where it depends on the rest of the problem.
        requests: warp-wide ones, for each 32 multiply-adds of a product (each 32 results where ``what`` stores
            results), or each 32 elements that are moved or added up.
        sectors: 32-byte pieces of global memory, for each request. 4 is a line of 128 bytes.
        conflict: wavefronts in shared memory, relative to the fewest possible; 1 means no bank conflicts.
        code: part of the source line, where several lines do the same.
    """

    what: str
    bytes: int | None = None
    requests: Fraction | float | None = None
    sectors: float | None = None
    conflict: float | None = None
    code: str = ""

    def matches(self, site: Site) -> bool:
        name = (
            f"{site.space} {site.kind} {site.buffer}"
            if site.space == "global"
            else f"{site.space} {site.kind}"
        )
        return name == self.what and self.code in _source_line(site)


@dataclass(frozen=True)
class Row:
    """An entry of the table: the idea, as counters at a problem of this shape."""

    idea: str
    accesses: Callable[[int], list[Access]]  # of the bytes of an element
    shape: tuple[int, ...]
    dtypes: tuple[torch.dtype, ...]
    all_accesses: bool = True  # there are no others
    in_flight: Callable[[int], bool] = lambda in_flight: (
        in_flight == 0
    )  # bytes of asynchronous copies, in a block
    tolerance: float = 0  # of requests, where work is cut into parts that overlap


def _source_line(site: Site) -> str:
    lines = source_lines(site.frames[0])
    return lines[site.line - 1] if lines and site.line else ""
