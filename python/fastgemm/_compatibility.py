"""Checks the process: torch must be new enough, and libraries must load. Also checks what CUDA requires.

Importing this module loads the op library, or raises ImportError that says why it cannot be loaded.
"""

from __future__ import annotations

import ctypes
import importlib
import platform
import sys
from pathlib import Path

import torch

OLDEST_TORCH = (2, 11)  # TORCH_TARGET_VERSION in CMakeLists.txt
INTROSPECT, OP_LIBRARY = "fastgemm._introspect", "libfastgemm.so"
IMPORTED = "_fastgemm_is_imported"  # an attribute of torch.ops, which outlives the modules of this package
TORCH_WITH_CUDA = "https://pytorch.org/get-started/locally/"


def _load_libraries() -> None:
    # Older torch lacks functions that the op library binds to, and the loader would name one of them.
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if release < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise ImportError(
            f"fastgemm needs torch {oldest} or later, and this is torch {torch.__version__} in "
            f"{Path(torch.__file__).parent}; pip install 'torch>={oldest}'"
        )
    folder = Path(__file__).parent
    if INTROSPECT not in sys.modules:
        _check_first_load(folder)
    try:
        importlib.import_module(INTROSPECT)
    except ModuleNotFoundError as error:
        if error.name != INTROSPECT:
            raise
        if not folder.is_dir():
            raise ImportError(
                f"fastgemm cannot run from the archive that has {folder}: compiled libraries must be files; "
                "unpack or install it"
            ) from error
        raise ImportError(
            f"fastgemm in {folder} has no compiled libraries for Python "
            f"{platform.python_version()} ({platform.machine()}); build it with: pip install ."
        ) from error
    except ImportError as error:
        raise ImportError(f"fastgemm's compiled libraries cannot be loaded: {error}") from error
    try:
        sys.modules[INTROSPECT].cpu_properties()
    except ValueError as error:  # FASTGEMM_CPU_ISA
        raise ImportError(f"fastgemm: {error}") from None
    torch.ops.loaded_libraries.add(str(folder / OP_LIBRARY))
    setattr(torch.ops, IMPORTED, True)


def _check_first_load(folder: Path) -> None:
    """The op library registers ops in torch, and the import types in Python. A process can do either only once,
    also if the modules of the package were removed from ``sys.modules``. torch keeps the set of loaded op
    libraries. A program may have loaded this one by itself, before this first import."""
    for loaded in (Path(name).resolve() for name in torch.ops.loaded_libraries):
        if loaded.name != OP_LIBRARY:
            continue
        is_this = loaded.parent == folder.resolve()
        if is_this and not vars(torch.ops).get(IMPORTED):
            continue
        here = "" if is_this else f", and cannot be loaded from {folder} besides"
        raise ImportError(
            f"fastgemm was already loaded in this process, from {loaded.parent}{here}; restart the process"
        )


_load_libraries()


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def cuda_obstacles() -> list[str]:
    """The reasons why this process cannot use the CUDA kernels, each with what to do; [] if it can."""
    from .table import build_info, kernels

    found = []
    naive = kernels("gemm", "cuda")[0]  # this kernel needs the least: if it cannot run, none can
    if naive.unavailable is not None:
        found.append(naive.unavailable)
    if not build_info()["cuda_kernels"] and not _has_driver():
        found.append("no NVIDIA driver is installed (libcuda.so.1 was not found)")
    if torch.version.hip is not None:
        found.append(f"torch {torch.__version__} is a build for ROCm, and the kernels are CUDA's")
    elif torch.version.cuda is None:
        found.append(
            f"torch {torch.__version__} is a build without CUDA, which holds no tensors on a GPU "
            f"(install another: {TORCH_WITH_CUDA})"
        )
    return found
