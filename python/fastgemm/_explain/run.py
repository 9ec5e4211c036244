"""Runs an operation on the simulator: to explain a kernel, or to try it on a machine without a GPU."""

from __future__ import annotations

import contextlib
import importlib
import operator
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from .. import _errors, ops
from .._gpus import GPU, find_gpu
from .._typing import Op, Precision
from ..bench import presets, problems
from ..bench.problems import Problem as BenchProblem
from ..quantized import quantize_weight
from ..table import KernelInfo, kernels
from .build import build_launches
from .counts import Launch
from .report import Report
from .resources import architecture, resources
from .roofline import roofline

DEFAULT_GPU = "H200"
SYMMETRIC = "symmetric"  # of a product of one operand and its transpose
RANKS = {"gemm": ("M, N, K", 3), "transpose": ("R, C", 2), "add": ("R, C", 2)}
# Blocks of a grid whose accesses are counted, about: enough for edges and the inside.
COUNTED_BLOCKS = 64


_other: ModuleType | None = None  # whose kernels run in place of those of the package


def load_simulator() -> ModuleType:
    """The module that contains the simulated kernels. Raises RuntimeError if it was not built."""
    if _other is not None:
        return _other
    try:
        return importlib.import_module("fastgemm._simt")
    except ModuleNotFoundError as error:
        raise RuntimeError(
            "fastgemm was built without the simulator of its CUDA kernels. In a clone, `make .venv/.installed` "
            "builds the package with it; pip builds it unless FASTGEMM_SIMT=0 is set"
        ) from error


@contextlib.contextmanager
def kernels_of(module: ModuleType) -> Iterator[None]:
    """Lets simulations in all threads run the kernels of another module, built like ``fastgemm._simt``."""
    global _other
    outer, running = _other, load_simulator()
    _other = module
    module.install()
    try:
        yield
    finally:
        _other = outer
        running.install()


def _facts(gpu: GPU) -> dict[str, int]:
    """The properties of a GPU that the simulator uses."""
    return {"multiprocessors": gpu.multiprocessors, "capability": int(gpu.capability.replace(".", ""))}


@contextlib.contextmanager
def simulate(gpu: str | None = None) -> Iterator[None]:
    """Runs the CUDA kernels on CPU tensors, on a simulated GPU with all checks.

    Inside ``with fastgemm.simulate():`` the ops of this package treat CPU tensors as on device ``"cuda"``:
    ``level`` and ``kernel`` name the rows of that device. A race, an access out of bounds, a read of unwritten
    memory, a barrier that not all threads reach or a missing wait raises RuntimeError with the source line. The
    simulation is active in the calling thread and cannot be nested. A backward pass through such a product must
    also run inside it. A product of 256^3 takes about a second and the time grows with M N K.

    Args:
        gpu: the GPU for which a level picks its kernel, with its number of multiprocessors; ``None`` is an H200
            with a few multiprocessors, so that persistent blocks compute several tiles of small problems.

    Raises:
        ValueError: unknown ``gpu``.
        RuntimeError: nested, left in another thread, or the package was built without the simulator.
    """
    options = _facts(find_gpu(DEFAULT_GPU if gpu is None else gpu, "fastgemm.simulate"))
    if gpu is None:
        options["multiprocessors"] = 3
    simulator = load_simulator()
    simulator.begin(count=False, raise_problems=True, max_blocks=0, **options)
    thread = threading.current_thread()
    try:
        yield
    finally:
        if threading.current_thread() is not thread:
            raise RuntimeError(
                f"fastgemm.simulate: left in thread {threading.current_thread().name!r}, but entered in "
                f"{thread.name!r}, which goes on simulating: leave it in the thread that entered it"
            )
        simulator.end()


def _problem(op: str, shape: tuple[int, ...], dtype: torch.dtype, layout: str) -> BenchProblem:
    if op not in RANKS:
        raise ValueError(f"fastgemm.explain: op must be 'gemm', 'transpose' or 'add', got {op!r}")
    names, rank = RANKS[op]
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        sizes = ()
    if len(sizes) != rank or min(sizes) < 1:
        raise ValueError(
            f"fastgemm.explain: the shape of {op} is {rank} positive sizes ({names}), got {shape!r}"
        )
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"fastgemm.explain: dtype must be a torch.dtype, got {type(dtype).__name__}")
    return presets.from_shape(op, sizes, dtype, layout)


def _random(*shape: int, dtype: torch.dtype) -> Tensor:
    if dtype in problems.MOVABLE.values():
        return problems.random_matrix(*shape, dtype=dtype)
    if dtype is torch.bool:
        return torch.randint(2, shape).bool()
    rows, cols = shape  # any other type is only moved, so random bytes will do
    return torch.randint(256, (rows, cols * dtype.itemsize), dtype=torch.uint8).view(dtype)


def _takes_packed_weights_only(kernel: str | None) -> bool:
    return any(row.name == kernel and "none" not in row.codes for row in kernels("gemm", "cuda"))


def _call(problem: BenchProblem, choice: dict[str, Any], weight: str | None) -> Callable[[], Tensor]:
    """The public operation on fresh random operands."""
    dtype = problem.dtype
    if not isinstance(problem, problems.Gemm):
        operands = [_random(*problem.shape, dtype=dtype) for _ in range(2 if problem.op == "add" else 1)]
        return lambda: getattr(ops, problem.op)(*operands, **choice)
    trans_a, trans_b = (mark == "T" for mark in problem.layout)
    m, n, k = problem.m, problem.n, problem.k
    a = _random(*((k, m) if trans_a else (m, k)), dtype=dtype)
    if weight is not None:
        packed = quantize_weight(_random(n, k, dtype=dtype), weight)
        return lambda: ops.matmul(a.mT if trans_a else a, packed.mT, **choice)
    if choice.get("kernel") == SYMMETRIC:
        if m != n:
            raise ValueError(
                f"fastgemm.explain: kernel 'symmetric' is for square results, got M = {m} and N = {n}"
            )
        return lambda: ops.gemm(a, a, trans_a=trans_a, trans_b=not trans_a, **choice)
    b = _random(*((n, k) if trans_b else (k, n)), dtype=dtype)
    return lambda: ops.gemm(a, b, trans_a=trans_a, trans_b=trans_b, **choice)


def _row(op: Op, kernel: str | None, found: list[dict[str, Any]]) -> KernelInfo | None:
    """The row of the table that ran: ``kernel`` if one is named, otherwise the first row whose launcher ran.

    A named row may have other rows compute its product. Launches may include helper kernels with other names, also
    before those of the row.
    """
    rows = {row.name: row for row in kernels(op, "cuda")}
    ran = [kernel] if kernel else [launch["row"] for launch in found]
    return next((rows[name] for name in ran if name in rows), None)


def _notes(launches: tuple[Launch, ...], row: KernelInfo | None, gpu: GPU) -> Iterator[str]:
    for launch in launches:
        if launch.sampled:
            counted = f"{launch.blocks_counted} of {launch.blocks} blocks"
            yield f"{launch.kernel}: counted in {counted}, then scaled up to the grid"
    if row and row.needs == "sm_90a" and gpu.capability != "9.0":
        yield f"{row.name} needs {row.needs}: an {gpu.name} cannot run it"
    if any(launch.occupancy.registers is None for launch in launches):
        yield "nvcc has not compiled this kernel (tools/check_sass.py): registers are unknown and limit nothing"
    compiled = filter(None, (resources(launch.function, gpu.capability) for launch in launches))
    for other in sorted({each.architecture for each in compiled} - {architecture(gpu.capability)}):
        yield f"registers are those that nvcc allocates for {other}; for an {gpu.name} they can differ"
    yield "accesses are those of the source: where nvcc joins several into one, Nsight Compute counts fewer"


def _count(
    simulator: ModuleType, gpu: GPU, call: Callable[[], Tensor]
) -> tuple[list[dict[str, Any]], str | None]:
    """The simulator's counts of a call, and the error message if a fault of a kernel ended it."""
    simulator.begin(count=True, raise_problems=False, max_blocks=COUNTED_BLOCKS, **_facts(gpu))
    error = None
    try:
        call()
    except RuntimeError as stopped:
        error = stopped
    finally:
        found = simulator.end()
    if error is not None and not any(launch["problems"] for launch in found):
        raise error
    return found, None if error is None else str(error)


def explain(
    op: Op,
    *,
    level: int | None = None,
    kernel: str | None = None,
    shape: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    trans_a: bool = False,
    trans_b: bool = False,
    precision: Precision | None = None,
    weight: str | None = None,
    gpu: str = DEFAULT_GPU,
) -> Report:
    """Counts the memory accesses of a CUDA kernel, by source line, on a simulated GPU.

    The kernel runs on the CPU, on random operands, with every check on; no GPU is needed. In a large grid only
    some blocks are counted; the report says so.

    Args:
        op: ``"gemm"``, ``"transpose"`` or ``"add"``.
        level: a rung of the ladder of device ``"cuda"``.
        kernel: one kernel of ``fastgemm.kernels(op, "cuda")``. Without ``level`` and ``kernel``,
            the kernel that ``level=None`` chooses.
        shape: ``(M, N, K)`` for gemm, ``(R, C)`` for the others.
        dtype: of the operands; for transpose any whose elements have 1, 2, 4, 8 or 16 bytes.
        trans_a: the first operand of gemm is stored transposed, ``(K, M)``.
        trans_b: the second is stored as ``(N, K)``. Kernel ``symmetric`` multiplies the first by its transpose.
        precision: of float32 products, as for :func:`fastgemm.matmul`; ``None`` is ``"ieee"``.
        weight: the second operand of gemm is a weight in this format of :func:`fastgemm.quantize_weight`, such
            as ``"int4"``. ``None`` is ``"int4"`` if ``kernel`` takes packed weights only, else an ordinary
            matrix.
        gpu: the GPU for occupancy and roofline, and for which a level picks its kernel: A100, H100, H200, L40S or
            RTX 4090.

    Returns:
        A :class:`Report`, with what the checks found in ``problems``.

    Raises:
        TypeError: ``dtype`` is no dtype, or that of a complex product or sum.
        ValueError: unknown ``op``, ``gpu``, ``level``, ``kernel`` or ``weight``; a shape of the wrong length.
        RuntimeError: the kernel does not take this problem, or the package was built without the simulator.

    Examples:
        >>> import fastgemm
        >>> shared, padded = (fastgemm.explain("transpose", level=level, shape=(64, 64)) for level in (2, 3))
        >>> [max(site.conflict or 0 for site in report.sites) for report in (shared, padded)]
        [32.0, 1.0]
        >>> print(padded.idea)
        The tile's rows are padded by one element: no bank conflicts.
        >>> print(padded)  # the whole report: every source line with its counters  # doctest: +SKIP
    """
    target = find_gpu(gpu, "fastgemm.explain")
    if op != "gemm" and (trans_a or trans_b):
        raise ValueError(f"fastgemm.explain: trans_a and trans_b belong to gemm, not to {op}")
    for name, value in (("precision", precision), ("weight", weight)):
        if op != "gemm" and value is not None:
            raise ValueError(f"fastgemm.explain: {name} belongs to gemm, not to {op}")
    if op != "transpose" and isinstance(dtype, torch.dtype) and dtype.is_complex:
        raise TypeError(f"fastgemm.explain: {op} of dtype {dtype} is made of one of real numbers: name that")
    if op == "gemm" and weight is None and _takes_packed_weights_only(kernel):
        weight = "int4"
    layout = "".join("T" if each else "N" for each in (trans_a, trans_b or weight is not None))
    problem = _problem(op, shape, dtype, layout)
    simulator = load_simulator()
    asked = {"level": level, "kernel": kernel, "precision": precision}
    choice = {name: value for name, value in asked.items() if value is not None}
    try:
        found, error = _count(simulator, target, _call(problem, choice, weight))
    except (RuntimeError, ValueError, TypeError) as refusal:
        _errors.attribute(refusal, "explain")
        raise
    launches = build_launches(found, simulator.path(), target)
    row = _row(op, kernel, found)
    name = problems.dtype_name(dtype)
    return Report(
        op=op,
        shape=problem.shape,
        dtype=name,
        layout=problem.layout,
        level=row.level if row else level,
        kernel=row.name if row else kernel or "",
        idea=row.summary if row else "",
        gpu=target.name,
        launches=launches,
        roofline=roofline(target, launches, op=op, dtype=name, work=int(problem.work)) if launches else None,
        notes=tuple(_notes(launches, row, target)),
        error=error,
        weight=weight,
    )
