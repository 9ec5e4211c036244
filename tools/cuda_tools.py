"""Finds and runs the programs that read what nvcc compiles."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

# Where each tool comes from. cuobjdump calls nvdisasm.
SOURCES = dict.fromkeys(
    ("cuobjdump", "nvdisasm"),
    "`make .venv/.lint` installs the packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm",
)
SOURCES |= {"c++filt": "it is one of the binutils", "nvcc": "it comes with the CUDA toolkit, 13.0 or later"}


def tool_path() -> str:
    """PATH with two more folders: before it the CUDA tools that pip installed for this Python, after it the
    tools of a CUDA toolkit."""
    spec = importlib.util.find_spec("nvidia")
    installed = [f"{p}/cu13/bin" for p in (spec.submodule_search_locations or [] if spec else [])]
    return os.pathsep.join([*installed, os.environ["PATH"], "/usr/local/cuda/bin"])


def missing(*tools: str) -> str:
    """The first of these tools that is missing, and where it comes from; empty if all are here."""
    lacking = next((tool for tool in tools if shutil.which(tool, path=tool_path()) is None), None)
    return f"there is no {lacking}: {SOURCES[lacking]}" if lacking else ""


def run(*command: str | Path, text: str | None = None, folder: str | None = None) -> str:
    path = tool_path()
    program = shutil.which(command[0], path=path)
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(
        [program, *command[1:]], input=text, capture_output=True, text=True, env=environment, cwd=folder
    )
    if done.returncode:
        raise SystemExit(f"{command[0]} failed: {done.stderr.strip()}")
    return done.stdout
