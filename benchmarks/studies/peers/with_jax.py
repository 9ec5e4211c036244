"""Products by JAX's dot algorithms, on torch's data."""

from __future__ import annotations

import os
from functools import cache, partial
from typing import Any

import torch
from fastgemm.bench.problems import Instance
from torch import Tensor

from .contenders import DEFAULT, Contender
from .prepared import NotInstalledError, Prepared


@cache
def _jax() -> Any:
    # By default JAX would allocate three quarters of the GPU's memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax
    except ImportError as error:
        raise NotInstalledError("not installed") from error
    return jax


def version() -> str | None:
    try:
        return _jax().__version__
    except NotInstalledError:
        return None


def _stored(x: Tensor, contracted: int) -> tuple[Tensor, int]:
    """The matrix or its transpose, whichever is row-major, and the dimension to sum over."""
    return (x, contracted) if x.stride(1) == 1 else (x.mT, 1 - contracted)


def product(contender: Contender, instance: Instance) -> Prepared:
    """JAX uses its own stream, and each call returns a new result."""
    jax = _jax()
    if instance.device == "cuda" and jax.default_backend() != "gpu":
        raise RuntimeError("JAX sees no GPU")
    algorithm = None if contender.asked == DEFAULT else jax.lax.DotAlgorithmPreset[contender.asked]
    (a, of_a), (b, of_b) = _stored(instance.operands[0], 1), _stored(instance.operands[1], 0)
    a, b = jax.dlpack.from_dlpack(a), jax.dlpack.from_dlpack(b)
    dot = partial(
        jax.lax.dot_general,
        dimension_numbers=(((of_a,), (of_b,)), ((), ())),
        precision=algorithm,
        preferred_element_type=a.dtype,
    )
    function = jax.jit(dot)

    def finish(result: Any) -> None:
        if result is not None:
            result.block_until_ready()
        elif torch.cuda.is_available():
            torch.cuda.synchronize()

    return Prepared(
        partial(function, a, b),
        contender.product,
        finish=finish,
        as_tensor=torch.from_dlpack,
        on_stream=instance.device == "cpu",
    )
