"""What torch needs to know about the ops: shapes, gradients, transforms and the number of operations."""

from __future__ import annotations

from . import autograd, conjugates, fake, fake_fp8, fake_grouped, fake_quantized, flops, functorch


def register() -> None:
    """Tells torch, once, at the package's import."""
    for part in (fake, fake_quantized, fake_grouped, fake_fp8, autograd, functorch, conjugates, flops):
        part.register()
