"""Runs the measurements of the programs in examples/: models of the transformers library, a transformer of torch's
layers, and an MLP on several devices."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import ModuleType

import torch
from contests import Preset, Settings
from fastgemm.bench.cuda_timing import WallTimer
from fastgemm.bench.records import Report, read_report
from fastgemm.bench.session import Session
from studies.telemetry import sensors_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TYPES = (torch.float32, torch.bfloat16)


def example(name: str) -> ModuleType:
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return importlib.import_module(name)


def models(settings: Settings, *, invariant: bool = False) -> Report:
    """``invariant``: two of the models, with rows that do not depend on the batch. Their bits are checked, too."""
    module, most = example("models"), settings.most
    names = ("llama-prefill", "llama-decode") if invariant else (*module.STEPS, *module.CHAINS)
    scale = module.SCALES[settings.device if most is None else "tiny"]
    plan = module.Plan(names[:most], TYPES[:most], scale, not invariant, invariant)
    timing = {"budget": settings.budget_of(20 if invariant else 80), "rounds": None}
    timer = WallTimer() if settings.device == "cuda" else None
    with Session(settings.device, timer, sensors_of(settings.device)) as session:
        report = module.run(plan, session, None, timing)
    settings.say(report.results)
    return report


def transformer(settings: Settings, *, wide: bool = False) -> Report:
    """``wide``: twice the width, with one type and one form of attention."""
    module, most = example("transformer"), settings.most
    config = module.CONFIGS["tiny" if most else settings.device + "-wide" * wide]
    types, attentions = (TYPES[1:], ("sdpa",)) if wide else (TYPES[:most], module.ATTENTIONS[:most])
    budget = settings.budget_of(18 if wide else 72)
    with Session(settings.device, sensors=sensors_of(settings.device)) as session:
        report = module.measured(config, types, attentions, session, None, budget)
    settings.say(report.results)
    return report


def tensor_parallel(settings: Settings) -> Report:
    """Measures on two devices: GPUs with NCCL, or CPU cores with gloo."""
    sizes, types, rounds = ["16 32 64"], ["float32"], 1
    if settings.most is None:
        on_gpu = ["64 8192 28672", "1024 2048 8192", "1024 8192 28672", "8192 8192 28672"]
        sizes, types = (
            {"cuda": on_gpu, "cpu": ["256 512 2048"]}[settings.device],
            ["float32", "tf32", "bfloat16"],
        )
        rounds = 16
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        command = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2".split()
        command += [str(EXAMPLES / "tensor_parallel.py"), "--json", str(path), "--rounds", str(rounds)]
        command += " ".join([*(f"--size {s}" for s in sizes), *(f"--type {t}" for t in types)]).split()
        done = subprocess.run(command, capture_output=True, text=True)
        if not path.exists():
            raise RuntimeError(f"examples/tensor_parallel.py failed:\n{done.stderr[-2000:]}")
        report = read_report(path)
    settings.say(report.results)
    return report


def too_few_gpus(device: str) -> str:
    return "needs two GPUs" if device == "cuda" and torch.cuda.device_count() < 2 else ""


PRESETS = {
    "transformer": Preset({"cuda": 20, "cpu": 20}, transformer),
    "transformer_wide": Preset({"cuda": 12}, partial(transformer, wide=True)),
    "invariant_models": Preset({"cuda": 18, "cpu": 15}, partial(models, invariant=True)),
    "models": Preset({"cuda": 70, "cpu": 60}, models),
    "tensor_parallel": Preset({"cuda": 60, "cpu": 30}, tensor_parallel, too_few_gpus),
}
