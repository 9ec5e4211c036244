"""Problems to measure: operands, the call of this library, and torch's call with the same result.

A problem is a small value that can be listed, compared and stored; an instance holds its tensors. Both sides
of a comparison write the same preallocated result, so that the allocation of large results is not measured,
unless the instance is made with ``allocate=True``: then each call makes its own result, as most user code does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from .. import ops, tuning
from .._errors import result_dtype
from .._typing import Precision

Call = Callable[[], Tensor]
ARITHMETIC: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in ("float64", "float32", "float16", "bfloat16", "int8", "int32", "int64")
}
MOVABLE = {**ARITHMETIC, "complex128": torch.complex128}
LAYOUTS = ("NN", "NT", "TN", "TT")
TORCH_PRECISIONS = ("ieee", "tf32")  # of float32 products on CUDA


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def random_matrix(*shape: int, dtype: torch.dtype, device: str = "cpu") -> Tensor:
    """Normal numbers; integers over the whole range of the type."""
    if not (dtype.is_floating_point or dtype.is_complex):
        bits = torch.empty((*shape, dtype.itemsize), dtype=torch.uint8, device=device).random_(256)
        return bits.view(dtype).squeeze(-1)
    return torch.randn(*shape, dtype=torch.float32 if dtype.itemsize < 4 else dtype, device=device).to(dtype)


class MemoryLimit(NamedTuple):
    """A call that only moves this many bytes."""

    name: str
    call: Call
    bytes: int


class Library(NamedTuple):
    """A function that replaces torch's product; it writes into the last of its three tensors."""

    name: str
    product: Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Gemm:
    """C (m, n) = A (m, k) @ B (k, n). ``layout`` TN means that A is stored column-major, and so on.

    ``precision`` is that of float32 products; None: what torch is set to. ``library``: a baseline besides
    torch's product.
    """

    op: ClassVar[Literal["gemm"]] = "gemm"

    m: int
    n: int
    k: int
    dtype: torch.dtype = torch.float32
    layout: str = "NN"
    batch: int = 1
    precision: Precision | None = None
    library: Library | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.m, self.n, self.k) if self.batch == 1 else (self.batch, self.m, self.n, self.k)

    @property
    def work(self) -> float:
        """Floating-point (integer) operations."""
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        """Bytes that must move: operands read once, the result written once."""
        out = result_dtype(self.dtype)
        operands = (self.m * self.k + self.k * self.n) * self.dtype.itemsize
        return float(self.batch * (operands + self.m * self.n * out.itemsize))

    @property
    def baseline(self) -> str:
        if self.library:
            return self.library.name
        return "torch._int_mm" if self.dtype == torch.int8 else "torch.matmul"


@dataclass(frozen=True)
class Transpose:
    """A contiguous copy of the transpose of a (rows, cols) matrix."""

    op: ClassVar[Literal["transpose"]] = "transpose"
    layout: ClassVar[str] = "N"
    precision: ClassVar[None] = None

    rows: int
    cols: int
    dtype: torch.dtype = torch.float32
    batch: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows, self.cols) if self.batch == 1 else (self.batch, self.rows, self.cols)

    @property
    def work(self) -> float:
        """Bytes that must move: read once, written once."""
        return 2.0 * self.batch * self.rows * self.cols * self.dtype.itemsize

    @property
    def baseline(self) -> str:
        return "copy_(a.mT)"


@dataclass(frozen=True)
class Add:
    """The elementwise sum of two (rows, cols) matrices."""

    op: ClassVar[Literal["add"]] = "add"
    layout: ClassVar[str] = "N"
    precision: ClassVar[None] = None
    baseline: ClassVar[str] = "torch.add"

    rows: int
    cols: int
    dtype: torch.dtype = torch.float32

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows, self.cols

    @property
    def work(self) -> float:
        """Bytes that must move: two reads, one write."""
        return 3.0 * self.rows * self.cols * self.dtype.itemsize


Problem = Gemm | Transpose | Add


def label(problem: Problem) -> str:
    """``1024x1024x1024``, with the layout unless it is NN."""
    return label_of(problem.shape, problem.layout)


def label_of(shape: tuple[int, ...], layout: str) -> str:
    text = "x".join(map(str, shape))
    return text if layout in ("", "N", "NN") else f"{text} {layout}"


@contextlib.contextmanager
def torch_precision(problem: Problem) -> Iterator[None]:
    """Lets torch compute float32 products in the precision of the problem, if it has one; in IEEE float32 if torch
    has no such precision."""
    matmul = torch.backends.cuda.matmul
    if problem.precision is None:
        yield
        return
    before = matmul.fp32_precision
    matmul.fp32_precision = problem.precision if problem.precision in TORCH_PRECISIONS else "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision = before


def _torch_has_product(problem: Gemm) -> bool:
    """Whether torch has this product on CUDA: not in int32 and int64, and in int8 only where cuBLAS takes it."""
    if problem.dtype in (torch.int32, torch.int64):
        return False
    return problem.dtype != torch.int8 or (problem.m > 16 and problem.n % 8 == 0 and problem.k % 8 == 0)


@dataclass
class Instance:
    """A problem with its tensors. ``in_bytes``: the rate counts the bytes that must move, not
    operations. For transposes and sums it always does."""

    problem: Problem
    operands: tuple[Tensor, ...]
    out: Tensor
    allocate: bool = False
    key: tuple[Any, ...] = field(default=())
    in_bytes: bool = False

    def __post_init__(self) -> None:
        self.in_bytes = self.in_bytes or self.problem.op != "gemm"

    @property
    def device(self) -> str:
        return self.out.device.type

    @property
    def threads(self) -> int:
        """CPU threads that take part; 0 on a GPU."""
        return torch.get_num_threads() if self.device == "cpu" else 0

    @property
    def unit(self) -> tuple[str, float]:
        """The unit of its rate, and the work per second of one unit."""
        if self.in_bytes:
            return "GB/s", 1e9
        if self.device == "cpu":
            return "GFLOPS", 1e9
        return ("TFLOPS" if self.problem.dtype.is_floating_point else "TOPS"), 1e12

    @property
    def work(self) -> float:
        """What the rate counts: operations or bytes."""
        return self.problem.bytes if self.in_bytes and self.problem.op == "gemm" else self.problem.work

    @property
    def baseline(self) -> str | None:
        """Name of torch's call; None if torch has none, as for int32 and int64 products on CUDA."""
        return None if self.torch() is None else self.problem.baseline

    def ours(self, level: int | None = None, kernel: str | None = None) -> Call:
        """The call of this library; both None: the fastest kernel known."""
        functions: dict[str, Callable[..., Tensor]] = {
            "gemm": ops.matmul,
            "transpose": ops.transpose,
            "add": ops.add,
        }
        function = functions[self.problem.op]
        choice: dict[str, Any] = {"level": level, "kernel": kernel, "precision": self.problem.precision}
        choice = {name: value for name, value in choice.items() if value is not None}
        operands, out = self.operands, self.out
        if self.allocate:
            return lambda: function(*operands, **choice)
        return lambda: function(*operands, out=out, **choice)

    def torch(self) -> Call | None:
        """torch's call for the same problem, or the call of its ``library``; None if there is none."""
        operands, out = self.operands, self.out
        if self.device == "cuda" and self.problem.op == "gemm" and not _torch_has_product(self.problem):
            return None
        if self.problem.op == "transpose":
            (a,) = operands
            return (lambda: a.mT.contiguous()) if self.allocate else lambda: out.copy_(a.mT)
        a, b = operands
        if self.problem.op == "add":
            return (lambda: torch.add(a, b)) if self.allocate else lambda: torch.add(a, b, out=out)
        if self.problem.library:
            product = self.problem.library.product
            return lambda: product(a, b, out)
        if self.problem.dtype != torch.int8:
            return (lambda: torch.matmul(a, b)) if self.allocate else lambda: torch.matmul(a, b, out=out)
        if a.dim() == 3:  # torch has no batched product of int8

            def each() -> Tensor:
                for i in range(len(a)):
                    torch._int_mm(a[i], b[i], out=out[i])
                return out

            return each
        return (lambda: torch._int_mm(a, b)) if self.allocate else lambda: torch._int_mm(a, b, out=out)

    def copy(self) -> Call:
        """A plain copy of the largest operand: what memory allows a transpose or an addition."""
        a = self.largest
        out = torch.empty_like(a) if self.problem.op == "gemm" else self.out.view(a.shape)
        return lambda: out.copy_(a)

    def memory_limit(self) -> MemoryLimit:
        """The bound by memory: a plain copy."""
        return MemoryLimit("copy_", self.copy(), 2 * self.largest.nbytes)

    @property
    def largest(self) -> Tensor:
        """The operand of most bytes."""
        return max(self.operands, key=lambda x: x.nbytes)

    def chosen(self, level: int | None = None) -> str:
        """The kernel that a level runs; for None and 7 the fastest known."""
        return tuning.chosen_kernel(self.key, level)


def _operand(batch: int, rows: int, cols: int, dtype: torch.dtype, transposed: bool, device: str) -> Tensor:
    stored = (cols, rows) if transposed else (rows, cols)
    x = random_matrix(*((batch,) if batch > 1 else ()), *stored, dtype=dtype, device=device)
    return x.mT if transposed else x


def instantiate(
    problem: Problem, *, device: str = "cpu", allocate: bool = False, in_bytes: bool = False
) -> Instance:
    """Fresh random operands and room for the result."""
    dtype = problem.dtype
    if isinstance(problem, Gemm):
        a = _operand(problem.batch, problem.m, problem.k, dtype, problem.layout[0] == "T", device)
        b = _operand(problem.batch, problem.k, problem.n, dtype, problem.layout[1] == "T", device)
        out = torch.empty(*a.shape[:-1], problem.n, dtype=result_dtype(dtype), device=device)
        key = tuning.gemm_key(a, b, precision=problem.precision)
        return Instance(problem, (a, b), out, allocate, key, in_bytes)
    a = random_matrix(*problem.shape, dtype=dtype, device=device)
    if isinstance(problem, Transpose):
        out = torch.empty(a.mT.shape, dtype=dtype, device=device)
        return Instance(problem, (a,), out, allocate, tuning.transpose_key(a))
    name, threads = dtype_name(dtype), torch.get_num_threads() if device == "cpu" else 0
    key = ("add", device, name, name, "ieee", False, False, False, threads, 1, problem.rows, problem.cols, 0)
    b = random_matrix(*problem.shape, dtype=dtype, device=device)
    return Instance(problem, (a, b), torch.empty_like(a), allocate, key)
