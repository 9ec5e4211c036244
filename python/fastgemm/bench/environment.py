"""The machine and the versions of a measurement."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
from collections.abc import Iterator
from typing import Any

import torch

from .. import _introspect
from ..table import build_info

TORCH_THREADS = torch.get_num_threads()  # as torch found them, before anything here changes them


def usable_cores() -> int:
    """Cores that this process may use; if OMP_PROC_BIND ties the calling thread to one core, torch's count."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(own, TORCH_THREADS)


def _flag(name: str) -> bool:
    return bool(getattr(torch.backends.cuda.matmul, name))


def _describe_gpu() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "gpu_model": _introspect.gpu(),
        "multiprocessors": properties.multi_processor_count,
        "capability": f"{properties.major}.{properties.minor}",
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "cuda": torch.version.cuda,
        "cublas": build_info()["cublas"],
        "torch_fp32_precision": torch.backends.cuda.matmul.fp32_precision,
        "torch_fp16_reduced_precision_reduction": _flag("allow_fp16_reduced_precision_reduction"),
        "torch_bf16_reduced_precision_reduction": _flag("allow_bf16_reduced_precision_reduction"),
        "cuda_archs": build_info()["cuda_archs"],
    }


def describe(device: str = "cpu") -> dict[str, Any]:
    """Device, versions and date, as stored in every report."""
    info = build_info()
    gpu = _describe_gpu() if device == "cuda" else {}
    return {
        "device": torch.cuda.get_device_name() if gpu else info["cpu"],
        "device_type": device,
        **gpu,
        "cpu": info["cpu"],
        "cpu_model": info["cpu_model"],
        "cpu_features": info["cpu_features"],
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "fastgemm": info["version"],
        "torch": torch.__version__,
        "python": platform.python_version(),
        "compiler": info["compiler"],
        "platform": platform.platform(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


@contextlib.contextmanager
def using_threads(count: int | None) -> Iterator[int]:
    """Runs its block with ``count`` torch threads (None: as many as torch has now) and restores the number."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
