"""The library that replaces torch's own products by fastgemm's, in C++ and at no cost for other ops. It also gives
fastgemm's own ops gradients, autocast and layers without Python code in eager mode.

It uses torch's C++ interface, which changes from one minor version to the next, so there is one library for each
version. It is loaded with the package, and replaces torch's products at the first patch."""

from __future__ import annotations

import functools
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import torch

_FOLDER = Path(__file__).parent
TORCH = ".".join(torch.__version__.split(".")[:2])
HOW_TO_BUILD = "`pip install --force-reinstall --no-deps .` in a clone of fastgemm builds one for this torch"


def path() -> Path:
    """Where the library for this torch is, or would be."""
    return _FOLDER / f"libfastgemm_override_{TORCH.replace('.', '_')}.so"


def versions() -> list[str]:
    """The versions of torch for which this installation has a library."""
    found = _FOLDER.glob("libfastgemm_override_*.so")
    return sorted(f.stem.removeprefix("libfastgemm_override_").replace("_", ".") for f in found)


@functools.cache
def load() -> tuple[ModuleType | None, str]:
    """The library for this torch, as a module of Python, or the reason why there is none."""
    if not path().exists():
        there = ", ".join(versions()) or "none"
        return None, f"this build of fastgemm has no library for torch {TORCH} (but for: {there})"
    name = f"{__package__}._override"
    loader = ExtensionFileLoader(name, str(path()))
    try:
        spec = spec_from_loader(name, loader)
        assert spec is not None  # this kind of loader has one
        module = module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        return None, f"{path().name} cannot be loaded: {error}"
    return module, ""


def info() -> dict[str, str]:
    """The library's entry in ``fastgemm.build_info()``."""
    library, why_not = load()
    loaded = path().name if library is not None else f"none: {why_not}"
    return {"override_library": loaded, "override_torches": " ".join(versions())}


def _call(name: str) -> bool:
    """Calls a function of the library; returns whether there is a library."""
    library, _ = load()
    if library is not None:
        getattr(library, name)()
    return library is not None


@functools.cache
def use_in_eager_mode() -> bool:
    """Registers kernels, gradients and autocast in C++ for the ops of eager mode. Returns whether there is a
    library."""
    return _call("use_in_eager_mode")


@functools.cache
def register() -> bool:
    """Replaces torch's products, once for the process. Returns whether there is a library that can do this."""
    return _call("take_over")


def require(function: str) -> None:
    """Replaces torch's products for a public function, or raises and says how to get a library."""
    if not register():
        raise RuntimeError(f"{function}: {load()[1]}; {HOW_TO_BUILD}")
