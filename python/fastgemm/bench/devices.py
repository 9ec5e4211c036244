"""Which device a command measures on."""

from __future__ import annotations

import torch

from ..table import kernels

DEVICES = ("cpu", "cuda")


def cuda_obstacle() -> str | None:
    """Why nothing can be measured on a GPU here; None when it can."""
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    rows = kernels(device="cuda")
    if not any(row.available for row in rows):
        return rows[0].unavailable if rows else "there are no CUDA kernels"
    return None


def best_device() -> str:
    """``cuda`` where a kernel can use it, else ``cpu``."""
    return "cpu" if cuda_obstacle() else "cuda"
