import functools

import pytest
import torch
from fastgemm import _explain


@pytest.fixture
def quick(monkeypatch):
    """Replaces slow steps: drawing pictures, repeated simulations, and compiling to machine code."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda _, path, **__: path.write_bytes(b"drawn"))
    monkeypatch.setattr(_explain, "explain", functools.cache(_explain.explain))
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
