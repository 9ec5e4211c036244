"""Which kernels exist and what runs where, from the kernel table and from predictions for nominal GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastgemm import _introspect
from fastgemm.table import KernelInfo, kernels

from .spec import Column, Table, quoted

# The reading order of level 6 of GEMM on CUDA: the plain rungs, then their applications, then special shapes.
# Kernels that are not named here follow in the table's order.
READING = (
    *("wmma", "mma_ldmatrix", "mma_sync", "dmma", "dmma_m8n8k4", "wgmma", "wgmma_ring", "wgmma_persistent"),
    *("wgmma_boxes", "wgmma_wide", "wgmma_deep", "wgmma_overlapped", "wgmma_setmaxnreg", "wgmma_fused"),
    "wgmma_specialized",
    *("bf16x6", "bf16x6_fused", "bf16x3", "fp16x3", "int8x10", "int16x4", "crt"),
    *("one_wave", "skinny", "narrow", "split_k", "small_tile", "batched", "direct", "outer", "symmetric"),
)
KERNELS = Table(
    [
        Column("level", "level"),
        Column("kernel", "name", "`{}`"),
        Column("role", "role"),
        Column("needs", "needs"),
        Column("idea", lambda row: row.summary.rstrip(".").replace("[", r"\[")),  # else [i][j] is a link
    ],
    words=5,
    by=("op", "device"),
    title="**{0.op}, {0.device}**",
)


def _kernels() -> str:
    """All kernels in reading order. The text does not depend on the machine."""

    def place_of(row: KernelInfo) -> tuple[int, int]:
        return row.level, READING.index(row.name) if row.level == 6 and row.name in READING else len(READING)

    return KERNELS.text(
        row
        for device in ("cuda", "cpu")
        for op in ("gemm", "transpose", "add")
        for row in sorted(kernels(op, device=device), key=place_of)
    )


@dataclass(frozen=True)
class Series:
    """A kind of product: its dtype, its precision, and the type that a tensor core multiplies for it."""

    name: str
    multiplied: str
    dtype: str
    precision: str = "ieee"

    def taken(self, level: int, on_hopper_alone: bool) -> str:
        """The rows among which a level chooses; for float32 only rows of exactly this precision."""
        precise = self.precision if level == 6 else "ieee"  # level 5 does not round float32 operands
        rows = [
            row
            for row in RUNGS
            if row.level == level and self.dtype in row.dtypes and self.precision == precise
        ]
        return quoted(
            row.name
            for row in rows
            if (row.needs == HOPPER) == on_hopper_alone
            and (self.dtype != "float32" or row.precision == self.precision)
        )


SERIES = (
    Series("float64", "float64", "float64"),
    Series("float32", "bfloat16, six products", "float32"),
    Series("float32, `fp16x3`", "float16, three products", "float32", "fp16x3"),
    Series("float32, `bf16x3`", "bfloat16, three products", "float32", "bf16x3"),
    Series("float32, `tf32`", "tf32", "float32", "tf32"),
    *(Series(name, name, name) for name in ("float16", "bfloat16", "int8", "uint8")),
    Series("fp8 with scales", "e4m3, e5m2", "float8_e4m3fn"),
    Series("int16", "bytes, four products", "int16"),
    Series("int32", "bytes, ten products", "int32"),
    Series("int64", "int8, residues", "int64"),
)
HOPPER = "sm_90a"
RUNGS = [row for row in kernels("gemm", device="cuda") if row.role == "rung"]
LIBRARY_TYPES = {dtype for row in kernels("gemm", device="cuda") if row.level == 7 for dtype in row.dtypes}
LEVELS = Table(
    [
        Column("product", "name"),
        Column("level 5", lambda series: series.taken(5, False)),
        Column("level 5 on Hopper, too", lambda series: series.taken(5, True)),
        Column("level 6: tensor cores multiply", "multiplied"),
        Column("level 6", lambda series: series.taken(6, False)),
        Column("level 6 on Hopper, too", lambda series: series.taken(6, True)),
    ],
    words=6,
)


@dataclass(frozen=True)
class Generation:
    """``multiprocessors``: of the largest GPU; nominal_gpu() in csrc/core/gpu.cpp knows the rest."""

    capability: str
    gpus: str
    multiprocessors: int
    run_on: str = "the simulator only"  # what tools/gpu_check.sh has tested

    @property
    def gpu(self) -> dict[str, Any]:
        capability = int(self.capability.replace(".", ""))
        return {"capability": capability, "multiprocessors": self.multiprocessors, "number": 0}

    def predictions(self, dtype: str, precision: str = "ieee") -> dict[str, float]:
        """Predicted seconds of a large product, fastest first."""
        problem = (dtype, precision, 1, EDGE, EDGE, EDGE, False, False)
        found = _introspect.predictions(problem, self.gpu)
        return {name: seconds for name, seconds in found if name != "library" or dtype in LIBRARY_TYPES}

    def choice(self, series: Series) -> str:
        """The kernel that level 6 takes, and the kernel of level=None if it is another one."""
        found = list(self.predictions(series.dtype, series.precision))
        level6 = next(name for name in found if name in {row.name for row in RUNGS if row.level == 6})
        free = "library" if found[0] == "library" else f"`{found[0]}`"
        return f"`{level6}`" if found[0] == level6 else f"`{level6}`; {free}"

    @property
    def multiplies_by(self) -> str:
        wgmma = any(row.name in self.predictions("bfloat16") for row in RUNGS if row.needs == HOPPER)
        return "wgmma and TMA" if wgmma else "`mma.sync` and `cp.async`"


EDGE = 4096
GENERATIONS = (
    Generation("8.0", "A100, A30", 108),
    Generation("8.6", "RTX 30, A40, A10", 82),
    Generation("8.7", "Jetson Orin", 16),
    Generation("8.9", "RTX 40, L4, L40S", 128),
    Generation("9.0", "H100, H200, GH200, H20", 132, "an H200, both source paths; an H100"),
    Generation("10.0", "B200", 148),
    Generation("10.3", "B300", 148),
    Generation("11.0", "Jetson Thor", 20),
    Generation("12.0", "RTX 50, RTX PRO", 170),
    Generation("12.1", "DGX Spark", 48),
)
SUPPORT = Table(
    [
        Column("compute capability", "capability"),
        Column("GPUs", "gpus"),
        Column("level 6 by", "multiplies_by"),
        Column("`level=None` is", lambda generation: _introspect.knowledge(generation.gpu)),
        Column("run on", "run_on"),
    ],
    words=5,
)
FIRST = Column("GPU", lambda generation: f"{generation.capability}, {generation.gpus.split(',')[0]}")
CHOSEN = [  # only one row takes fp8
    series for series in SERIES if "x3" not in series.precision and not series.dtype.startswith("float8")
]
CHOICES = Table(
    [FIRST, *(Column(series.name, lambda generation, s=series: generation.choice(s)) for series in CHOSEN)],
    words=1 + len(CHOSEN),
)


BLOCKS: dict[str, Callable[[], str]] = {
    "kernels": _kernels,
    "support_kernels": lambda: LEVELS.text(SERIES),
    "support_generations": lambda: SUPPORT.text(GENERATIONS),
    "support_choices": lambda: CHOICES.text(GENERATIONS),
}
