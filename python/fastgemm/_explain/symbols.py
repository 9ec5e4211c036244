"""Finds the source lines of program counters of the simulated kernels, by binutils' addr2line."""

from __future__ import annotations

import re
import shutil
import subprocess
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from .kernel_names import short_name

_LOCATION = re.compile(r"(.*):(\d+|\?)(?: \(discriminator \d+\))?$")
_TREE = re.compile(r".*/(csrc/)")
# Functions by which a kernel accesses memory; a report shows the line that called them.
_BENEATH = re.compile(r"csrc/cuda/device/|csrc/simt/|/include/c\+\+/|/lib/gcc/|^\?\?$")
_LAUNCHER = "csrc/cuda/device/launch.cuh"  # what the compiler may inline a kernel into


@dataclass(frozen=True)
class Frame:
    """A function, and the line in it that was being executed."""

    function: str
    file: str  # from csrc/ on
    line: int
    path: str  # where the compiler found it

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@cache
def _tool() -> str | None:
    tool = shutil.which("addr2line")
    if tool is None:
        warnings.warn(
            "fastgemm.explain: addr2line (binutils) is not installed; sites are shown as module+offset",
            RuntimeWarning,
            stacklevel=2,
        )
    return tool


def _parse(lines: list[str]) -> tuple[Frame, ...]:
    """Pairs of a function and its place, innermost first."""
    frames = []
    for function, place in zip(lines[::2], lines[1::2], strict=False):
        found = _LOCATION.match(place)
        path, line = (found[1], found[2]) if found else (place, "?")
        file = _TREE.sub(r"\1", path)
        frames.append(Frame(short_name(function), file, int(line) if line.isdigit() else 0, path))
    return tuple(frames)


def _of_the_kernel(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames of the kernel: without the device layer that it calls, and without its launcher."""
    launcher = next((i for i, frame in enumerate(frames) if frame.file == _LAUNCHER), len(frames))
    inside = frames[:launcher]
    first = next((i for i, frame in enumerate(inside) if not _BENEATH.search(frame.file)), launcher)
    return inside[first:]


def locate(module: str, program_counters: Iterable[int]) -> dict[int, tuple[Frame, ...]]:
    """The chain of inlined calls at each program counter, innermost first, without those of the device layer.

    A program counter is the address after the access, from the start of the module. Without debug information, its
    chain is one frame that names module and offset."""
    counters = sorted(set(program_counters))
    found: dict[int, tuple[Frame, ...]] = {}
    tool = _tool()
    if tool is not None and counters:
        text = "\n".join(hex(pc - 1) for pc in counters)
        command = [tool, "-a", "-i", "-f", "-C", "-e", module]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        chunks = re.split(r"^0x[0-9a-f]+\n", done.stdout, flags=re.MULTILINE)[1:]
        for pc, chunk in zip(counters, chunks, strict=False):
            found[pc] = _of_the_kernel(_parse(chunk.splitlines()))
    name = Path(module).name
    return {pc: found.get(pc) or (Frame("", f"{name}+{pc - 1:#x}", 0, ""),) for pc in counters}


def source_lines(frame: Frame) -> list[str] | None:
    """The text of a frame's file, from the path of its compilation, the package, or the tree that the package is
    used in (objects from a compiler cache name another tree); None if there is no such file."""
    package = Path(str(files("fastgemm")))
    for path in (Path(frame.path), package / frame.file, package.parent.parent / frame.file):
        if path.is_file():
            return path.read_text(encoding="utf-8").splitlines()
    return None
