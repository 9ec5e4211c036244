"""Tensor parallelism: the two products of a transformer's MLP, shared by several devices.

\b
    torchrun --standalone --nproc-per-node 2 examples/tensor_parallel.py
    torchrun --standalone --nproc-per-node 2 examples/tensor_parallel.py --size 1024 2048 8192 --type tf32

Each device has one process. The devices are GPUs, connected through NCCL, where there is one for every process,
and else CPU cores, connected through gloo. The model's code is that of one device. Its parameters become DTensors,
``up`` cut into columns and ``down`` into rows, so that each device computes its share of the hidden units and one
all-reduce adds up what they contribute:

\b
    x (tokens, hidden) @ up (hidden, ffn)   ->  gelu  @  down (ffn, hidden)   ->  sum of
    replicated           Shard(1)               Shard(1)      Shard(0)            Partial

Before anything is timed, the output and all gradients are compared with float64 on one device: first those of one
device, then those of all devices together. The two errors may differ by the rounding of the partial sums.
docs/scale.md explains the figures.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import fastgemm
import repository  # noqa: F401
import torch
import torch.distributed as dist
from fastgemm.bench import CpuTimer, Interleaved, Timer, describe, interleave
from fastgemm.bench.cuda_timing import CudaTimer
from fastgemm.bench.records import Measurement, Report
from fastgemm.cli import options
from fastgemm.cli.console import write_file
from render.models import SCALING
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor

TYPES = {
    "float64": (torch.float64, None),
    "float32": (torch.float32, "ieee"),
    "tf32": (torch.float32, "tf32"),
    "bfloat16": (torch.bfloat16, None),
}
# (tokens, hidden, ffn): 8192 and 28672 are the MLP of a 70-billion-parameter Llama.
SIZES = {"cuda": [(1024, 8192, 28672), (8192, 8192, 28672)], "cpu": [(256, 512, 2048)]}


class MLP(nn.Module):
    def __init__(self, up: Tensor, down: Tensor, precision: str | None):
        super().__init__()
        self.up, self.down = nn.Parameter(up), nn.Parameter(down)  # (hidden, ffn), (ffn, hidden)
        self.precision = precision

    def forward(self, x: Tensor) -> Tensor:  # (tokens, hidden), both
        hidden = nn.functional.gelu(fastgemm.matmul(x, self.up, precision=self.precision))
        return fastgemm.matmul(hidden, self.down, precision=self.precision)


def tensor_parallel(mlp: MLP, mesh: DeviceMesh) -> MLP:
    """The same module with its parameters cut into one part for each device. It takes and returns whole tensors,
    the same on every device."""

    def shard(_name: str, module: nn.Module, mesh: DeviceMesh) -> None:
        for name, placement in (("up", Shard(1)), ("down", Shard(0))):
            parameter = distribute_tensor(getattr(module, name).detach(), mesh, [placement])
            module.register_parameter(name, nn.Parameter(parameter))

    def replicated(_module: nn.Module, inputs: tuple, mesh: DeviceMesh) -> Tensor:
        return DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False)

    def summed(_module: nn.Module, output: DTensor, mesh: DeviceMesh) -> Tensor:
        return output.redistribute(mesh, [Replicate()]).to_local()  # the all-reduce

    return distribute_module(mlp, mesh, shard, replicated, summed)


@dataclass
class Problem:
    """The problem of one line of the table, with the same numbers on every device."""

    size: tuple[int, int, int]
    type_name: str
    mesh: DeviceMesh

    def __post_init__(self) -> None:
        tokens, hidden, ffn = self.size
        self.dtype, self.precision = TYPES[self.type_name]

        def normal(rows: int, columns: int, scale: float) -> Tensor:
            return (torch.randn(rows, columns, device=self.mesh.device_type) * scale).to(self.dtype)

        self.x, self.seed = normal(tokens, hidden, 1), normal(tokens, hidden, tokens**-0.5)
        self.up, self.down = normal(hidden, ffn, hidden**-0.5), normal(ffn, hidden, ffn**-0.5)
        self.one = MLP(self.up, self.down, self.precision)
        self.all = tensor_parallel(MLP(self.up, self.down, self.precision), self.mesh)

    @property
    def operations(self) -> int:
        tokens, hidden, ffn = self.size
        return 4 * tokens * hidden * ffn

    def calls(self) -> dict[str, Callable[[], object]]:
        """The functions to time. "by hand" is "whole" without DTensor, and "compute" and "all-reduce" are its two
        halves. "columns" and "inner" are only the first product, cut along N or along K, with the whole result on
        every device.
        """
        mesh, up, down = self.mesh, self.all.up.to_local(), self.all.down.to_local()
        share = MLP(up, down, self.precision)
        partial = torch.zeros_like(self.x)

        def reduce() -> Tensor:
            dist.all_reduce(partial)
            return partial

        def by_hand() -> Tensor:
            result = share(self.x)
            dist.all_reduce(result)
            return result

        everywhere = DTensor.from_local(self.x, mesh, [Replicate()], run_check=False)
        by_columns, by_k = self.all.up, distribute_tensor(self.up, mesh, [Shard(0)])
        slices = everywhere.redistribute(mesh, [Shard(1)])

        def product(a: DTensor, b: DTensor) -> Tensor:
            return fastgemm.matmul(a, b, precision=self.precision).redistribute(mesh, [Replicate()])

        return {
            "one device": lambda: self.one(self.x),
            "compute": lambda: share(self.x),
            "all-reduce": reduce,
            "by hand": by_hand,
            "whole": lambda: self.all(self.x),
            "one product": lambda: fastgemm.matmul(self.x, self.up, precision=self.precision),
            "columns": lambda: product(everywhere, by_columns),
            "inner": lambda: product(slices, by_k),
        }

    def errors(self) -> dict[str, float]:
        """The largest relative error (Frobenius norm) of output and gradients, on one device and on all of
        them."""

        def results(model: Callable[[Tensor], Tensor], *leaves: Tensor) -> list[Tensor]:
            output = model(leaves[0])
            return [output.detach(), *torch.autograd.grad(output, leaves, self.seed.to(output.dtype))]

        x, up, down = (t.double().requires_grad_() for t in (self.x, self.up, self.down))
        exact = results(lambda x: nn.functional.gelu(x @ up) @ down, x, up, down)
        worst = {}
        for name, model in (("one device", self.one), ("whole", self.all)):
            got = results(model, self.x.clone().requires_grad_(), model.up, model.down)
            whole = [g.full_tensor() if isinstance(g, DTensor) else g for g in got]
            pairs = zip(whole, exact, strict=True)
            worst[name] = max((g.double().sub_(e).norm() / e.norm()).item() for g, e in pairs)
        return worst


class Together(Timer):
    """Starts every sample on all devices at once, so that none waits for another within it."""

    def __init__(self, timer: Timer, barrier: Callable[[], object]):
        self.name, self._timer, self._barrier = timer.name, timer, barrier
        self.method = f"{timer.method}; started on all devices at once, the slowest counts"
        self.min_sample, self.overhead = 0.0, timer.overhead

    def sample(self, call: Callable[[], object], repeats: int) -> float:
        self._barrier()
        return self._timer.sample(call, repeats)


def measure(problem: Problem, timer: Timer, rounds: int) -> Interleaved:
    """Seconds of each call on the slowest device, round by round."""
    calls = problem.calls()
    with torch.no_grad():
        for call in list(calls.values()) * 2:  # warm up; all devices must make the same calls
            call()
        own = interleave(calls, rounds=rounds, estimates=dict.fromkeys(calls, 1.0), timer=timer)
    of_all: list = [None] * dist.get_world_size()
    dist.all_gather_object(of_all, own.rounds)
    slowest = [
        {name: max(device[name] for device in taken) for name in calls} for taken in zip(*of_all, strict=True)
    ]
    return Interleaved(slowest)


def rows(problem: Problem, samples: Interleaved, errors: dict[str, float]) -> Iterator[Measurement]:
    """The lines of the report; ``worst_error`` is in units of what is allowed."""
    devices, (tokens, hidden, ffn) = dist.get_world_size(), problem.size
    # Rounding the partial sums, and adding them, may double the error of one device, but not more.
    allowed = 2 * errors["one device"] + torch.finfo(problem.dtype).eps / 2
    for name in problem.calls():
        product = name in ("one product", "columns", "inner")
        row = Measurement(
            op="gemm" if product else "mlp",
            shape=(tokens, ffn, hidden) if product else problem.size,
            label="x".join(map(str, problem.size)),
            dtype=str(problem.dtype).removeprefix("torch."),
            layout="",
            threads=torch.get_num_threads() if problem.mesh.device_type == "cpu" else 0,
            kernel="",
            level=None,
            role="baseline" if name.startswith("one") else f"{devices} devices",
            choice=name,
            precision=problem.precision or "",
            baseline="one product" if product else "one device",
            unit="TFLOPS",
        )
        row.seconds = samples.seconds(name)
        row.speedup = samples.speedup(name, over=row.baseline)
        if name == "all-reduce":  # the bus bandwidth of nccl-tests
            row.unit = "GB/s"
            moved = 2 * (devices - 1) / devices * problem.x.numel() * problem.x.itemsize
            row.rate, row.speedup = moved / row.seconds.median / 1e9, None
        else:
            row.rate = problem.operations / (2 if product else 1) / row.seconds.median / 1e12
        if name in errors:
            row.worst_error = errors[name] / allowed
            row.right = row.worst_error <= 1
            row.message = f"relative error {errors[name]:.2e} of output and gradients"
        yield row


@contextlib.contextmanager
def processes() -> Iterator[DeviceMesh]:
    """The process group that torchrun has prepared, as a mesh of one dimension."""
    local, local_count = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if torch.cuda.device_count() >= local_count:
        torch.cuda.set_device(local)
        dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    else:
        dist.init_process_group("gloo")
    try:
        kind = "cuda" if dist.get_backend() == "nccl" else "cpu"
        yield init_device_mesh(kind, (dist.get_world_size(),))
    finally:
        dist.destroy_process_group()


def run(mesh: DeviceMesh, sizes: list[tuple[int, int, int]], types: list[str], rounds: int) -> Report:
    on_gpu = mesh.device_type == "cuda"
    barrier = (lambda: dist.barrier(device_ids=[torch.cuda.current_device()])) if on_gpu else dist.barrier
    timer = Together(CudaTimer() if on_gpu else CpuTimer(), barrier)
    environment = describe(mesh.device_type) | {"devices": mesh.size(), "backend": dist.get_backend()}
    if on_gpu:
        environment["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    report = Report("tensor_parallel", environment, {"timer": timer.name, "text": timer.method})
    for size in sizes:
        for type_name in types:
            torch.manual_seed(0)  # the same numbers on every device
            problem = Problem(size, type_name, mesh)
            errors = problem.errors()
            report.results += rows(problem, measure(problem, timer, rounds), errors)
    return report


@click.command(help=__doc__)
@click.option(
    "--size",
    "sizes",
    type=options.Count(),
    nargs=3,
    multiple=True,
    metavar="TOKENS HIDDEN FFN",
    help="May be repeated.",
)
@click.option(
    "--type",
    "types",
    type=click.Choice(list(TYPES)),
    multiple=True,
    default=["float32", "bfloat16"],
    show_default=True,
    help="May be repeated.",
)
@click.option(
    "--rounds", type=options.Count(1000), default=16, show_default=True, help="Samples of each call."
)
@options.json
def main(
    sizes: tuple[tuple[int, int, int], ...], types: tuple[str, ...], rounds: int, json: Path | None
) -> None:
    if "LOCAL_RANK" not in os.environ:
        start = f"torchrun --standalone --nproc-per-node 2 {sys.argv[0]}"
        raise click.UsageError(f"start it by torchrun: {start}")
    with processes() as mesh:
        report = run(mesh, list(sizes) or SIZES[mesh.device_type], list(types), rounds)
        if dist.get_rank() == 0:
            if str(json) != "-":
                print(SCALING.text(report.results))
            for row in report.results:
                if row.message and not row.right:
                    print(f"WRONG: {row.label} {row.type_name}, {row.choice}: {row.message}", file=sys.stderr)
            if json:
                write_file(json, lambda file: file.write(report.to_json()))
        if not report.right:
            sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except SystemExit as end:
        status = int(end.code or 0)
    # torch's caches of DTensor operations keep the process group, and with it gloo's threads, beyond
    # destroy_process_group. A thread of gloo that releases its last tensor needs the interpreter. If the
    # interpreter is shutting down at that time, the process ends by SIGABRT. So the process exits without shutting
    # it down.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
