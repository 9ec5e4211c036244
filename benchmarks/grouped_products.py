"""Times products of groups of uneven size on a GPU beside torch's grouped_mm.

Tokens are routed as a trained router does it: some experts get many, many get few (a Zipf distribution of fixed
seed). L2 is cold: 256 MB are written before each call. Calls take turns; the times are medians of CUDA events
around one call. ``read`` is the time in which torch's sum would read all bytes that must move. The kernel "gates"
is the product with swiglu in the kernel; compare it with the plain product.

    python benchmarks/grouped_products.py --layer 128x2048x1536 --tokens 1,16,256,4096
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import NamedTuple

import click
import fastgemm
import torch
from torch import Tensor

DEVICE = "cuda"
# (experts, k, n, top): gate and up together.
LAYERS = {
    "128x2048x1536": (128, 2048, 1536, 8),
    "8x4096x28672": (8, 4096, 28672, 2),
    "32x7168x4096": (32, 7168, 4096, 8),
}


def sizes_of(experts: int, tokens: int, top: int) -> list[int]:
    """How many rows each expert gets."""
    generator = torch.Generator().manual_seed(experts + tokens)
    weights = 1.0 / torch.arange(2, experts + 2).double() ** 0.5
    weights = weights[torch.randperm(experts, generator=generator)]
    counts = torch.zeros(experts, dtype=torch.int64)
    for _ in range(tokens):
        chosen = torch.multinomial(weights, top, replacement=False, generator=generator)
        counts[chosen] += 1
    return counts.tolist()


def cold_medians(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Microseconds of each call, which take turns."""
    warmup = 2
    flush = torch.empty(64 << 20, dtype=torch.int32, device=DEVICE)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(repeats + warmup):
        for name, call in calls.items():
            flush.fill_(i)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(400_000)  # the call is launched before the GPU gets to it
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3)
    return {name: statistics.median(t[warmup:]) for name, t in times.items()}


def error_of(result: Tensor, a: Tensor, b: Tensor, sizes: list[int]) -> float:
    """The norm of the error of the largest group, of the norm of its exact product."""
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    begin = sum(sizes[:largest])
    rows = slice(begin, begin + min(sizes[largest], 256))
    exact = a[rows].double() @ b[largest].double()
    return float((result[rows].double() - exact).norm() / exact.norm())


def bytes_of(a: Tensor, b: Tensor, out: Tensor, sizes: list[int]) -> int:
    used = sum(size > 0 for size in sizes)
    return a.nbytes + out.nbytes + b.nbytes * used // len(sizes)


def product(a: Tensor, b: Tensor, offs: Tensor, kernel: str) -> Callable[[], Tensor]:
    """A call of one of the options of ``--kernels``."""
    if kernel == "torch":
        return lambda: torch._grouped_mm(a, b, offs)
    if kernel == "gates":
        return lambda: torch.ops.fastgemm.grouped_mm(a, b, offs, activation="swiglu")
    return lambda: fastgemm.grouped_mm(a, b, offs, kernel=None if kernel == "none" else kernel)


class Problem(NamedTuple):
    layer: str
    tokens: int
    dtype: torch.dtype


def measure(problem: Problem, kernels: list[str], repeats: int, read: float) -> None:
    experts, k, n, top = LAYERS[problem.layer]
    sizes = sizes_of(experts, problem.tokens, top)
    offs = torch.tensor(sizes, device=DEVICE).cumsum(0).int()
    a = torch.randn(sum(sizes), k, device=DEVICE).to(problem.dtype)
    b = (torch.randn(experts, n, k, device=DEVICE, dtype=problem.dtype) * 0.02).mT
    calls = {kernel: product(a, b, offs, kernel) for kernel in ("torch", *kernels)}
    moved = bytes_of(a, b, calls["torch"](), sizes)
    print(
        f"{problem.layer} tokens {problem.tokens}, {max(sizes)} rows at most: read {moved / read * 1e6:.1f} us",
        end="",
    )
    show(calls, repeats, lambda r: error_of(r, a, b, sizes), 2 * a.shape[0] * n * k)


def measure_gradient(problem: Problem, kernels: list[str], repeats: int, read: float) -> None:
    experts, k, n, top = LAYERS[problem.layer]
    sizes = sizes_of(experts, problem.tokens, top)
    offs = torch.tensor(sizes, device=DEVICE).cumsum(0).int()
    x = torch.randn(sum(sizes), k, device=DEVICE).to(problem.dtype)
    grad = torch.randn(sum(sizes), n, device=DEVICE).to(problem.dtype)
    calls = {kernel: product(grad.T, x, offs, kernel) for kernel in ("torch", *kernels)}
    expected = calls["torch"]().float()
    moved = x.nbytes + grad.nbytes + expected.nbytes // 2
    print(
        f"{problem.layer} tokens {problem.tokens}, gradient of weights: read {moved / read * 1e6:.1f} us",
        end="",
    )
    show(
        calls,
        repeats,
        lambda r: float((r.float() - expected).norm() / expected.norm()),
        2 * sum(sizes) * n * k,
    )


def show(
    calls: dict[str, Callable[[], Tensor]], repeats: int, error: Callable[[Tensor], float], flops: float
) -> None:
    times = cold_medians(calls, repeats)
    line = ""
    for name, call in calls.items():
        line += f"; {name} {times[name]:.1f} us"
        line += f" ({flops / times[name] / 1e6:.0f} TFLOPS)" if flops / times[name] / 1e6 > 50 else ""
        line += "" if name == "torch" else f" {times['torch'] / times[name]:.2f} of torch"
        line += "" if name == "gates" else f", error {error(call()):.1e}"
    print(line, flush=True)


def rate_of_reads() -> float:
    """Bytes a second of torch's sum over 1 GB."""
    words = torch.zeros(1 << 27, dtype=torch.int64, device=DEVICE)
    return words.nbytes / (cold_medians({"sum": words.sum}, 7)["sum"] * 1e-6)


@click.command(help=__doc__.split("\n")[0] if __doc__ else None)
@click.option("--layer", "layers", multiple=True, type=click.Choice(list(LAYERS)), default=list(LAYERS))
@click.option("--tokens", default="1,16,256,4096")
@click.option("--kernels", default="none", help='names, separated by commas; "none" is level=None')
@click.option("--dtype", default="bfloat16", type=click.Choice(["bfloat16", "float16"]))
@click.option("--gradient", is_flag=True, help="time the gradients of the weights")
@click.option("--repeats", default=9)
def main(layers: list[str], tokens: str, kernels: str, dtype: str, gradient: bool, repeats: int) -> None:
    read = rate_of_reads()
    print(f"{torch.cuda.get_device_name()}, reads {read / 1e12:.2f} TB/s")
    for layer in layers:
        for count in tokens.split(","):
            problem = Problem(layer, int(count), getattr(torch, dtype))
            (measure_gradient if gradient else measure)(problem, kernels.split(","), repeats, read)


if __name__ == "__main__":
    main()
