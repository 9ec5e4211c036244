"""Tests that thousands of calls of each op, also through torch's features, do not leak memory."""

import contextlib
import gc
from collections.abc import Callable

import fastgemm
import pytest
import torch
from memory_meter import CALLS, FEWEST, SETTLED, growth, held, keeps_nothing, libc
from reference import DEVICES

A, B, C, OUT = torch.randn(4, 5), torch.randn(5, 3), torch.randn(4, 3), torch.empty(4, 3)
VECTOR = torch.randn(8)


def refused(call: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        try:
            call()
        except (ValueError, RuntimeError):
            return
        raise AssertionError("expected an error")

    return run


CHEAP = {
    "matmul": lambda: fastgemm.matmul(A, B),
    "gemm, all arguments": lambda: fastgemm.gemm(
        A, B, C, alpha=2.0, beta=0.5, level=5, kernel="microkernel", precision="ieee", out_dtype=torch.float32
    ),
    "gemm, out": lambda: fastgemm.gemm(A, B, C, kernel="naive", out=OUT),
    "transpose": lambda: fastgemm.transpose(A),
    "transpose, level and kernel": lambda: fastgemm.transpose(A, level=4, kernel="simd"),
    "add": lambda: fastgemm.add(VECTOR, VECTOR),
    "add, level": lambda: fastgemm.add(VECTOR, VECTOR, alpha=2.0, level=4),
    "add_": lambda: fastgemm.add_(VECTOR, VECTOR, alpha=0.0),
}
# Exceptions cost 20 us and more each.
DEAR = {
    "strided out": lambda: fastgemm.matmul(A, B, out=torch.empty(8, 6)[::2, ::2]),
    "unknown kernel": refused(lambda: fastgemm.matmul(A, B, level=5, kernel="none", precision="ieee")),
    "wrong precision": refused(lambda: fastgemm.matmul(A, B, precision="low")),
    "inner sizes": refused(lambda: fastgemm.gemm(A, A, C, kernel="naive")),
    "wrong out": refused(lambda: fastgemm.matmul(A, B, kernel="naive", out=VECTOR)),
    "transpose, level 9": refused(lambda: fastgemm.transpose(A, level=9, kernel="simd")),
    "add, level 3": refused(lambda: fastgemm.add(VECTOR, VECTOR, level=3)),
    "level that rejects": refused(lambda: fastgemm.gemm(A.int(), B.int(), alpha=2, kernel="torch")),
}


@pytest.mark.parametrize("name", CHEAP)
def test_calls(name):
    assert growth(CHEAP[name], CALLS // 4) < CALLS // 4  # less than a byte a call


@pytest.mark.parametrize("name", DEAR)
def test_errors(name):
    assert keeps_nothing(DEAR[name], 2 * FEWEST)


class Plain(torch.Tensor):
    pass


SUBCLASS, NEGATED, SQUARES = A.as_subclass(Plain), torch._neg_view(OUT), torch.randn(2, 4, 4)


@contextlib.contextmanager
def everything_on():
    with torch.autocast("cpu", torch.bfloat16), torch.device("cpu"):
        yield


# Through Python: 10 to 100 us a call; a vmap of a gradient takes 1 ms.
BY_TORCH = {
    "autocast and a torch function mode": lambda: fastgemm.matmul(A, B),
    "subclass": lambda: fastgemm.matmul(SUBCLASS, B),
    "lazily negated out": lambda: fastgemm.matmul(A, B, out=NEGATED),
    "vmap of grad": lambda: torch.vmap(torch.func.grad(lambda x: fastgemm.matmul(x, x).sum()))(SQUARES),
    "the op with a formula": lambda: torch.ops.fastgemm.gemm(A, B, alpha=2.0),
}


@pytest.mark.parametrize("name", BY_TORCH)
def test_ways_of_torch(name):
    with everything_on() if "autocast" in name else contextlib.nullcontext():
        assert keeps_nothing(BY_TORCH[name], FEWEST)


def test_compiled():
    @torch.compile(fullgraph=True, backend="aot_eager")
    def compiled(a, b):
        return fastgemm.transpose(fastgemm.matmul(a, b))

    assert keeps_nothing(lambda: compiled(A, B), 2 * FEWEST)


def test_no_tensor_outlives_its_call():
    """Uses torch's own count of live tensors, for every call above."""
    calls = [*CHEAP.values(), *DEAR.values(), *BY_TORCH.values()]

    def alive() -> int:
        gc.collect()
        return sum(isinstance(o, torch.Tensor) for o in gc.get_objects())

    for call in calls:
        call()
    before = alive()
    for call in calls * 20:
        call()
    assert alive() == before


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
def test_memory_of_a_gpu():
    """torch's allocator counts every byte, so a few calls show a leak. The cheapest op is called 100 000 times."""
    a, b = torch.randn(64, 64, device="cuda", requires_grad=True), torch.randn(64, 64, device="cuda")

    def step(level: int | None) -> None:
        fastgemm.add(fastgemm.transpose(fastgemm.matmul(a, b, level=level)), b, level=None).sum().backward()
        a.grad = None

    levels = [None, 1, 2, 3, 4, 5, 6, 7]
    for level in levels:
        step(level)
    before = torch.cuda.memory_allocated()
    for level in levels * 20:
        step(level)
    plain = a.detach()
    for _ in range(CALLS):
        fastgemm.matmul(plain, b)
    assert torch.cuda.memory_allocated() == before


def test_gradients():
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()

    def step() -> None:
        fastgemm.add(fastgemm.transpose(fastgemm.gemm(a, b, C, level=5)), C.t()).sum().backward()
        a.grad = b.grad = None

    assert keeps_nothing(step, FEWEST)


def test_scratch_memory_is_kept_not_piled_up():
    sizes = [64, 300, 128, 511, 200]
    matrices = [torch.randn(n, n) for n in sizes]

    def step() -> None:
        for x in matrices:
            fastgemm.matmul(x, x, level=5)

    for _ in range(3):
        step()
    before = held()
    for _ in range(60):
        step()
    assert held() - before < SETTLED


KEPT = []


@pytest.mark.parametrize(
    "leak",
    [lambda: libc.malloc(1), lambda: KEPT.append(object()), lambda: KEPT.append(torch.empty(0))],
    ids=["one byte", "an object", "an empty tensor"],
)
def test_the_meter_sees_a_leak(leak):
    """Tests the smallest possible leaks, in as few calls as the slowest test makes."""
    assert not keeps_nothing(leak, FEWEST)
    KEPT.clear()
