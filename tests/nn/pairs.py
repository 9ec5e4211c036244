"""A model with pairs of a layer and an activation, its input, wrong inputs, and the logged warnings."""

import logging

import pytest
import torch
from torch import nn

# Inputs that layers of 12 features refuse.
WRONG_INPUTS = [
    lambda: torch.randn(2, 11),
    lambda: torch.randn(11),
    lambda: torch.randn(()),
    lambda: torch.randn(2, 12, dtype=torch.float64),
    lambda: torch.randn(2, 12, dtype=torch.bfloat16),
    lambda: torch.ones(2, 12, dtype=torch.int32),
    lambda: torch.randn(2, 12, device="meta"),
    lambda: [1.0] * 12,
]


def draw() -> torch.Tensor:
    return torch.randn(7, 12)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(16, 8), nn.ReLU(inplace=True))
    return nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 16), nn.Tanh(), inner)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of the logger fastgemm.nn since the last call."""
    records = [r for r in caplog.records if (r.name, r.levelno) == ("fastgemm.nn", logging.WARNING)]
    caplog.clear()
    return [r.getMessage() for r in records]
