"""cuBLAS' emulated modes."""

from __future__ import annotations

from functools import partial

from fastgemm.bench.problems import Instance

from studies.cublas import Emulation

from .contenders import EAGER, Contender
from .prepared import Prepared


def emulated(contender: Contender, instance: Instance) -> Prepared:
    if instance.device != "cuda":
        raise RuntimeError("cuBLAS is for GPUs")
    multiply = Emulation(contender.asked.removesuffix(EAGER), eager=contender.asked.endswith(EAGER))
    return Prepared(partial(multiply, *instance.operands, instance.out), contender.product)
