"""This library, torch.matmul and torch.compile."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from fastgemm import tuning
from fastgemm.bench.problems import Instance, torch_precision
from torch import Tensor

from .contenders import Contender
from .prepared import Prepared

# Without CUDA graphs, because they copy every operand into the graph's memory, which slows down products of a row.
MODE = "max-autotune-no-cudagraphs"


def _in_precision(instance: Instance, contender: Contender) -> dict[str, Any]:
    """Sets torch's precision for tf32. Otherwise it stays, because it is IEEE float32 already."""
    if contender.precision != "tf32" or instance.device == "cpu":
        return {}
    return {"inside": partial(torch_precision, replace(instance.problem, precision="tf32"))}


def own(contender: Contender, instance: Instance) -> Prepared:
    problem = replace(instance.problem, precision=contender.precision)
    key = tuning.gemm_key(*instance.operands, precision=contender.precision)
    asked = replace(instance, problem=problem, key=key)
    return Prepared(asked.ours(level=contender.level), asked.chosen(contender.level))


def matmul(contender: Contender, instance: Instance) -> Prepared:
    call = instance.torch()
    assert call is not None
    return Prepared(call, contender.product, **_in_precision(instance, contender))


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def compiled(contender: Contender, instance: Instance) -> Prepared:
    """Compiles immediately. Each call returns a new tensor."""
    from torch._inductor import config, select_algorithm

    torch._dynamo.reset()  # otherwise the fourth shape would be compiled with dynamic sizes
    select_algorithm.PRINT_AUTOTUNE = False
    function = torch.compile(_multiply, fullgraph=True, dynamic=False, mode=MODE)
    call = partial(function, *instance.operands)
    with config.patch(max_autotune_gemm_backends="ATEN,TRITON" if instance.device == "cuda" else "ATEN"):
        call()
    return Prepared(call, contender.product)
