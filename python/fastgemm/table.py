"""The kernel table, as data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch

from . import _introspect

# Of float32 products; those of the second list may err more than IEEE arithmetic.
PRECISIONS = ("ieee", "tf32", "bf16x3", "bf16x6", "fp16x3")
LOWER_PRECISIONS = ("tf32", "bf16x3", "fp16x3")

WIDTH_NAMES = {1: "bits8", 2: "bits16", 4: "bits32", 8: "bits64", 16: "bits128"}


@dataclass(frozen=True)
class KernelInfo:
    """One row of the kernel table.

    Attributes:
        op: ``"gemm"``, ``"transpose"`` or ``"add"``.
        level: the rung of the ladder, 1 to 7.
        name: what ``kernel=`` takes; unique for op and device.
        device: ``"cpu"`` or ``"cuda"``.
        dtypes: operand dtypes; transpose moves bytes and lists element widths (``"bits8"`` to ``"bits128"``).
        needs: the hardware it needs, in words.
        summary: its idea in one sentence.
        role: ``"rung"`` (a level may pick it), ``"companion"`` or ``"pitfall"`` (only by name).
        precision: of its float32 products; a row that falls short of ``"ieee"`` runs only where that precision
            is asked for.
        unavailable: why it cannot run in this process, or None.
    """

    op: str
    level: int
    name: str
    device: str
    dtypes: tuple[str, ...]
    needs: str
    summary: str
    role: Literal["rung", "companion", "pitfall"]
    precision: str
    unavailable: str | None

    @property
    def available(self) -> bool:
        return self.unavailable is None

    def takes(self, dtype: torch.dtype) -> bool:
        """Whether the kernel takes operands of this dtype."""
        name = (
            WIDTH_NAMES.get(dtype.itemsize, "")
            if self.op == "transpose"
            else str(dtype).removeprefix("torch.")
        )
        return name in self.dtypes


@cache
def _table() -> tuple[KernelInfo, ...]:
    rows = _introspect.table()
    return tuple(KernelInfo(**{**row, "dtypes": tuple(row["dtypes"])}) for row in rows)


def kernels(
    op: str | None = None, device: str | torch.device | None = None, dtype: torch.dtype | None = None
) -> list[KernelInfo]:
    """Rows of the kernel table, ordered by op, device and level.

    Args:
        op: keep the rows of ``"gemm"``, ``"transpose"`` or ``"add"``.
        device: keep the rows of ``"cpu"`` or ``"cuda"``.
        dtype: keep the rows that take operands of this dtype.

    Returns:
        Every row of the table that fits, those that cannot run here included: ``available`` and ``unavailable``
        tell.

    Raises:
        ValueError: unknown op or device.
    """
    if op not in (None, "gemm", "transpose", "add"):
        raise ValueError(f"op must be 'gemm', 'transpose' or 'add', got {op!r}")
    kind = torch.device(device).type if device is not None else None
    if kind not in (None, "cpu", "cuda"):
        raise ValueError(f"device must be 'cpu' or 'cuda', got {device!r}")
    return [
        row
        for row in _table()
        if op in (None, row.op) and kind in (None, row.device) and (dtype is None or row.takes(dtype))
    ]


def build_info() -> dict[str, Any]:
    """What this build is, and what it found on this machine.

    Returns:
        ``version`` and ``compiler``; ``torch`` here, ``torch_at_build``, and ``torch_abi``, which says under what
        torch the same binary runs; ``cuda_kernels``, whether they were built, and for which ``cuda_archs``;
        ``cuda_device``, the first GPU or why there is none; ``cpu``, ``cpu_model`` and ``cpu_features``;
        ``cublas``, the version found; ``table_hash`` of the kernel table, by which measurements are remembered.
    """
    return {**_introspect.build_info(), "cuda_device": _introspect.cuda_device(), "torch": torch.__version__}


def check_product_choice(level: int | None, kernel: str | None, precision: str | None) -> None:
    """Raises TypeError or ValueError where no product could be computed so, whatever its operands."""
    if level is not None and (not isinstance(level, int) or isinstance(level, bool)):
        raise TypeError(f"fastgemm: level must be an int or None, got {type(level).__name__}")
    if level is not None and not 1 <= level <= 7:
        raise ValueError(f"fastgemm: level must be 1 to 7 or None, got {level}")
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(f"fastgemm: precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if kernel is not None:
        rows = [row for row in kernels("gemm") if row.name == kernel]
        if not rows:
            raise ValueError(
                f"fastgemm: there is no gemm kernel {kernel!r}; fastgemm.kernels('gemm') has all"
            )
        if level is not None and all(row.level != level for row in rows):
            raise ValueError(f"fastgemm: kernel {kernel!r} is of level {rows[0].level}, not {level}")
