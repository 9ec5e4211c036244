"""Measures which kernel is the fastest for a problem, and stores it on disk.

A call chooses by data in memory: the static tables of the build, and the measurements of this module. It measures
nothing unless tune=True asks for that (_drop_in/first_calls.py).

:mod:`._choice.autotuned` reads and writes the file."""

from __future__ import annotations

import contextlib
import math
import operator
import statistics
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch._subclasses.fake_tensor import FakeTensor

from . import _errors, _introspect
from ._choice import autotuned, cpu_predictions
from ._choice.autotuned import environment
from ._choice.autotuned import remember as _remember
from ._choice.autotuned import save as _save
from ._choice.clocks import check_seconds, first_runs, gpu_clock, time_all, wall_clock
from ._choice.cpu_predictions import Key
from ._ops.torch_flags import torch_fp32_precision
from ._typing import Precision
from .table import WIDTH_NAMES, kernels, multiplies

__all__ = ["Timing", "Tuned", "autotune", "cache_file", "clear_cache", "limit_workspace"]


def __dir__() -> list[str]:
    return __all__


def cache_file() -> Path:
    """Where measurements are kept: FASTGEMM_CACHE_DIR, else the user's cache folder."""
    return autotuned.file()


def clear_cache(*, disk: bool = False) -> None:
    """Forgets the measurements of this process, and with ``disk`` also the file."""
    _introspect.forget_all()
    _introspect.reset_cpu_costs()
    cpu_predictions.load()  # results of fastgemm.tune stay
    if disk:
        with contextlib.suppress(NotADirectoryError):  # a folder below a file holds nothing
            cache_file().unlink(missing_ok=True)


def limit_workspace(size: int | None) -> None:
    """Limits the scratch memory of each product in this process, from now on.

    ``level=None`` and ``level=7`` then take kernels that need less, as they do when the device has too little
    memory. Any other level, and a kernel by name, raises ``torch.OutOfMemoryError``.

    Args:
        size: bytes that a call may use besides its operands and its result; ``None``: what is free.

    Raises:
        TypeError: a size that is no int.
        ValueError: a negative size, or one of more than 63 bits.
    """
    if size is not None and (isinstance(size, bool) or not hasattr(size, "__index__")):
        raise TypeError(
            f"fastgemm.tuning.limit_workspace: size must be an int or None, got {type(size).__name__}"
        )
    if size is not None and not 0 <= size < 1 << 63:
        raise ValueError(
            f"fastgemm.tuning.limit_workspace: size must be at least 0 bytes or None, and below 2**63, got {size}"
        )
    _introspect.set_workspace_limit(None if size is None else operator.index(size))


@dataclass(frozen=True)
class Timing:
    """One kernel's time on a problem: the median over ``runs`` calls, in seconds.

    A kernel that was stopped on a CPU, because it was ten times as slow as the fastest, has infinity and 0 runs.
    """

    kernel: str
    level: int
    seconds: float
    runs: int


@dataclass(frozen=True)
class Tuned:
    """The result of :func:`autotune`: the fastest kernel, and all timings, the fastest first."""

    kernel: str
    timings: tuple[Timing, ...]


def _layout(x: Tensor) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return x.data_ptr(), tuple(x.shape), x.stride()


def _where(x: Tensor) -> tuple[str, int]:
    """The device as the kernel tables call it, and the number of threads; 0 on a GPU."""
    return ("cuda", 0) if x.is_cuda else ("cpu", torch.get_num_threads())


def gemm_key(
    a: Tensor,
    b: Tensor,
    out_dtype: torch.dtype | None = None,
    precision: str | None = None,
    *,
    accumulates: bool = False,
) -> Key:
    """The tuning key of ``matmul(a, b)``, as the op library sees its operands: a batch of them may be one product.

    ``accumulates``: the product is scaled, or a matrix is added to it.
    """
    usual = _errors.result_dtype(a.dtype)
    if precision is None:
        precision = torch_fp32_precision() if a.is_cuda and a.dtype == torch.float32 else "ieee"
    kind: torch.dtype | str | None = _product_on_gpu(a, b, out_dtype)
    if kind is None:
        kind = a.dtype if a.dtype.is_complex else _errors.multiplied_as(a.dtype, b.dtype, out_dtype)
        a, b = (_as_multiplied(x, kind) for x in (a, b))
    types = [*(str(dtype).removeprefix("torch.") for dtype in (kind, out_dtype or usual)), precision]
    return _introspect.gemm_key(*_where(a), _layout(a), _layout(b), types, accumulates)


def _product_on_gpu(a: Tensor, b: Tensor, out_dtype: torch.dtype | None) -> str | None:
    """The type of a product that GPUs compute without widening its operands to one type."""
    return _errors.product_type(a.dtype, b.dtype, out_dtype) if a.is_cuda and not a.dtype.is_complex else None


def _as_multiplied(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The operand as the op library passes it to a kernel for ``dtype``: with the same layout."""
    if x.dtype == dtype:
        return x
    return (
        x.view(dtype) if x.dtype == torch.bool and dtype == torch.uint8 else torch.empty_like(x, dtype=dtype)
    )


def transpose_key(a: Tensor) -> Key:
    """The tuning key of ``transpose(a)``."""
    return _introspect.transpose_key(*_where(a), _layout(a), WIDTH_NAMES[a.dtype.itemsize])


def chosen_kernel(key: Key, level: int | None = None) -> str:
    """Name of the kernel that a level picks for a problem. Raises as the call would where none can run."""
    return _introspect.chosen(tuple(key), level or 0)


def _check_problem(op: str, a: Tensor, b: Tensor | None) -> None:
    """Raises if :func:`autotune` has no problem to measure, or cannot measure at present."""
    operands = {"a": a} if b is None else {"a": a, "b": b}
    if any(not isinstance(x, Tensor) for x in operands.values()):
        raise _errors.not_a_tensor(**operands)
    if op not in ("gemm", "transpose") or (op == "gemm") != (b is not None):
        raise ValueError("fastgemm.autotune: takes two operands for op='gemm', one for op='transpose'")
    for name, x in operands.items():
        if x.device.type == "meta" or isinstance(x, FakeTensor):
            raise NotImplementedError(
                f"fastgemm.autotune: {name} has no data (meta or fake): there is nothing to measure"
            )
        if torch._C._dispatch_keys(x).has(torch._C.DispatchKey.Python):
            raise NotImplementedError(
                f"fastgemm.autotune: {name} is a {type(x).__name__}, which computes products by itself: pass the "
                "tensors that it multiplies"
            )
        if x.dim() not in (2, 3):
            raise ValueError(f"fastgemm.autotune: takes 2-D or 3-D operands, got shape {tuple(x.shape)}")
    if a.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("fastgemm.autotune: cannot measure while a CUDA graph is being captured")
    if peek_interpreter_stack() is not None:
        raise RuntimeError("fastgemm.autotune: does not work inside torch.func transforms (vmap, grad, jvp)")
    if torch._C._len_torch_dispatch_stack() or torch._C._is_tracing():
        raise RuntimeError(
            "fastgemm.autotune: cannot measure in a trace or under a TorchDispatchMode (such as FlopCounterMode), "
            "which takes part in every product"
        )
    if _introspect.simulating():
        raise RuntimeError("fastgemm.autotune: cannot measure inside fastgemm.simulate()")


def autotune(
    a: Tensor,
    b: Tensor | None = None,
    *,
    op: Literal["gemm", "transpose"] | None = None,
    out_dtype: torch.dtype | None = None,
    precision: Precision | None = None,
    budget: float = 0.5,
    save: bool = True,
) -> Tuned:
    """Measures every kernel that can run a problem here and makes ``level=None`` use the fastest.

    A kernel whose first run takes ten times as long as the fastest before it, and more than 0.1 s, is not run
    again; a CPU's is stopped.

    Args:
        a: an operand of the problem, with its real shape, strides, dtype and device; 2-D or 3-D.
        b: the second operand of a product; without it, the problem is ``transpose(a)``.
        op: ``"gemm"`` or ``"transpose"``, if it should not follow from ``b``.
        out_dtype: of the result, as for :func:`fastgemm.matmul`.
        precision: of float32 products, as for :func:`fastgemm.matmul`. On a CPU, ``None`` stands for ``"ieee"``.
            If torch's flags allow less precision, ``level=None`` takes torch's product, even if another kernel
            was faster in the measurement.
        budget: seconds to spend on the kernels that are within 3 times of the fastest.
        save: also write the result to the cache file, for later processes.

    Returns:
        The fastest kernel and all timings. The choice holds for problems of exactly this key: dtype, sizes,
        layout and thread count. On a CPU the times also change the choices for products of similar sizes. Under
        ``torch.autocast``, too, ``a`` and ``b`` are multiplied in their own types.

    Raises:
        TypeError: an operand is no tensor, or there is no product of its dtype, or it is complex; ``budget`` is no
            number.
        NotImplementedError: an operand is sparse, nested, quantized, without data (meta, fake) or of a class with
            a ``__torch_dispatch__`` of its own (DTensor, QuantizedWeight), or its device has no kernels.
        ValueError: operands are neither matrices nor batches of matrices, or do not fit together; ``op`` does not
            fit the operands or the other arguments; ``budget`` is negative or NaN; unknown ``precision``.
        RuntimeError: a CUDA graph is being captured, a transform of torch.func, a TorchDispatchMode, a trace or a
            simulation is active, or ``torch.use_deterministic_algorithms(True)`` holds.
    """
    _errors.alert_not_deterministic("autotune")

    op = op or ("gemm" if b is not None else "transpose")
    _check_problem(op, a, b)
    if op == "transpose" and (out_dtype, precision) != (None, None):
        raise ValueError("fastgemm.autotune: takes out_dtype and precision for op='gemm' alone")
    check_seconds("fastgemm.autotune: budget", budget)
    if not budget >= 0:
        raise ValueError(f"fastgemm.autotune: budget must be at least 0 seconds, got {budget}")
    if precision is None and not a.is_cuda:
        precision = "ieee"  # measurements on a CPU are for this precision; torch's flags may ask for less
    # A mode of torch functions would be timed, too, and autocast would change the operands' types, which are
    # part of the key.
    plain = torch.autocast("cuda" if a.is_cuda else "cpu", enabled=False)
    with torch.no_grad(), torch._C.DisableTorchFunction(), plain:
        key, timings = _measure(op, a, b, budget, {"out_dtype": out_dtype, "precision": precision})
    where = environment(a.device)
    measured = {} if a.is_cuda else {t.kernel: float(f"{t.seconds:.4g}") for t in timings if t.runs}
    _remember(key, timings[0].kernel, where, measured)
    if save:
        _save({key: timings[0].kernel}, where, measured)
    return Tuned(timings[0].kernel, timings)


def _measure(
    op: Literal["gemm", "transpose"], a: Tensor, b: Tensor | None, budget: float, options: dict[str, Any]
) -> tuple[Key, tuple[Timing, ...]]:
    """The key of a problem and the times of its kernels, the fastest first. For a problem that the operation
    refuses, raises its error."""
    from .ops import matmul, transpose

    def call(kernel: str | None = None) -> Tensor:
        return transpose(a, kernel=kernel) if b is None else matmul(a, b, kernel=kernel, **options)

    try:
        call()
    except (RuntimeError, ValueError, TypeError) as error:
        _errors.attribute(error, "autotune")
        raise
    if op == "gemm" and a.dtype.is_complex:
        accepted = ", ".join(str(t).removeprefix("torch.") for t in _errors.ARITHMETIC if not t.is_complex)
        raise TypeError(
            f"fastgemm.autotune: measures no complex products, got {a.dtype}; accepted: {accepted}"
        )
    key = transpose_key(a) if b is None else gemm_key(a, b, **options)
    product = None if b is None else _product_on_gpu(a, b, options["out_dtype"])
    with torch.cuda.device(a.device) if a.is_cuda else contextlib.nullcontext():
        rows = [
            row
            for row in kernels(op, a.device, a.dtype)
            if row.role == "rung" and row.available and (product is None or multiplies(row, product))
        ]
        # Kernels that are likely to be fast come first, so that no slow one runs for long.
        chosen = chosen_kernel(key)
        rows.sort(key=lambda row: (row.name == chosen, row.level), reverse=True)
        levels = {row.name: row.level for row in rows}
        calls, times = first_runs({name: partial(call, name) for name in levels}, on_cpu=not a.is_cuda)
        times |= time_all(calls, budget, gpu_clock(a.device) if a.is_cuda else wall_clock)
    timings = (
        Timing(name, levels[name], statistics.median(t) if t else math.inf, len(t))
        for name, t in times.items()
    )
    return key, tuple(sorted(timings, key=lambda t: t.seconds))
