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
    """Of one instantiation: registers of a thread, bytes of static shared memory of a block."""

    registers: int
    shared_bytes: int


@cache
def _compiled() -> tuple[str, dict[str, Resources]]:
    stored = json.loads(files(__package__).joinpath("cuda_resources.json").read_text(encoding="utf-8"))
    return stored["arch"], {name: Resources(*found) for name, found in stored["kernels"].items()}


def architecture() -> str:
    """What the kernels were compiled for."""
    return _compiled()[0]


def resources(function: str) -> Resources | None:
    """Of a demangled kernel, from nvcc or from the simulator; None where nvcc has not seen it."""
    return _compiled()[1].get(short_name(function))
