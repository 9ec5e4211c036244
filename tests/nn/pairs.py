"""A model with pairs of a layer and an activation, and its input."""

from __future__ import annotations

import torch
from torch import nn


def draw() -> torch.Tensor:
    return torch.randn(7, 12)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(16, 8), nn.ReLU(inplace=True))
    return nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 16), nn.Tanh(), inner)
