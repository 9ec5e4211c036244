"""Registers and static shared memory of every kernel, as nvcc compiled them.

cuda_resources.json is written by tools/check_sass.py from the machine code, and checked there.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from .kernel_names import short_name


class Resources(NamedTuple):
    """Resources of one instantiation: registers of a thread, bytes of static shared memory of a block, and the
    architecture that it was compiled for."""

    registers: int
    shared_bytes: int
    architecture: str


@cache
def _compiled() -> dict[str, dict[str, Resources]]:
    stored = json.loads(files(__package__).joinpath("cuda_resources.json").read_text(encoding="utf-8"))
    return {
        architecture: {name: Resources(found[0], found[1], architecture) for name, found in kernels.items()}
        for architecture, kernels in stored.items()
    }


def _number(architecture: str) -> int:
    return int("".join(filter(str.isdigit, architecture)))


def architecture(capability: str) -> str:
    """The architecture whose code a GPU of this compute capability runs."""
    number = _number(capability)
    exact = [known for known in _compiled() if _number(known) == number]
    earlier = [known for known in _compiled() if known[-1].isdigit()]
    return max(exact or [known for known in earlier if _number(known) <= number], key=_number)


def resources(function: str, capability: str) -> Resources | None:
    """The resources of a kernel by its demangled name; None if nvcc has not compiled it. If a kernel is not for
    this compute capability, the resources on other architectures."""
    name, own = short_name(function), architecture(capability)
    found = [_compiled()[known].get(name) for known in (own, *_compiled())]
    return next(filter(None, found), None)
