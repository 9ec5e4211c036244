"""What ``fastgemm info --bug-report`` prints: text to paste, without paths or names of the machine's user."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from typing import Any

import torch

from . import known

PRIVATE = "FASTGEMM_CACHE_DIR"  # a path: the report says only that it is set


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The data of ``fastgemm info``, and of its environment."""
    yield "### fastgemm info --bug-report"
    yield ""
    yield from (f"- {name}: {value}" for name, value in _facts(found).items())
    for gpu in map(known.gpu_in_words, found["gpus"]):
        yield f"- GPU: {gpu.device}; {gpu.measured}"
    rows = found["kernels"]
    for device in ("cpu", "cuda"):
        here = [row for row in rows if row["device"] == device]
        can = sum(row["unavailable"] is None for row in here)
        yield f"- kernels on {device}: {can} of {len(here)} can run"
    reasons = dict.fromkeys(row["unavailable"] for row in rows if row["unavailable"])
    yield from (f"  - {reason}" for reason in reasons)
    yield from (f"- CUDA: {obstacle}" for obstacle in found["cuda_obstacles"])
    yield from (f"- {name}={value}" for name, value in _variables())


def _facts(found: dict[str, Any]) -> dict[str, object]:
    return {
        "operating system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "C library": " ".join(platform.libc_ver()).strip() or "unknown",
        "Python": sys.version.split()[0],
        "CUDA of torch": torch.version.cuda or "none",
        **{name.replace("_", " "): str(value) or "-" for name, value in found["build"].items()},
        "cores, torch threads": f"{found['cores']}, {found['threads']}",
        "GPUs that torch sees": len(found["cuda_devices"]),
        "problems tuned": found["tuned_problems"],
    }


def _variables() -> Iterator[tuple[str, str]]:
    for name in sorted(os.environ):
        if name.startswith(("FASTGEMM_", "OMP_")) or name == "CUDA_VISIBLE_DEVICES":
            yield name, "(set)" if name == PRIVATE else os.environ[name]
