"""Defines which results are right.

References are computed on the CPU in float64; for integers they are exact, modulo the range of the result. A
floating-point result is right if every component obeys

    |result - reference| <= (2 u (sqrt(K) + 3) + 2 u_in min(1, 16 / sqrt(K))) (|alpha| |A| |B| + |beta| |C|)
                            + u_out |reference|

where u is the unit roundoff of the accumulator. u_in is 2**-11 if float32 operands are rounded to tf32, else
0. The last term is present if the result is rounded to a narrower type. The error of a sum of K terms, in any
order, is at most K u. But rounding errors are nearly random, so right kernels need only a few times sqrt(K)
u, and wrong kernels exceed it. The rounding errors of operands are random, too, from product to product,
hence the factor 16 / sqrt(K). Without it, one missing term of 20 000 would not be noticed. A NaN or an
infinity is wrong unless the reference has one at the same place.
"""

import contextlib
import itertools
import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import fastgemm
import pytest
import torch
from fastgemm._explain.run import load_simulator
from torch import Tensor

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.int32, torch.int64, torch.uint8, torch.int16)
DTYPES = FLOATS + INTEGERS

UNIT_ROUNDOFF = {torch.float64: 2**-53, torch.float32: 2**-24, torch.float16: 2**-11, torch.bfloat16: 2**-8}
SENTINEL = 0x5A
# The error of one product of float32 operands, relative to |a| |b|, beyond a single rounding. tf32 keeps 11
# bits of each operand. The planes of bf16x3 and fp16x3 do not hold all of a and b, and the product of the
# last planes is omitted.
OPERAND_ROUNDING = {"tf32": 2 * 2**-11, "bf16x3": 3 * 2**-16, "fp16x3": 3 * 2**-22}


def accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def result_dtype(dtype: torch.dtype) -> torch.dtype:
    """The default result dtype for operands of this dtype."""
    return torch.int32 if dtype in (torch.int8, torch.uint8, torch.int16) else dtype


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def devices() -> list[str]:
    """The devices for tests over the kernel table: ``cpu``, and ``cuda`` if a kernel can use it."""
    usable = torch.cuda.is_available() and any(row.available for row in fastgemm.kernels(device="cuda"))
    return ["cpu", "cuda"] if usable else ["cpu"]


DEVICES = devices()
LIBRARY_LEVEL = 7
LEVEL = {(row.op, row.device, row.name): row.level for row in fastgemm.kernels()}

# If a build lacks the simulator by accident, these tests fail. If it was built without on purpose, they are
# skipped.
needs_simulator = pytest.mark.skipif(
    os.environ.get("FASTGEMM_SIMT") == "0", reason="built with FASTGEMM_SIMT=0"
)


@contextlib.contextmanager
def simulated_launches(
    multiprocessors: int = 3, capability: int = 90, count: bool = False
) -> Iterator[list[dict]]:
    """Like ``fastgemm.simulate()``. Afterwards the list holds the last launch, or with ``count`` all launches with
    their counters."""
    simulator = load_simulator()
    simulator.begin(
        count=count,
        raise_problems=True,
        multiprocessors=multiprocessors,
        max_blocks=0,
        capability=capability,
    )
    launches: list[dict] = []
    try:
        yield launches
    finally:
        launches += simulator.end()


# The test runs once per device and makes its tensors there (conftest.py).
every_device = pytest.mark.parametrize("device", DEVICES)


def rows(op: str, *only: str) -> list[tuple[str, str, torch.dtype]]:
    """(device, kernel, dtype) for every row of the table that can run here, for arithmetic dtypes."""
    return [
        (device, row.name, dtype)
        for device in only or DEVICES
        for row in fastgemm.kernels(op, device)
        for dtype in DTYPES
        if row.available and row.takes(dtype) and row.role != "shortcut"  # test_symmetric.py
    ]


LIBRARIES = ("torch", "cublas", "cublaslt")
# One dtype for each element size.
TRANSPOSED = (torch.int8, torch.bfloat16, torch.float32, torch.float64, torch.complex128)


def simulated_rows(op: str) -> list[tuple[str, torch.dtype]]:
    """(kernel, dtype) of every CUDA row that is a kernel of this project, with or without a GPU."""
    return [
        (row.name, dtype)
        for row in fastgemm.kernels(op, "cuda")
        if not row.name.startswith(LIBRARIES) and row.role != "shortcut"
        for dtype in (TRANSPOSED if op == "transpose" else DTYPES)
        if row.takes(dtype)
    ]


PRECISION = {row.name: row.precision for row in fastgemm.kernels("gemm", "cuda")}


def by_name(kernel: str, dtype: torch.dtype) -> dict[str, object]:
    """The arguments that choose a GEMM row: its name, and what else it needs. Some rows take float32 only
    with a given precision, and int16 only with a given result dtype."""
    precision = PRECISION.get(kernel, "ieee")
    if dtype == torch.int16:
        return {"kernel": kernel, "out_dtype": torch.int32}
    return {"kernel": kernel} | (
        {} if dtype != torch.float32 or precision == "ieee" else {"precision": precision}
    )


def levels(op: str, device: str) -> list[int]:
    """The levels that can run here with any dtype, at torch's default precision.

    Level 7 uses other kernels for what its libraries do not take.
    """
    taken: dict[int, set[torch.dtype]] = {}
    for row in fastgemm.kernels(op, device):
        if row.available and row.role == "rung":
            exact = [dtype for dtype in DTYPES if dtype != torch.float32 or row.precision == "ieee"]
            dtypes = {dtype for dtype in exact if row.takes(dtype)}
            taken[row.level] = taken.get(row.level, set()) | dtypes
    every = set().union(*taken.values())
    return sorted(level for level, dtypes in taken.items() if dtypes == every or level == LIBRARY_LEVEL)


def is_library(op: str, device: str, kernel: str) -> bool:
    """Whether a row is a vendor library or torch. These need not take every problem."""
    return LEVEL[op, device, kernel] == LIBRARY_LEVEL


@contextlib.contextmanager
def refusal_allowed(op: str, device: str, kernel: object) -> Iterator[None]:
    """Suppresses the error if a library on a GPU refuses the problem (for example int8 with odd
    sizes), or if k is too small for bf16x6 (crt passes float32 tiles to it)."""
    try:
        yield
    except RuntimeError as refusal:
        said = f"kernel '{kernel}' cannot run here: " in str(refusal)
        short = kernel in ("bf16x6", "crt") and "k is below 80" in str(refusal)
        if device == "cpu" or not said or not (short or is_library(op, device, str(kernel))):
            raise


def row_id(value: object) -> str | None:
    return name_of(value) if isinstance(value, torch.dtype) else None


def kernels_that_ran(call: Callable[[], object], op: str = "gemm") -> list[str]:
    """The names of the kernels that calls of ``op`` inside of ``call`` ran, from torch's profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    found = [re.fullmatch(rf"fastgemm\.{op}\[(\w+)\]", event.name) for event in profile.events()]
    return [match[1] for match in found if match]


def random_tensor(*shape: int, dtype: torch.dtype) -> Tensor:
    """Normal numbers, or integers over the whole range of the type."""
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=torch.float64).to(dtype)
    return torch.randint(256, (*shape, dtype.itemsize), dtype=torch.uint8).view(dtype).squeeze(-1)


def poisoned(*shape: int, dtype: torch.dtype) -> Tensor:
    """A tensor of NaN or of a fixed number, so that unwritten elements are recognized."""
    if dtype.is_floating_point:
        return torch.full(shape, math.nan, dtype=dtype)
    return torch.full(shape, SENTINEL, dtype=dtype)


def is_symmetric(x: Tensor, of: Tensor | None = None) -> bool:
    """Whether x is symmetric bit for bit, including NaN; for complex numbers 0 equals -0."""
    other = (x.mT if of is None else of).contiguous()
    if x.is_complex():
        return torch.equal(x, other)
    return torch.equal(x.contiguous().view(torch.uint8), other.view(torch.uint8))


def wrapped(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Converts int64 to a narrower integer type, modulo its range."""
    bits = 8 * dtype.itemsize
    if bits == 64:
        return x
    x = x % 2**bits
    return torch.where(x > torch.iinfo(dtype).max, x - 2**bits, x).to(dtype)


def integer_product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b modulo 2**64, as int64. It is computed from float64 products of 16-bit digits, which are exact up
    to K = 2**20, and summed in torch's int64, which wraps."""
    assert a.shape[-1] <= 2**20
    digits = max(1, a.itemsize // 2, b.itemsize // 2)

    def split(x: Tensor) -> list[Tensor]:
        x = x.long()
        parts = [x >> 16 * i for i in range(digits)]
        return [*((part & 0xFFFF).double() for part in parts[:-1]), parts[-1].double()]

    product = torch.zeros((), dtype=torch.int64, device=a.device)
    for (i, x), (j, y) in itertools.product(enumerate(split(a)), enumerate(split(b))):
        if i + j < 4:
            product = product + ((x @ y).long() << 16 * (i + j))
    return product


@dataclass
class Expected:
    value: Tensor  # float64, or exact integers
    scale: Tensor | None  # |alpha| |A| |B| + |beta| |C|; None for integers
    k: int
    dtype: torch.dtype  # of the result
    accumulator: torch.dtype
    flushes: bool = False  # bfloat16 operands: subnormal sums may be 0
    precision: str = "ieee"  # for float32 operands

    def bound(self) -> Tensor:
        u = UNIT_ROUNDOFF[self.accumulator]
        rounding = OPERAND_ROUNDING.get(self.precision, 0)
        in_sum = rounding * min(1, 16 / math.sqrt(max(self.k, 1)))
        bound = (2 * u * (math.sqrt(self.k) + 3) + in_sum) * self.scale
        if self.dtype != self.accumulator:
            bound = bound + UNIT_ROUNDOFF[self.dtype] * self.value.abs()
        smallest = torch.finfo(self.dtype).smallest_normal * UNIT_ROUNDOFF[self.dtype]
        # vdpbf16ps and the AMX unit flush subnormal sums to zero. tf32 has fewer subnormal numbers.
        lost = 1 if self.flushes else max(u, rounding)
        underflow = torch.finfo(self.accumulator).smallest_normal * lost
        return bound + smallest + (self.k + 1) * underflow


def expected_gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1,
    beta: float | None = None,
    out_dtype: torch.dtype | None = None,
    precision: object = None,
) -> Expected:
    """alpha * a @ b + beta * c, for operands that are already transposed."""
    beta = beta if beta is not None else (0 if c is None else 1)
    a, b, c = a.cpu(), b.cpu(), None if c is None else c.cpu()
    dtype = out_dtype or result_dtype(a.dtype)
    k = a.shape[-1]
    if not a.dtype.is_floating_point:
        value = integer_product(a, b) * int(alpha)
        if beta:
            value = value + int(beta) * c.long()
        return Expected(wrapped(value, dtype), None, k, dtype, dtype)
    flushes = a.dtype == torch.bfloat16
    a, b = a.double(), b.double()
    if alpha == 0:  # as in BLAS, the operands are not read
        a, b = torch.zeros_like(a), torch.zeros_like(b)
    value, scale = alpha * (a @ b), abs(alpha) * (a.abs() @ b.abs())
    if beta:
        value, scale = value + beta * c.double(), scale + abs(beta) * c.double().abs()
    return Expected(value, scale, k, dtype, accumulator(dtype), flushes, str(precision))


def _where(wrong: Tensor, result: Tensor, value: Tensor) -> str:
    at = tuple(wrong.nonzero()[0].tolist())
    return (
        f"{int(wrong.sum())} of {wrong.numel()} elements wrong in {tuple(result.shape)} {result.dtype}, "
        f"first at {at}: got {result[at].item()!r}, expected {value[at].item()!r}"
    )


def assert_right(result: Tensor, expected: Expected, what: str = "") -> None:
    """Raises AssertionError that names the first wrong element."""
    value, result = expected.value, result.cpu()
    assert result.dtype == expected.dtype, f"{what}: dtype {result.dtype}, expected {expected.dtype}"
    assert result.shape == value.shape, f"{what}: shape {tuple(result.shape)}, expected {tuple(value.shape)}"
    if not result.dtype.is_floating_point:
        wrong = result != value
        assert not wrong.any(), f"{what}: {_where(wrong, result, value)}"
        return
    got, bound = result.double(), expected.bound()
    right = (got - value).abs() <= bound
    # If the exact value (almost) exceeds the type's range, infinity is the right rounding.
    largest = torch.finfo(result.dtype).max
    right |= got.isinf() & (got.sign() == value.sign()) & (value.abs() + bound >= largest)
    special = ~value.isfinite()
    right = torch.where(special, (got == value) | (got.isnan() & value.isnan()), right)
    if not right.all():
        finite = ~special & got.isfinite()
        excess = ((got - value).abs() / bound)[finite]
        worst = f"; largest error {excess.max().item():.3g} of the bound" if excess.numel() else ""
        raise AssertionError(f"{what}: {_where(~right, result, value)}{worst}")


def check_gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1,
    beta: float | None = None,
    trans_a: bool = False,
    trans_b: bool = False,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    **choice: object,
) -> Tensor | None:
    """Runs fastgemm.gemm with poisoned memory for the result, and checks every element. ``choice``: level=,
    kernel=, precision=. A named kernel gets its own precision.

    Returns the result, or None if a library on a GPU refused the problem.
    """
    op_a, op_b = (a.mT if trans_a else a), (b.mT if trans_b else b)
    if "kernel" in choice:
        choice = by_name(str(choice["kernel"]), a.dtype) | choice
    asked = choice.pop("out_dtype", torch.int32 if a.dtype == b.dtype == torch.int16 else None)
    out_dtype = out_dtype or asked
    rounding = {"out_dtype": out_dtype, "precision": choice.get("precision")}
    expected = expected_gemm(op_a, op_b, c, alpha=alpha, beta=beta, **rounding)
    if out is None:
        out = poisoned(*expected.value.shape, dtype=expected.dtype).to(a.device)
    shown = (
        f"{choice} {tuple(op_a.shape)}/{op_a.stride()} @ {tuple(op_b.shape)}/{op_b.stride()} {alpha=} {beta=}"
    )
    options = {"alpha": alpha, "beta": beta, "trans_a": trans_a, "trans_b": trans_b, "out_dtype": out_dtype}
    with refusal_allowed("gemm", a.device.type, choice.get("kernel")):
        returned = fastgemm.gemm(a, b, c, out=out, **options, **choice)
        assert returned is out
        assert_right(out, expected, shown)
        return out
    return None


def exact_product(a: Tensor, b: Tensor) -> Tensor:
    return a.cpu().double() @ b.cpu().double()


def largest_relative_error(result: Tensor, exact: Tensor) -> float:
    return ((result.cpu().double() - exact).abs() / exact.abs()).max().item()


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
