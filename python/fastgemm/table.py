"""The kernel table, as data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch

from . import _introspect, _override_library
from ._errors import part_dtype
from ._typing import Op, Role

# LOWER_PRECISIONS may have larger errors than IEEE arithmetic in float32.
PRECISIONS = ("ieee", "tf32", "bf16x3", "bf16x6", "fp16x3")  # of float32 products
FLOAT64_PRECISIONS = ("crt14", "crt15", "crt16", "crt17", "crt18")  # besides "ieee"
LOWER_PRECISIONS = ("tf32", "bf16x3", "fp16x3")

PACKAGE = "fastgemm"  # the name in errors that any function may cause
WIDTH_NAMES = {1: "bits8", 2: "bits16", 4: "bits32", 8: "bits64", 16: "bits128"}


@dataclass(frozen=True)
class KernelInfo:
    """One row of the kernel table.

    Attributes:
        op: ``"gemm"``, ``"transpose"`` or ``"add"``.
        level: the rung of the ladder, 1 to 7.
        name: the value for ``kernel=``; unique for op and device.
        device: ``"cpu"`` or ``"cuda"``.
        dtypes: operand dtypes; transpose moves bytes and lists element widths (``"bits8"`` to ``"bits128"``).
        needs: the hardware it needs, in words.
        summary: its idea in one sentence.
        role: ``"rung"`` (a level may pick it), ``"shortcut"`` (computes less where a product allows it:
            ``level=None`` may pick it), ``"companion"`` or ``"pitfall"`` (only by name).
        precision: of its float32 products; a row that is less accurate than ``"ieee"`` runs only if that precision
            is requested.
        codes: the codes of packed weights that it multiplies by, such as ``"int4"``; ``"none"`` stands for an
            ordinary matrix.
        groups: what groups of uneven size may divide in its products (:func:`fastgemm.grouped_mm`): ``"m"``,
            ``"k"``; ``"none"`` stands for a product or a batch of products of one size.
        unavailable: why it cannot run in this process, or None.
    """

    op: Op
    level: int
    name: str
    device: Literal["cpu", "cuda"]
    dtypes: tuple[str, ...]
    needs: str
    summary: str
    role: Role
    precision: str
    codes: tuple[str, ...]
    groups: tuple[str, ...]
    unavailable: str | None

    @property
    def available(self) -> bool:
        return self.unavailable is None

    @property
    def needs_scales(self) -> bool:
        """Whether it takes only 8-bit floating-point numbers, which have scales (:func:`fastgemm.scaled_mm`)."""
        return all(dtype.startswith("float8") for dtype in self.dtypes)

    @property
    def takes_matrices(self) -> bool:
        """Whether it computes ordinary products: of two matrices, or of a batch of them."""
        return "none" in self.codes and "none" in self.groups and not self.needs_scales

    def takes(self, dtype: torch.dtype, code: str = "none", groups: str = "none") -> bool:
        """Whether the kernel takes operands of this dtype, complex ones by the type of their parts. With a
        code, the second operand is a packed weight. With groups, these divide the dimension that is named."""
        if code not in self.codes or groups not in self.groups:
            return False
        # bool is multiplied as uint8, but not added; torch has no products of complex32.
        if (self.op == "add" and dtype == torch.bool) or (self.name == "torch" and dtype == torch.complex32):
            return self.op == "transpose"
        name = (
            WIDTH_NAMES.get(dtype.itemsize, "")
            if self.op == "transpose"
            else str(part_dtype(dtype)).removeprefix("torch.")
        )
        return name in self.dtypes


@cache
def _table() -> tuple[KernelInfo, ...]:
    rows = _introspect.table()
    lists = ("dtypes", "codes", "groups")
    return tuple(KernelInfo(**{**row, **{name: tuple(row[name]) for name in lists}}) for row in rows)


def kernels(
    op: Op | None = None, device: str | torch.device | None = None, dtype: torch.dtype | None = None
) -> list[KernelInfo]:
    """Rows of the kernel table, ordered by op, device and level.

    Args:
        op: keep the rows of ``"gemm"``, ``"transpose"`` or ``"add"``.
        device: keep the rows of ``"cpu"`` or ``"cuda"``.
        dtype: keep the rows that multiply, move or add matrices of this dtype.

    Returns:
        Every matching row of the table, also rows that cannot run here: see ``available`` and ``unavailable``.

    Raises:
        ValueError: unknown op or device.
        TypeError: ``dtype`` is no dtype.
    """
    if op not in (None, "gemm", "transpose", "add"):
        raise ValueError(f"fastgemm.kernels: op must be 'gemm', 'transpose', 'add' or None, got {op!r}")
    kind = _device_type(device)
    if kind not in (None, "cpu", "cuda"):
        raise ValueError(f"fastgemm.kernels: device must be 'cpu', 'cuda' or None, got {device!r}")
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"fastgemm.kernels: dtype must be a torch.dtype or None, got {dtype!r}")
    return [
        row
        for row in _table()
        if op in (None, row.op) and kind in (None, row.device) and (dtype is None or _runs_with(row, dtype))
    ]


def _runs_with(row: KernelInfo, dtype: torch.dtype) -> bool:
    """Whether a call that names the kernel runs: int16 is widened for a row that takes only int64."""
    return row.takes(dtype) or (
        row.op == "gemm" and dtype == torch.int16 and row.takes_matrices and row.takes(torch.int64)
    )


def _device_type(device: str | torch.device | None) -> str | torch.device | None:
    """The type of a device, as torch reads it; an unknown device is returned unchanged."""
    try:
        return None if device is None else torch.device(device).type
    except (RuntimeError, TypeError):
        return device


def build_info() -> dict[str, Any]:
    """Describes this build, and the devices of this machine.

    Returns:
        ``version`` and ``compiler``; ``torch`` here, ``torch_at_build``, and ``torch_abi``, which says with which
        torch the same binary runs; ``cuda_kernels``, whether they were built, and for which ``cuda_archs``;
        ``cuda_device``, the first GPU or why there is none; ``cpu``, ``cpu_model`` and ``cpu_features``;
        ``cublas``, the version found; ``table_hash`` of the kernel table, with which measurements are stored;
        ``override_library``, which patches need, or why there is none, and ``override_torches``, the versions of
        torch for which this build has one.
    """
    here = {"cuda_device": _introspect.cuda_device(), "torch": torch.__version__}
    return {**_introspect.build_info(), **here, **_override_library.info()}


def check_product_choice(
    level: int | None, kernel: str | None, precision: str | None, by: str = PACKAGE
) -> None:
    """Raises TypeError or ValueError, in the name of the calling function, if no product can have these
    arguments."""
    if level is not None and (not isinstance(level, int) or isinstance(level, bool)):
        raise TypeError(f"{by}: level must be an int or None, got {type(level).__name__}")
    _check_level(level, by)
    check_precision(precision, by=by)
    if kernel is not None:
        _rows_of_choice("gemm", None, level, kernel, by)


def checked_choice(
    level: int | None, kernel: str | None, precision: str | None, invariant: bool, by: str
) -> tuple[int | None, str | None]:
    """The level and kernel for these arguments. Raises as :func:`check_product_choice` does, and as
    :func:`invariant_choice`."""
    if invariant:
        level, kernel = None, invariant_choice(level, kernel, precision, by)
    check_product_choice(level, kernel, precision, by)
    return level, kernel


INVARIANT = {"invariant": 6, "naive": 1}
"""The kernels for ``invariant=True``, whose rows do not depend on each other, and their levels."""


def invariant_choice(level: int | None, kernel: str | None, precision: str | None, by: str) -> str:
    """The kernel by which ``invariant=True`` computes a product of this level, kernel and precision (maybe None).

    Raises TypeError if ``kernel`` is no name, and ValueError if the requested one cannot do this; the message says
    which can.
    """
    check_precision(precision, by=by)
    if precision not in (None, "ieee", "bf16x6", "tf32"):
        raise ValueError(
            f"{by}: precision={precision!r} is not for invariant=True; accepted: 'ieee', 'bf16x6', 'tf32' and None"
        )
    if kernel is not None:
        if not isinstance(kernel, str):
            raise TypeError(f"{by}: kernel must be a str or None, got {type(kernel).__name__}")
        if kernel in INVARIANT:
            return kernel
        raise ValueError(
            f"{by}: with kernel {kernel!r} the bits of a row depend on the other rows, which invariant=True rules "
            f"out; kernels for it: 'invariant', which is what level=None takes, and 'naive'"
        )
    if level in (None, 7):
        return "invariant"
    for name, of in INVARIANT.items():
        if level == of:
            return name
    raise ValueError(
        f"{by}: level {level} has no kernel for invariant=True; levels that have one: 1, 6 and 7, or None"
    )


def _check_level(level: int | None, by: str) -> None:
    if level is not None and not 1 <= level <= 7:
        raise ValueError(f"{by}: level must be 1 to 7 or None, got {level}")


def check_precision(precision: str | None, dtype: torch.dtype | None = None, by: str = PACKAGE) -> None:
    """Raises ValueError if products of this dtype (``None``: of any) have no such precision."""
    if precision in (None, "ieee"):
        return
    known = (*PRECISIONS, *FLOAT64_PRECISIONS)
    if precision not in known:
        raise ValueError(f"{by}: precision must be one of {', '.join(known)}, got {precision!r}")
    of = torch.float64 if precision in FLOAT64_PRECISIONS else torch.float32
    if dtype not in (None, of):
        name = str(of).removeprefix("torch.")
        raise ValueError(f"{by}: precision={precision!r} is for {name} operands only, got {dtype}")


@cache
def _product_kernels() -> dict[str, tuple[str, ...]]:
    return {name: tuple(rows) for name, rows in _introspect.product_kernels().items()}


def multiplies(row: KernelInfo, product: str) -> bool:
    """Whether a kernel directly takes products whose type is not that of their operands."""
    return row.device == "cuda" and row.name in _product_kernels()[product]


def takes_product(product: str | None, device: torch.device, level: int | None, kernel: str | None) -> bool:
    """Whether, by the kernel table, a level or a kernel directly takes such products."""
    if product is None or device.type == "cpu":
        return False
    return any(multiplies(row, product) for row in _rows_of_choice("gemm", None, level, kernel))


def check_choice(
    op: Op,
    device: torch.device,
    dtype: torch.dtype,
    level: int | None,
    kernel: str | None,
    precision: str | None = None,
    code: str = "none",
    groups: str = "none",
) -> None:
    """Raises the error that a call of an op with this level and kernel raises, as far as the kernel table decides
    it: ValueError if there is no such kernel, RuntimeError if none takes the dtype. Whether a kernel can run also
    depends on the machine.

    On a device without kernels of its own, as ``meta``, those of all devices count.
    """
    if level is None and kernel is None:
        return
    kind = device.type if device.type in ("cpu", "cuda") else None
    rows = _rows_of_choice(op, kind, level, kernel)
    if any(
        row.takes(dtype, code, groups) and _multiplies_so(row, dtype, precision or "ieee") for row in rows
    ):
        return
    asked = f"level {level}" if kernel is None else f"kernel {kernel!r}"
    raise RuntimeError(
        f"fastgemm: {asked} cannot run {op} on {device.type} in {str(dtype).removeprefix('torch.')}"
        + (f" with precision {precision!r}" if precision else "")
        + (f" by a packed weight with codes {code!r}" if code != "none" else "")
        + (f" in groups of {groups}" if groups != "none" else "")
    )


def _multiplies_so(row: KernelInfo, dtype: torch.dtype, precision: str) -> bool:
    return dtype != torch.float32 or row.precision in ("ieee", precision)


def _rows_of_choice(
    op: Op, device: str | None, level: int | None, kernel: str | None, by: str = PACKAGE
) -> list[KernelInfo]:
    """The rows of a level, or the rows with a kernel's name. Raises ValueError if they contradict each other."""
    _check_level(level, by)
    rows = kernels(op, device)
    if kernel is None:
        if level is None or (level == 7 and any(row.level == 7 for row in rows)):
            return rows  # the fastest of all
        return [row for row in rows if row.level == level and row.role == "rung"]
    named = [row for row in rows if row.name == kernel]
    if not named:
        where = f" on {device}" if device else ""
        raise ValueError(f"{by}: there is no {op} kernel {kernel!r}{where}; fastgemm.kernels({op!r}) has all")
    of_level = [row for row in named if level in (None, row.level)]
    if not of_level:
        raise ValueError(f"{by}: kernel {kernel!r} is of level {named[0].level}, not {level}")
    return of_level
