"""``fastgemm bench``: many problems against torch."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

import click
import torch

from .. import tuning
from ..bench import gpu_presets, peers, weak_spots
from ..bench.host_time import run_host_time
from ..bench.overhead import run_overhead
from ..bench.presets import GPU_PRESETS, PRESETS, Case, from_shape, preset_cases
from ..bench.problems import LAYOUTS, Gemm
from ..bench.records import Report
from ..bench.sweep import METHODS, run_sweep
from ..table import kernels
from . import accuracy as accuracy_study
from . import options, tables
from . import peers as peers_study
from .console import console, failures_as_exit_code, progress_bar, say_written, write_outputs


def choices_of(device: str, op: str, levels: tuple[int, ...], names: tuple[str, ...]) -> tuple:
    """What to ask for on each problem: levels, kernels, or the fastest known. Raises click.BadParameter."""
    for name in names:
        options.check_kernel(name, op, device, kernels(op, device))
    return (*((("level", n),) for n in levels), *((("kernel", name),) for name in names)) or ((),)


def cases_of_preset(
    device: str,
    preset: str,
    op: str,
    dtypes: list[torch.dtype],
    layouts: list[str],
    choices: tuple,
    threads: int | None,
    seed: int,
    step: int,
) -> list[Case]:
    """The cases of a preset; some have a set of their own for a GPU. Raises ValueError."""
    if device == "cuda" and preset == "reference":
        return gpu_presets.reference()
    if preset not in GPU_PRESETS:
        return preset_cases(preset, op, dtypes, layouts, choices, threads)
    if device != "cuda":
        raise ValueError(options.for_gpu(f"the preset {preset}"))
    if preset == "tensor_cores":
        return gpu_presets.tensor_cores()
    if preset == "weak_spots":
        return weak_spots.cases()
    if preset == "random60":
        return gpu_presets.random_shapes(60, seed)
    make = gpu_presets.sizes if preset == "sizes" else lambda dtype: gpu_presets.sweep(step, dtype)
    return [case for dtype in dtypes for case in make(dtype)]


def cases_of(
    device: str,
    op: str,
    presets: tuple[str, ...],
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[torch.dtype, ...],
    layouts: tuple[str, ...],
    choices: tuple,
    threads: int | None,
    seed: int,
    step: int,
) -> list[Case]:
    """The cases that the options name. Raises click.UsageError."""
    for dtype in dtypes:
        options.check_dtype(op, dtype)
    if op != "gemm" and layouts:
        raise click.UsageError("--layout is for gemm")
    layouts = layouts or ("NN",)
    cases: list[Case] = []
    try:
        for dtype in dtypes:
            for layout in layouts:
                group = f"{op} {str(dtype).removeprefix('torch.')}"
                cases += [
                    Case(from_shape(op, shape, dtype, layout), group, choices, threads) for shape in shapes
                ]
        for preset in presets or (() if shapes else ("squares",)):
            cases += cases_of_preset(
                device, preset, op, list(dtypes), list(layouts), choices, threads, seed, step
            )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return cases


def with_precision(cases: list[Case], device: str, precision: str | None) -> list[Case]:
    """The cases with the precision of their float32 products. Raises click.UsageError where it has none to say it
    of."""
    if precision is None:
        return cases
    products = [
        case for case in cases if isinstance(case.problem, Gemm) and case.problem.dtype == torch.float32
    ]
    if device != "cuda" or not products:
        raise click.UsageError("--precision is for gemm in float32 on a GPU")
    return [
        replace(case, problem=replace(case.problem, precision=precision)) if case in products else case
        for case in cases
    ]


@click.command(cls=options.CommandWithShapes, short_help="Time problems against torch.")
@click.option(
    "--op",
    type=click.Choice(["gemm", "transpose", "add"]),
    default="gemm",
    show_default=True,
    help="Operation.",
)
@click.option(
    "--preset",
    "presets",
    multiple=True,
    type=click.Choice([*PRESETS, *GPU_PRESETS, peers.PRESET]),
    help="A set of shapes; may be repeated. transformers: layers of well-known models, weights stored as "
    "torch.nn.Linear stores them. reference: what the published figures are measured on, with ops and dtypes "
    "of its own. On a GPU also tensor_cores: level 6 in every type and layout; weak_spots: what libraries do "
    "badly or not at all (float32 at full accuracy on tensor cores, exact int32, odd, skinny, long and small "
    "products); random60: 60 random shapes in four types and all layouts; sizes: every level from 128 to 16384; "
    "sweep: level 5 from 1024 to 12800; peers, alone: torch.compile, Triton, JAX and cuBLAS' emulated modes, "
    "where they are installed. Default without --shape: squares.",
)
@click.option(
    options.SHAPE,
    "shapes",
    multiple=True,
    type=options.Shape(),
    help=f"{options.OF_SHAPES}{options.OF_BATCHES} May be repeated.",
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    type=options.DType(),
    default=["float32"],
    show_default=True,
    help="May be repeated.",
)
@click.option(
    "--layout", "layouts", multiple=True, type=click.Choice(LAYOUTS), help="T: operand stored transposed."
)
@click.option(
    "--level",
    "levels",
    multiple=True,
    type=click.IntRange(1, 7),
    help="A level instead of the fastest known.",
)
@click.option(
    "--kernel", "names", multiple=True, help="A kernel by name (fastgemm info --kernels); may be repeated."
)
@options.precision
@options.device
@options.threads
@options.budget
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default=METHODS[0],
    show_default=True,
    help="sustained (GPU): warm back-to-back calls, the mean of the second half, with joules per call.",
)
@click.option("--step", type=options.Count(), default=128, show_default=True, help="Of the preset sweep.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    help="Of the preset random60 and --accuracy; default: a fresh one.",
)
@click.option(
    "--setup",
    type=options.Seconds(),
    help="Of the preset peers: seconds that each product may compile and autotune for in all. Default: 25.",
)
@click.option(
    "--host-time",
    is_flag=True,
    help="Only the host's time of a call: on 16x16 beside torch.mm, and on the layers of a model in turn, beside "
    "each of them alone.",
)
@click.option(
    "--overhead",
    is_flag=True,
    help="Only the host's time of a 64x64 product, eager and under torch.compile, beside torch.matmul, and of the "
    "layers of a model in turn.",
)
@click.option(
    "--accuracy",
    is_flag=True,
    help="Only errors, no times: float32 products of each precision and torch's against float64, by "
    "distribution of the operands and K, with special values and int32. --shape and --kernel choose others.",
)
@click.option(
    "--check/--no-check",
    "checks",
    default=True,
    show_default=True,
    help="Check each kernel before timing it.",
)
@click.option(
    "--tune", is_flag=True, help="First measure all kernels on each problem and remember the fastest on disk."
)
@options.outputs
@options.raw
def bench(
    op: str,
    presets: tuple[str, ...],
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[torch.dtype, ...],
    layouts: tuple[str, ...],
    levels: tuple[int, ...],
    names: tuple[str, ...],
    precision: str | None,
    device: str | None,
    threads: int | None,
    budget: float | None,
    method: str,
    step: int,
    seed: int | None,
    setup: float | None,
    host_time: bool,
    overhead: bool,
    accuracy: bool,
    checks: bool,
    tune: bool,
    json: Path | None,
    csv: Path | None,
    plot: Path | None,
) -> None:
    """Time problems against torch, interleaved in one process, and name the kernel that ran.

    The baseline is torch.matmul, for int8 torch._int_mm, for transpose out.copy_(a.mT). Ratios above 1 mean
    faster than torch: the median of the ratios within a round; spread is half the distance of their quartiles.
    """
    device = options.chosen_device(device)
    if method == "sustained" and device != "cuda":
        raise click.UsageError(options.for_gpu("--method sustained"))
    seed = secrets.randbits(32) if seed is None else seed
    if accuracy:
        others = (presets, layouts, levels, host_time, overhead, tune, budget, precision)
        if any(others) or op != "gemm" or dtypes != (torch.float32,) or method != METHODS[0]:
            raise click.UsageError(
                "--accuracy goes with --shape, --kernel, --device, --threads and --seed alone"
            )
        accuracy_study.run(device, shapes, names, threads, seed, json=json, csv=csv, plot=plot)
        return
    if peers.PRESET in presets:
        others = (presets[1:], shapes, layouts, levels, names, host_time, overhead, tune, threads, plot)
        if (
            any(others)
            or precision
            or op != "gemm"
            or dtypes != (torch.float32,)
            or method != METHODS[0]
            or not checks
        ):
            raise click.UsageError(
                "the preset peers goes with --device, --budget, --setup, --json and --csv alone"
            )
        peers_study.run(device, budget, setup, json=json, csv=csv)
        return
    if tune and op == "add":
        raise click.UsageError("--tune measures gemm and transpose, not add")
    if setup is not None:
        raise click.UsageError("--setup is for the preset peers")
    choices = choices_of(device, op, levels, names)
    cases = cases_of(device, op, presets, shapes, dtypes, layouts, choices, threads, seed, step)
    cases = with_precision(cases, device, precision)
    with failures_as_exit_code():
        if host_time:
            report = run_host_time(device)
        elif overhead:
            report = run_overhead(device)
        else:
            with progress_bar() as progress:
                report = run_sweep(
                    cases,
                    device=device,
                    threads=threads,
                    budget=budget or 0.5,
                    checks=checks,
                    tune=tune,
                    sustained=method == "sustained",
                    progress=progress,
                )
            report.method["presets"] = list(presets)
            if "random60" in presets:
                report.method["seed"] = seed
            if "sweep" in presets:
                report.method["step"] = step
    if str(json) != "-" and str(csv) != "-":
        show(report)
    write_outputs(report, json=json, csv=csv, plot=plot)
    if tune and not (host_time or overhead):
        say_written([tuning.cache_file()] if tuning.cache_file().exists() else [])
    if not report.right:
        raise click.ClickException(tables.failures(report))


def show(report: Report) -> None:
    out = console()
    if report.command == "host-time":
        out.print(tables.host_table(report))
        out.print(tables.turns_table(report))
        return
    if report.command == "overhead":
        out.print(tables.overhead_table(report))
        out.print(tables.turns_table(report))
        return
    out.print(tables.bench_table(report.results))
    if report.summary["geometric_means"]:
        out.print(tables.means_table(report))
    for line in [*tables.outlier_lines(report), *tables.untimed_lines(report.results)]:
        out.print(line, markup=False)
    if report.environment["device_type"] == "cuda":
        out.print(f"{report.environment['device']}: {tables.gpu_state(report.results)}", style="dim")
    tables.print_busy(out, report)
