"""Products by residues: times and errors of float64 and float32 compared with torch, rates of int64, and rates of
narrower integers compared with int8."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import fastgemm
import torch
from contests import Contest, Preset, cubes, of_contests, product
from exact import Exact, errors_of
from fastgemm.bench.problems import dtype_name, random_matrix
from torch import Tensor

FP64, FP32 = torch.float64, torch.float32
DISTRIBUTIONS = ("normal", "uniform", "positive", "cancelling", "wide")
DRAWS = 4  # several, because few elements dominate the norm of the errors if magnitudes differ by 2**70
NARROW = (  # types of the operands and of the result
    (torch.int8, torch.int8, None),
    (torch.uint8, torch.uint8, None),
    (torch.uint8, torch.int8, None),
    (torch.int8, torch.uint8, None),
    (torch.int16, torch.int16, torch.int32),
    (torch.int16, torch.int16, None),
)


def operands(distribution: str, m: int, n: int, k: int, device: str) -> list[Tensor]:
    """float64 operands. relu: activations, half of them zeros, times normal weights. wide: over some 70 bits."""
    a, b = (torch.randn(*sizes, dtype=FP64, device=device) for sizes in ((m, k), (k, n)))
    if distribution == "cancelling":  # the second half of k cancels most of the first
        half = k // 2
        a[:, half : 2 * half] = a[:, :half]
        b[half : 2 * half] = -b[:half] * (1 + 2.0**-30 * torch.randn_like(b[:half]))
    if distribution == "relu":
        a.relu_()
    make = {
        "wide": lambda x: x * torch.exp(8 * torch.randn_like(x)),
        "uniform": lambda x: torch.rand_like(x) * 2 - 1,
        "positive": torch.rand_like,
    }.get(distribution, lambda x: x)
    return [make(a), make(b)]


def ways(dtype: torch.dtype, device: str) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The contenders. A CPU has no kernels for residues."""
    found = {"fastgemm": fastgemm.matmul, "torch": torch.matmul}
    if device == "cuda":
        names = ("dmma", "crt") if dtype == FP64 else ("bf16x6", "crt")
        found |= {name: partial(fastgemm.matmul, kernel=name) for name in names}
        if dtype == FP64:
            found["crt14"] = partial(fastgemm.matmul, kernel="crt", precision="crt14")
    return found


def times(device: str, dtype: torch.dtype, distribution: str, shape: tuple[int, int, int]) -> Contest:
    """Measures only times; ``errors`` measures the errors."""
    a, b = (x.to(dtype) for x in operands(distribution, *shape, device))
    return product(a, b, ways(dtype, device), group=distribution, check=lambda name, result: {})


def errors(device: str, dtype: torch.dtype, distribution: str, shape: tuple[int, int, int]) -> Contest:
    drawn = [[x.to(dtype) for x in operands(distribution, *shape, device)] for _ in range(DRAWS)]
    exact, k = [Exact(a, b) for a, b in drawn], shape[-1]
    return Contest(
        {
            name: lambda way=way: torch.stack([way(a, b) for a, b in drawn])
            for name, way in ways(dtype, device).items()
        },
        (k,),
        dtype_name(dtype),
        check=lambda name, results: errors_of(results, exact),
        timed=False,
        about={"group": f"{distribution}, errors", "label": f"K = {k}"},
    )


def int64(device: str, n: int) -> Contest:
    a, b = (random_matrix(n, n, dtype=torch.int64, device=device) for _ in range(2))
    both = {"fastgemm": fastgemm.matmul, "level 5": partial(fastgemm.matmul, level=5)}
    return product(a, b, both, group="int64", baseline="level 5")


def narrow(device: str, n: int) -> Contest:
    contests = {}
    for type_a, type_b, result in NARROW:
        a, b = (random_matrix(n, n, dtype=dtype, device=device) for dtype in (type_a, type_b))
        name = f"{dtype_name(type_a)} x {dtype_name(type_b)} to "
        name += dtype_name(result or fastgemm.matmul(a[:1], b).dtype)
        contests[name] = product(a, b, {name: partial(fastgemm.matmul, out_dtype=result)})
    calls = {name: one.calls[name] for name, one in contests.items()}
    check = lambda name, result: contests[name].check(name, result)  # noqa: E731
    about = {"group": "narrow_integers"}
    return Contest(calls, (n, n, n), "int8", next(iter(calls)), check=check, about=about)


def contest(device: str, make: Callable[..., Contest], *problem: object) -> Contest:
    return make(device, *problem)


OTHERS = [(256, 256, 256), (1000, 1001, 999), (16, 4096, 4096), (4096, 4096, 64), (512, 512, 65536)]
LARGE = cubes(2048, 4096, 8192, 16384)
PROBLEMS = {
    "cuda": [
        *((times, FP64, "normal", shape) for shape in [*cubes(1024), *LARGE, *OTHERS]),
        *((times, FP64, "wide", shape) for shape in LARGE[1:]),
        *((errors, FP64, data, (256, 512, k)) for data in DISTRIBUTIONS for k in (40, 500, 4096, 65536)),
        *((int64, n) for n in (1024, 2048, 4096, 8192)),
        *((narrow, n) for n in (2048, 4096, 8192)),
        *((times, FP32, data, shape) for data in ("normal", "relu", "wide") for shape in LARGE),
        *(
            (errors, FP32, data, (2048, 2048, k))
            for data in (*DISTRIBUTIONS, "relu")
            for k in (100, 500, 4096, 65536)
        ),
    ],
    "cpu": [
        *((times, dtype, "normal", shape) for dtype in (FP64, FP32) for shape in cubes(128)),
        *(
            (errors, dtype, data, (64, 128, 40))
            for dtype in (FP64, FP32)
            for data in (*DISTRIBUTIONS, "relu")
        ),
        (int64, 128),
        (narrow, 128),
    ],
}
PRESETS = {"residues": Preset({"cuda": 28, "cpu": 5}, of_contests("residues", PROBLEMS, contest))}
