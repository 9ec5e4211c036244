"""Times products with packed weights on a GPU beside torch's bfloat16 linear of the dequantized weight.

L2 is cold: 256 MB are written before each call. Calls take turns; the times are medians of CUDA events around one
call. ``sum`` is torch's sum of the same packed bytes, as a rate at which they can be read. Errors are norms
against the float64 product with the quantized weight; ``rounded`` is that of the exact result rounded once.

    python benchmarks/packed_weights.py --kind int4-128 --shape 28672x8192 --rows 1,16,64
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import click
import torch
from fastgemm._quantized.formats import CODES, SCALES, Packing, Parts, ZeroKind
from fastgemm._quantized.layout import dequantize, to_units
from torch import Tensor

DEVICE = "cuda"
WHOLE_ROWS = 1 << 20  # a group_k: one scale for each row
KINDS: dict[str, tuple[str, str, int, ZeroKind]] = {  # code, type of scales, group, zero points
    "int4-128": ("int4", "bf16", 128, "none"),
    "int4-32": ("int4", "bf16", 32, "none"),
    "int4-128-zero": ("int4", "f16", 128, "subtracted"),
    "int8": ("int8", "f32", WHOLE_ROWS, "none"),
    "fp8": ("e4m3", "f32", WHOLE_ROWS, "none"),
    "nf4": ("nf4", "f32", 64, "none"),
    "mxfp4": ("e2m1", "e8m0", 32, "none"),
    "nvfp4": ("e2m1", "e4m3", 16, "none"),
}


def random_weight(n: int, k: int, kind: str) -> tuple[Packing, Parts, Tensor]:
    """A weight in units, and its numbers in float32."""
    code, scale, group, zero = KINDS[kind]
    packing = Packing(n, k, code, scale, zero, 1, group)
    codes = torch.randint(256, packing.code_shape, dtype=torch.uint8, device=DEVICE)
    if code == "e4m3":
        codes[codes & 127 == 127] = 0  # NaN
    if scale == "e8m0":
        scales = torch.randint(118, 122, packing.groups, dtype=torch.uint8, device=DEVICE).view(SCALES[scale])
    else:
        scales = (torch.rand(packing.groups, device=DEVICE) * 0.02 + 0.02).to(SCALES[scale])
    zeros = None
    if packing.zero_dtype is not None:
        zeros = torch.randint(-8, 8, packing.groups, device=DEVICE).to(packing.zero_dtype)
    parts = Parts(codes.view(CODES[code].dtype), scales, zeros)
    return packing, to_units(parts, packing), dequantize(parts, packing, None, None, torch.float32)


def cold_medians(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Microseconds of each call, which take turns."""
    warmup = 3
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


def measure(n: int, k: int, kind: str, rows: list[int], kernels: list[str], repeats: int) -> None:
    packing, parts, numbers = random_weight(n, k, kind)
    dense = numbers.bfloat16()
    words = parts.codes.view(-1)[: parts.codes.numel() // 8 * 8].view(torch.int64)
    for m in rows:
        x = torch.randn(m, k, device=DEVICE).bfloat16()

        def product(kernel: str, x: Tensor = x) -> Tensor:
            return torch.ops.fastgemm._quantized_linear(
                x,
                *parts,
                None,
                n=n,
                code=packing.code,
                scale=packing.scale,
                zero=packing.zero,
                units=True,
                group_n=1,
                group_k=packing.group_k,
                impl=None if kernel == "none" else kernel,
            )

        calls: dict[str, Callable[[], object]] = {
            "torch": lambda x=x: torch.nn.functional.linear(x, dense),
            "sum": words.sum,
            **{kernel: lambda kernel=kernel, product=product: product(kernel) for kernel in kernels},
        }
        times = cold_medians(calls, repeats)
        exact = torch.cat([x.double() @ part.double().T for part in numbers.split(4096)], 1)

        def error(result: Tensor, exact: Tensor = exact) -> str:
            return f"{((result.double() - exact).norm() / exact.norm()).item():.2e}"

        line = f"{kind} {n}x{k} rows {m}: torch {times['torch']:.1f} us, sum {times['sum']:.1f} us, "
        line += f"errors: rounded {error(exact.bfloat16())}"
        for kernel in kernels:
            line += f"; {kernel} {times[kernel]:.1f} us, {times['torch'] / times[kernel]:.2f} of torch, "
            line += f"error {error(product(kernel))}"
        print(line, flush=True)


@click.command(help=__doc__.split("\n")[0] if __doc__ else None)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(list(KINDS)), default=["int4-128"])
@click.option("--shape", "shapes", multiple=True, default=["28672x8192"], help="N x K; may be repeated")
@click.option("--rows", default="1,8,16,32,64,128,256,512,4096", help="of x")
@click.option("--kernels", default="none", help='names, separated by commas; "none" is level=None')
@click.option("--repeats", default=9)
def main(kinds: list[str], shapes: list[str], rows: str, kernels: str, repeats: int) -> None:
    print(torch.cuda.get_device_name())
    for kind in kinds:
        for shape in shapes:
            n, k = map(int, shape.split("x"))
            measure(n, k, kind, [int(m) for m in rows.split(",")], kernels.split(","), repeats)


if __name__ == "__main__":
    main()
