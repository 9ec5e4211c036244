"""A contender that is ready to be called."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


class NotInstalledError(RuntimeError):
    """The peer is not installed."""


def wait_for_device(_: Any) -> None:
    """Waits for all of torch's pending work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@dataclass(frozen=True)
class Prepared:
    """A product that can be called repeatedly, ``inside`` a context. ``finish`` waits for its result.

    ``on_stream``: it runs on torch's current stream, where events can time it. ``name``: what ran.
    """

    call: Callable[[], Any]
    name: str
    inside: Callable[[], Any] = contextlib.nullcontext
    finish: Callable[[Any], None] = wait_for_device
    as_tensor: Callable[[Any], Tensor] = lambda result: result
    on_stream: bool = True

    def __call__(self) -> Any:
        return self.call()
