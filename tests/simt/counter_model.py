"""The types of counter_table.py, which describe a kernel's intended memory accesses by counters."""

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
        bytes: for one lane; None if the number depends on the rest of the problem.
        requests: warp-wide requests for each 32 multiply-adds of a product (for each 32 results if ``what``
            stores results), or for each 32 elements that are moved or added.
        sectors: 32-byte sectors of global memory for each request; 4 are a line of 128 bytes.
        conflict: wavefronts in shared memory, relative to the fewest possible; 1 means no bank conflicts.
        code: part of the source line, if several lines do the same.
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
    """An entry of the table: a kernel's idea, and its counters for a problem of this shape."""

    idea: str
    accesses: Callable[[int], list[Access]]  # a function of an element's bytes
    shape: tuple[int, ...]
    dtypes: tuple[torch.dtype, ...]
    all_accesses: bool = True  # whether the kernel makes no other accesses
    in_flight: Callable[[int], bool] = lambda in_flight: (
        in_flight == 0
    )  # checks the bytes of a block's asynchronous copies
    tolerance: float = 0  # for requests, if parts of the work overlap


def _source_line(site: Site) -> str:
    lines = source_lines(site.frames[0])
    return lines[site.line - 1] if lines and site.line else ""
