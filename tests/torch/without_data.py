"""Calls with real tensors, and with meta and fake tensors, which have no data."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

Make = Callable[..., Tensor]
KINDS = ("real", "meta", "fake")


@contextmanager
def tensors(kind: str) -> Iterator[Make]:
    """Yields a function that makes zero tensors of a kind."""
    if kind == "fake":
        with FakeTensorMode():
            yield lambda *shape: torch.zeros(shape)
    else:
        yield lambda *shape: torch.zeros(shape, **({"device": "meta"} if kind == "meta" else {}))


def error_of(kind: str, call: Callable[[Make], object]) -> Exception | None:
    with tensors(kind) as make:
        try:
            call(make)
        except Exception as error:
            return error
    return None


def raised(call: Callable[[Make], object]) -> dict[str, type[Exception] | None]:
    """The type of a call's exception, by kind of tensor."""
    errors = {kind: error_of(kind, call) for kind in KINDS}
    return {kind: error and type(error) for kind, error in errors.items()}
