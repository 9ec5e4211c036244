"""Presets of the package: the ladder, sets of problems compared with torch, the host's time, errors, and peers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from contests import Preset, Settings
from fastgemm.bench.ladder import run_ladder
from fastgemm.bench.presets import TRANSPOSE_SHAPES, Case, preset_cases
from fastgemm.bench.records import Report
from fastgemm.cli.ladder import problems_of
from studies.accuracy import run_accuracy
from studies.accuracy.study import default_shapes
from studies.gpu_presets import kernel
from studies.host_time import run_host_time
from studies.overhead import run_overhead
from studies.peers import run_peers, with_jax, with_triton
from studies.peers.contenders import problems
from studies.presets import STEP, cases_of
from studies.sweep import run_study
from studies.telemetry import sensors_of
from studies.timers import Pace

BATCHES = 2  # for each way to call a model's layers in turn; one batch of all ways takes a GPU's host 4 s


def of_cases(settings: Settings, cases: list[Case], said: dict, sustained: bool = False) -> Report:
    chosen = cases[: settings.most]
    report = run_study(
        chosen,
        device=settings.device,
        budget=settings.budget or 0.5,
        pace=None if settings.budget else Pace(settings.seconds, len(chosen)),
        sustained=sustained,
        progress=settings.progress,
        on_rows=settings.say,
    )
    report.method |= said
    return report


def of_preset(name: str, settings: Settings) -> Report:
    seed = settings.a_seed
    cases = cases_of(name, settings.device, seed)
    said = {"random60": {"seed": seed}, "sweep": {"step": STEP}}.get(name, {})
    return of_cases(settings, cases, {"presets": [name], **said}, sustained=name == "sweep")


def transposes(settings: Settings) -> Report:
    """The rows ``pipelined`` and ``torch``, on one thread and on all threads."""
    dtypes, choices = [torch.int8, torch.float32, torch.complex128], (kernel("pipelined"), kernel("torch"))
    cases = [
        case
        for threads in sorted({1, torch.get_num_threads()})
        for name in TRANSPOSE_SHAPES
        for case in preset_cases(name, "transpose", dtypes, ["NN"], choices, threads)
    ]
    return of_cases(settings, cases, {"presets": list(TRANSPOSE_SHAPES)})


def ladder(settings: Settings) -> Report:
    quick = settings.most is not None
    ops = ("gemm", "transpose")
    found = problems_of(settings.device, ops, None, None, torch.float32, None, quick)
    budget = settings.budget_of(40)
    sensors = sensors_of(settings.device)
    report = run_ladder(
        found, device=settings.device, budget=budget, sensors=sensors, progress=settings.progress
    )
    settings.say(report.results)
    return report


def in_batches(run: Callable[[str, int], Report], settings: Settings) -> Report:
    settings.progress("batches of calls", 0.0)
    return run(settings.device, BATCHES if settings.most is None else 1)


def accuracy(settings: Settings) -> Report:
    shapes = default_shapes(settings.device)[: settings.most]
    return run_accuracy(settings.device, shapes=shapes, seed=settings.a_seed, progress=settings.progress)


def beside_peers(settings: Settings) -> Report:
    """A third of the time is for the three peers that compile and autotune."""
    cases, progress = problems()[: settings.most], settings.progress
    times = {"budget": settings.budget or 0.05, "setup": settings.seconds / 9}
    report = run_peers(settings.device, **times, cases=cases, progress=progress)
    settings.say(report.results)
    return report


def no_peers(device: str) -> str:
    """Why the preset cannot run, or "". A run without the peers would overwrite their measured times."""
    return "" if with_triton.version() and with_jax.version() else "needs Triton and JAX"


GPU_SECONDS = {"tensor_cores": 24, "ladder_steps": 12, "weak_spots": 30, "random60": 20, "sizes": 12}
GPU_SECONDS |= {"sweep": 20}
PRESETS = {
    "host": Preset(
        {"cuda": 35, "cpu": 25}, partial(in_batches, lambda device, n: run_host_time(device, in_turn=n))
    ),
    "overhead": Preset({"cuda": 35, "cpu": 50}, partial(in_batches, run_overhead)),
    "ladder": Preset({"cuda": 10, "cpu": 15}, ladder),
    "reference": Preset({"cuda": 28, "cpu": 70}, partial(of_preset, "reference")),
    **{name: Preset({"cuda": time}, partial(of_preset, name)) for name, time in GPU_SECONDS.items()},
    "transposes": Preset({"cpu": 90}, transposes),
    "accuracy": Preset({"cuda": 26, "cpu": 20}, accuracy),
    "peers": Preset({"cuda": 45}, beside_peers, no_peers),
}
