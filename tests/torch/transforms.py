"""Pairs of fastgemm's and torch's functions, and nested transforms of torch.func."""

from collections.abc import Callable
from typing import Any

import fastgemm
import torch
from torch import Tensor, func

Function = Callable[..., Any]

# (fastgemm's function, torch's, shapes of the arguments)
FUNCTIONS: dict[str, tuple[Function, Function, tuple[tuple[int, ...], ...]]] = {
    "matmul": (fastgemm.matmul, torch.matmul, ((3, 4), (4, 2))),
    "batches and vectors": (
        lambda a, b, v: fastgemm.matmul(fastgemm.matmul(a, b), v),
        lambda a, b, v: torch.matmul(torch.matmul(a, b), v),
        ((2, 3, 4), (4, 2), (2,)),
    ),
    "gemm": (
        lambda a, b, c: fastgemm.gemm(a, b, c, alpha=2, beta=-0.5, level=5),
        lambda a, b, c: 2 * a @ b - 0.5 * c,
        ((3, 4), (4, 2), (2,)),
    ),
    "gemm of transposes": (
        lambda a, b, c: fastgemm.gemm(a, b, c, trans_a=True, trans_b=True),
        lambda a, b, c: a.mT @ b.mT + c,
        ((4, 3), (2, 4), (3, 2)),
    ),
    "transpose": (fastgemm.transpose, lambda a: a.mT, ((3, 4),)),
    "add": (lambda a, b: fastgemm.add(a, b, alpha=3), lambda a, b: a + 3 * b, ((3, 4), (4,))),
    "add_": (
        lambda a, b: fastgemm.add_(a.clone(), b, alpha=3),
        lambda a, b: a + 3 * b,
        ((3, 4), (4,)),
    ),
}


def squares(function: Function) -> Function:
    """A scalar with nonzero second derivatives."""
    return lambda *x: function(*x).sin().square().sum()


def tangent_of(function: Function) -> Function:
    """The tangent of a function in a direction that depends on the arguments."""
    return lambda *x: func.jvp(function, x, tuple(t.cos() for t in x))[1]


def every(x: tuple[Tensor, ...]) -> tuple[int, ...]:
    return tuple(range(len(x)))


TRANSFORMS: dict[str, Callable[[Function], Function]] = {
    "grad": lambda f: lambda *x: func.grad(squares(f), every(x))(*x),
    "vjp": lambda f: lambda *x: (lambda y, pull: pull(y.cos()))(*func.vjp(f, *x)),
    "jvp": lambda f: lambda *x: func.jvp(f, x, tuple(t.cos() for t in x)),
    "jvp of one": lambda f: lambda *x: func.jvp(lambda t: f(*x[:-1], t), (x[-1],), (x[-1].cos(),)),
    "jacrev": lambda f: lambda *x: func.jacrev(f, every(x))(*x),
    "jacfwd": lambda f: lambda *x: func.jacfwd(f)(*x),
    "hessian": lambda f: lambda *x: func.hessian(squares(f))(*x),
    "grad of grad": lambda f: lambda *x: func.grad(squares(func.grad(squares(f))))(*x),
    "third derivative": lambda f: (
        lambda *x: func.grad(squares(func.grad(squares(func.grad(squares(f))))))(*x)
    ),
    "vmap": lambda f: lambda *x: func.vmap(f)(*more(x)),
    "vmap of grad": lambda f: lambda *x: func.vmap(func.grad(squares(f), every(x)))(*more(x)),
    "vmap of jvp": lambda f: lambda *x: func.vmap(lambda *y: func.jvp(f, y, y)[1])(*more(x)),
    "jvp of jvp": lambda f: lambda *x: func.jvp(tangent_of(f), x, tuple(t.sin() for t in x)),
    "jvp of jvp of jvp": lambda f: (
        lambda *x: func.jvp(tangent_of(tangent_of(f)), x, tuple(t.sin() for t in x))
    ),
    "jacfwd of jacfwd": lambda f: lambda *x: func.jacfwd(func.jacfwd(squares(f)), len(x) - 1)(*x),
    "grad of jvp of jvp": lambda f: lambda *x: func.grad(squares(tangent_of(tangent_of(f))), every(x))(*x),
    "jvp of grad of jvp": lambda f: (
        lambda *x: func.jvp(func.grad(squares(tangent_of(f)), every(x)), x, tuple(t.sin() for t in x))
    ),
    "vmap of jvp of jvp": lambda f: lambda *x: func.vmap(tangent_of(tangent_of(f)))(*more(x)),
    "jvp of vmap of jvp": lambda f: lambda *x: func.jvp(func.vmap(tangent_of(f)), more(x), more(x)),
    "vmap of jacfwd": lambda f: lambda *x: func.vmap(func.jacfwd(f))(*more(x)),
    "vmap of jacrev of grad": lambda f: lambda *x: func.vmap(func.jacrev(func.grad(squares(f))))(*more(x)),
    "grad of vmap": lambda f: lambda *x: func.grad(squares(func.vmap(f)), every(x))(*more(x)),
    "jvp of vmap": lambda f: lambda *x: func.jvp(func.vmap(f), more(x), more(x)),
    "vmap of vmap": lambda f: lambda *x: func.vmap(func.vmap(f))(*more(more(x))),
    "vmap of grad of vmap": (
        lambda f: lambda *x: func.vmap(func.grad(squares(func.vmap(f)), every(x)))(*more(more(x)))
    ),
}


def more(x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A batch of three of each argument."""
    return tuple(torch.stack([t, 2 * t, t.cos()]) for t in x)
