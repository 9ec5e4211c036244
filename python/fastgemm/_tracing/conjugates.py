"""Lazily negated and conjugated tensors (``torch._neg_view``, ``conj()``) as arguments of the ops.

Products read conjugated operands in place where csrc/torch/override is loaded. Other arguments are resolved; for
ops that write to an argument, the functions below do this.

torch has a fallback that resolves such arguments. After an op that writes, this fallback reads a result from the
stack of arguments. The ops here return nothing, as torch.compile requires, so it would read memory beyond the
stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._ops.dispatch import FINDS_GRADIENTS
from .._ops.registration import library


def _resolved(x: Any) -> Any:
    return x.resolve_conj().resolve_neg() if isinstance(x, Tensor) else x


def _writes_out(op: torch._ops.OpOverload) -> Callable[..., None]:
    def run(*operands: Any, out: Tensor, **options: Any) -> None:
        target = _resolved(out)  # out itself, or a copy
        op(*map(_resolved, operands), **options, out=target)
        if target is not out:
            out.copy_(target)

    return run


def _writes_first(op: torch._ops.OpOverload) -> Callable[..., None]:
    def run(a: Tensor, b: Tensor, **options: Any) -> None:
        target = _resolved(a)
        op(target, _resolved(b), **options)
        if target is not a:
            a.copy_(target)

    return run


def register() -> None:
    """Registers kernels for such arguments of the ops that write; other calls do not use them."""
    ops = torch.ops.fastgemm
    for name in ("gemm", "_gemm", "_matmul") if FINDS_GRADIENTS else ():  # with the library that sees conj()
        library.impl(name, torch.library.fallthrough_kernel, "Conjugate")
    kernels = {f"{name}.out": _writes_out(getattr(ops, name).out) for name in ("gemm", "transpose", "add")}
    for name, kernel in {**kernels, "add_": _writes_first(ops.add_.default)}.items():
        for key in ("Conjugate", "Negative"):
            library.impl(name, kernel, key)
