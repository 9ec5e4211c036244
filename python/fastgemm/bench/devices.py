"""The device on which a command measures."""

from __future__ import annotations

import torch

from ..table import kernels

DEVICES = ("cpu", "cuda")


def cuda_obstacle() -> str | None:
    """The reason why nothing can be measured on a GPU here, or None."""
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    rows = kernels(device="cuda")
    if not any(row.available for row in rows):
        return rows[0].unavailable if rows else "there are no CUDA kernels"
    return None


def best_device() -> str:
    """``cuda`` if a kernel can use it, else ``cpu``."""
    return "cpu" if cuda_obstacle() else "cuda"
