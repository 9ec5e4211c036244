"""Helpers for the tests of fastgemm.patch and fastgemm.enable."""

import threading
from concurrent.futures import ThreadPoolExecutor

import fastgemm
import pytest
import torch
from fastgemm._drop_in import scope

needs_library = pytest.mark.skipif(
    not fastgemm._override_library.register(), reason="there is no library for this torch"
)
ELSEWHERE = {"cpu": "warp_specialized", "cuda": "microkernel"}  # kernels of the other device
DEEPER_THAN_A_THREAD_GOES = 70  # from 60 nested backward passes on, torch starts another thread
BAD_CHOICES = [  # (arguments, error, message)
    ({"level": 8}, ValueError, "level must be 1 to 7"),
    ({"level": "5"}, TypeError, "level must be an int"),
    ({"level": True}, TypeError, "level must be an int"),
    ({"precision": "fp8"}, ValueError, "precision must be one of"),
    ({"kernel": "nothing"}, ValueError, "no gemm kernel 'nothing'"),
    ({"kernel": "naive", "level": 2}, ValueError, "of level 1, not 2"),
]


def entered() -> int:
    """The number of patches that this thread is in. Without a patch, torch's slot must be empty."""
    depth = scope.depth()
    assert (scope.innermost() is None) == (depth == 0)
    return depth


def kernel_of(level: int, device: str) -> str:
    return next(row.name for row in fastgemm.kernels("gemm", device) if row.level == level)


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def in_a_thread(function):
    """Calls a function in a new thread and returns its result. The thread-local state is destroyed with the
    thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


class Deep(torch.autograd.Function):
    """Runs nested backward passes. The innermost calls ``function``."""

    @staticmethod
    def forward(ctx, x, depth, function):
        ctx.depth, ctx.function = depth, function
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        if ctx.depth == 0:
            return ctx.function(grad, x), None, None
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            Deep.apply(leaf, ctx.depth - 1, ctx.function).backward(grad)
        return leaf.grad, None, None


def backward_in_another_thread(function, x):
    """Calls function(grad, x) in an autograd thread of a backward pass that starts in this thread."""
    threads = []

    def noting(grad, x):
        threads.append(threading.get_ident())
        return function(grad, x)

    Deep.apply(x, DEEPER_THAN_A_THREAD_GOES, noting).backward(torch.ones_like(x))
    assert threads and threading.get_ident() not in threads
