"""The products to compare, and the contenders for each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from fastgemm.bench.problems import Gemm

PRESET = "peers"
FP64, FP32, BF16 = torch.float64, torch.float32, torch.bfloat16
FASTGEMM, MATMUL, COMPILE = "fastgemm", "torch.matmul", "torch.compile"
TRITON, JAX, CUBLAS = "Triton", "JAX", "cublasGemmEx"
EAGER = ", eager"  # suffix of an emulated mode of cuBLAS: emulate wherever possible
DEFAULT = "default"
GROUPS = ("float32", "float32, one row", "float64", "bfloat16", "bfloat16, odd sizes")  # as in the table
MODE = "max-autotune"
# JAX's names of dot algorithms, and the precision whose bound their results must obey.
DOT_ALGORITHMS = {
    "F32_F32_F32": "ieee",
    "TF32_TF32_F32_X3": "tf32x3",
    "BF16_BF16_F32_X3": "bf16x3",
    "BF16_BF16_F32_X6": "bf16x6",
    "BF16_BF16_F32_X9": "bf16x9",
}
INPUT_PRECISIONS = ("ieee", "tf32x3", "bf16x3", "bf16x6")  # precisions of Triton's dot
OWN_PRECISIONS = ("bf16x6", "fp16x3", "bf16x3", "tf32")


@dataclass(frozen=True)
class Contender:
    """``asked``: the requested mode. ``precision``: decides the error bound; None: the type decides it."""

    product: str
    asked: str = DEFAULT
    precision: str | None = None
    level: int | None = None  # a level of this library

    @property
    def is_baseline(self) -> bool:
        return self.product == MATMUL and self.precision in (None, "ieee")

    @property
    def is_own(self) -> bool:
        return self.product == FASTGEMM


def _own(precision: str | None = None) -> list[Contender]:
    said = f", {precision}" if precision else ""
    return [
        Contender(FASTGEMM, f"level 6{said}", precision, 6),
        Contender(FASTGEMM, f"level=None{said}", precision),
    ]


def _float32() -> list[Contender]:
    return [
        Contender(MATMUL, "ieee", "ieee"),
        Contender(MATMUL, "tf32", "tf32"),
        *_own("ieee"),
        *(Contender(FASTGEMM, f"level=None, {name}", name) for name in OWN_PRECISIONS),
        *(Contender(CUBLAS, f"32F_EMULATED_16BFX9{how}", "bf16x9") for how in ("", EAGER)),
        Contender(COMPILE, f"{MODE}, ieee", "ieee"),
        *(Contender(TRITON, name, name) for name in INPUT_PRECISIONS),
        *(Contender(JAX, name, precision) for name, precision in DOT_ALGORITHMS.items()),
    ]


def contenders(problem: Gemm) -> list[Contender]:
    """The baseline comes first, and contenders with a long set-up come last."""
    if problem.dtype == FP64:
        emulated = (Contender(CUBLAS, f"64F_EMULATED_FIXEDPOINT{how}") for how in ("", EAGER))
        return [Contender(MATMUL), *_own(), *emulated]
    if problem.dtype == FP32 and min(problem.shape) > 1:
        return _float32()
    precision = "ieee" if problem.dtype == FP32 else None
    asked, mode = (precision, f"{MODE}, {precision}") if precision else (DEFAULT, MODE)
    found = [Contender(MATMUL, asked, precision), *_own(precision), Contender(COMPILE, mode, precision)]
    if problem.dtype == FP32:
        return [*found, Contender(JAX, "F32_F32_F32", "ieee")]
    return [*found, Contender(TRITON), Contender(JAX)]


def problems() -> list[tuple[str, Gemm]]:
    """Groups and products in the order of measurement. The most important come first, as time may run out."""
    return [
        *(("bfloat16, odd sizes", Gemm(4095, 4093, 4097, BF16, layout)) for layout in ("NN", "NT")),
        ("float32, one row", Gemm(1, 8192, 8192, FP32, "NT")),
        *(("float32", Gemm(n, n, n, FP32)) for n in (4096, 8192, 2048)),
        *(("bfloat16", Gemm(n, n, n, BF16)) for n in (4096, 8192)),
        *(("float64", Gemm(n, n, n, FP64)) for n in (4096, 8192)),
    ]
