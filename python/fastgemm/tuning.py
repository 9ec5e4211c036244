"""Measures which kernel is the fastest for a problem, and stores it on disk.

A call chooses by data in memory: the static tables of the build, and the measurements of this module. It measures
nothing unless tune=True asks for that (_drop_in/first_calls.py).

The file holds one set of measurements per environment (processor, torch version, kernel table). It is written as a
whole under a lock and renamed into place. If it cannot be read or written, it is ignored with one warning."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch._subclasses.fake_tensor import FakeTensor

from . import _errors, _introspect
from ._choice import cpu_predictions, storage
from ._choice.clocks import first_runs, gpu_clock, time_all, wall_clock
from ._choice.storage import versions
from ._ops.torch_flags import torch_fp32_precision
from ._typing import Precision
from .table import WIDTH_NAMES, KernelInfo, kernels, multiplies

__all__ = ["Timing", "Tuned", "autotune", "cache_file", "clear_cache", "limit_workspace"]
FORMATS = (1, 2, 3)  # read; the last is written
OF_AUTOTUNE = 13  # values in a key of autotune; a key of a first call has one more, and holds for fewer calls
Key = tuple[Any, ...]
Seconds = dict[str, float]  # by kernel


class Known(NamedTuple):
    kernel: str  # the fastest
    seconds: Seconds  # on a CPU, where they correct predictions of products nearby


Sets = dict[str, dict[Key, Known]]  # environment: tuning key


def __dir__() -> list[str]:
    return __all__


def cache_file() -> Path:
    """Where measurements are kept: FASTGEMM_CACHE_DIR, else the user's cache folder."""
    return storage.folder() / storage.AUTOTUNED


def environment(device: torch.device | str = "cpu") -> str:
    """The conditions of a measurement, besides the problem and the thread count, which are part of its key."""
    device = torch.device(device)
    if device.type != "cuda":
        return f"cpu {_introspect.build_info()['cpu_model']}|{versions()}"
    with torch.cuda.device(device):
        return f"gpu {_introspect.gpu()}|{versions()}"


def _read(path: Path) -> Sets:
    """The file's measurements by environment; {} when there is none. Raises OSError or ValueError."""
    with storage.damage("fastgemm autotune file"):
        return {
            _name(where): {_key(key): _known(*entry) for key, *entry in entries}
            for where, entries in storage.read_sets(path, FORMATS).items()
        }


def _key(values: list[Any]) -> Key:
    """A tuning key from JSON. Raises TypeError or ValueError for anything else."""
    key = tuple(values)
    if None in key:
        raise TypeError("a key holds no null")
    # Checks the key, and stores nothing: no kernel has an empty name.
    _introspect.remember(key[:OF_AUTOTUNE], "", "", *key[OF_AUTOTUNE:])
    return key


def _name(value: Any) -> str:
    """A name from JSON, where a string may not be valid text. Raises TypeError or ValueError for anything
    else."""
    if not isinstance(value, str):
        raise TypeError(f"expected a name, got {value!r}")
    value.encode()  # a lone surrogate has no bytes to give to the op library
    return value


def _known(kernel: Any, seconds: Any = None) -> Known:
    """A measurement from JSON. Raises AttributeError, TypeError or ValueError for other data."""
    times = {_name(name): float(spent) for name, spent in (seconds or {}).items()}
    if not all(0 < spent < math.inf for spent in times.values()):
        raise ValueError(f"not measured times: {seconds!r}")
    return Known(_name(kernel), times)


def _remember(key: Key, kernel: str, where: str = "", seconds: Seconds | None = None) -> None:
    device = where.partition("|")[0]
    gpu = device.removeprefix("gpu ") if device.startswith("gpu ") else ""
    _introspect.remember(tuple(key[:OF_AUTOTUNE]), kernel, gpu, *key[OF_AUTOTUNE:])
    if seconds and len(key) == OF_AUTOTUNE:
        cpu_predictions.learn(key, seconds)


def load_cache() -> int:
    """Loads the measurements of these versions from disk; returns how many problems are known.

    It loads those of every GPU, so that an import need not find out which GPU is here: the GPU is part of the key.
    """
    path = cache_file()
    try:
        for where, known in _read(path).items():
            device, _, of = where.partition("|")
            if of == versions() and (device.startswith("gpu ") or where == environment()):
                for key, entry in known.items():
                    _remember(key, entry.kernel, where, entry.seconds)
    except (OSError, ValueError) as error:
        storage.warn(f"ignoring the autotune cache {path}: {error}")
    return _introspect.remembered_count()


def kept(device: torch.device | str = "cpu") -> dict[Key, Known]:
    """The measurements of this device in the file; none if the file cannot be read."""
    try:
        return _read(cache_file()).get(environment(device), {})
    except (OSError, ValueError):
        return {}


def kept_kernel(key: Key, device: torch.device | str = "cpu") -> str | None:
    """The file's kernel for a problem on this device; None if there is none, or if the file cannot be read."""
    known = kept(device).get(tuple(key))
    return known.kernel if known else None


def _save(new: dict[Key, str], where: str | None = None, seconds: Seconds | None = None) -> bool:
    """Merges measurements into the file; else there was a warning."""
    path, where = cache_file(), where or environment()

    def merged(sets: Sets) -> dict[str, list[Any]]:
        known = {key: Known(kernel, seconds or {}) for key, kernel in new.items()}
        sets[where] = {**sets.get(where, {}), **known}
        return {of: [[list(key), *filter(None, e)] for key, e in known.items()] for of, known in sets.items()}

    try:
        storage.change(path, FORMATS[-1], _read, merged)
        return True
    except OSError as error:
        storage.warn(f"cannot write the autotune cache {path}: {error}")
        return False


def clear_cache(*, disk: bool = False) -> None:
    """Forgets the measurements of this process, and with ``disk`` also the file."""
    _introspect.forget_all()
    _introspect.reset_cpu_costs()
    cpu_predictions.load()  # results of fastgemm.tune stay
    if disk:
        cache_file().unlink(missing_ok=True)


def limit_workspace(size: int | None) -> None:
    """Limits the scratch memory of each product in this process, from now on.

    ``level=None`` and ``level=7`` then take kernels that need less, as they do when the device has too little
    memory. Any other level, and a kernel by name, raises ``torch.OutOfMemoryError``.

    Args:
        size: bytes that a call may use besides its operands and its result; ``None``: what is free.

    Raises:
        ValueError: a negative size.
    """
    if size is not None and size < 0:
        raise ValueError(
            f"fastgemm.tuning.limit_workspace: size must be at least 0 bytes or None, got {size}"
        )
    _introspect.set_workspace_limit(size)


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
        if x.dim() not in (2, 3):
            raise ValueError(f"fastgemm.autotune: takes 2-D or 3-D operands, got shape {tuple(x.shape)}")
    if a.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("fastgemm.autotune: cannot measure while a CUDA graph is being captured")
    if peek_interpreter_stack() is not None:
        raise RuntimeError("fastgemm.autotune: does not work inside torch.func transforms (vmap, grad, jvp)")


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
        layout and thread count. On a CPU the times also change the choices for products of similar sizes.

    Raises:
        TypeError: an operand is no tensor, or there is no product of its dtype, or it is complex.
        NotImplementedError: an operand is sparse, nested, quantized or without data (meta, fake), or its device
            has no kernels.
        ValueError: operands are neither matrices nor batches of matrices, or do not fit together; ``op`` does not
            fit the operands or the other arguments; ``budget`` is negative or NaN; unknown ``precision``.
        RuntimeError: a CUDA graph is being captured, a transform of torch.func is active, or
            ``torch.use_deterministic_algorithms(True)`` holds.
    """
    from .ops import matmul, transpose

    _errors.alert_not_deterministic("autotune")

    op = op or ("gemm" if b is not None else "transpose")
    _check_problem(op, a, b)
    if op == "transpose" and (out_dtype, precision) != (None, None):
        raise ValueError("fastgemm.autotune: takes out_dtype and precision for op='gemm' alone")
    if not budget >= 0:
        raise ValueError(f"fastgemm.autotune: budget must be at least 0 seconds, got {budget}")
    if precision is None and not a.is_cuda:
        precision = "ieee"  # measurements on a CPU are for this precision; torch's flags may ask for less
    options: dict[str, Any] = {"out_dtype": out_dtype, "precision": precision}
    try:
        with torch.no_grad():  # a problem that the operation refuses raises its error here
            transpose(a) if b is None else matmul(a, b, **options)
    except (RuntimeError, ValueError, TypeError) as error:
        _errors.attribute(error, "autotune")
        raise
    if op == "gemm" and a.dtype.is_complex:
        accepted = ", ".join(str(t).removeprefix("torch.") for t in _errors.ARITHMETIC if not t.is_complex)
        raise TypeError(
            f"fastgemm.autotune: measures no complex products, got {a.dtype}; accepted: {accepted}"
        )
    if b is not None:
        key = gemm_key(a, b, out_dtype, precision)
        product = _product_on_gpu(a, b, out_dtype)

        def call(row: KernelInfo) -> Callable[[], object]:
            return lambda: matmul(a, b, kernel=row.name, **options)
    else:
        key = transpose_key(a)
        product = None

        def call(row: KernelInfo) -> Callable[[], object]:
            return lambda: transpose(a, kernel=row.name)

    here = torch.cuda.device(a.device) if a.is_cuda else contextlib.nullcontext()
    with torch.no_grad(), here:
        rows = [
            row
            for row in kernels(op, a.device, a.dtype)
            if row.role == "rung" and row.available and (product is None or multiplies(row, product))
        ]
        # Kernels that are likely to be fast come first, so that no slow one runs for long.
        chosen = chosen_kernel(key)
        rows.sort(key=lambda row: (row.name == chosen, row.level), reverse=True)
        candidates = {row.name: row for row in rows}
        calls, times = first_runs({row.name: call(row) for row in rows}, on_cpu=not a.is_cuda)
        times |= time_all(calls, budget, gpu_clock(a.device) if a.is_cuda else wall_clock)
    timings = sorted(
        (
            Timing(name, candidates[name].level, statistics.median(t) if t else math.inf, len(t))
            for name, t in times.items()
        ),
        key=lambda t: t.seconds,
    )
    where = environment(a.device)
    measured = {} if a.is_cuda else {t.kernel: float(f"{t.seconds:.4g}") for t in timings if t.runs}
    _remember(key, timings[0].kernel, where, measured)
    if save:
        _save({key: timings[0].kernel}, where, measured)
    return Tuned(timings[0].kernel, tuple(timings))
