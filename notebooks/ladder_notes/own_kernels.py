"""Compiles kernels that are written in a notebook, for the simulator, and runs them beside those of the package.

Each is a file such as those of csrc/cuda (CONTRIBUTING.md, "A CUDA kernel, on a laptop"), in another folder:
nothing of the package is changed or compiled again. Needs a clone of this repository, of the installed version,
and a C++ compiler, cmake, ninja and nanobind.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import fastgemm
from fastgemm._explain.run import kernels_of, load_simulator
from fastgemm.bench import Problem, check, instantiate
from fastgemm.bench.checking import Reference
from filelock import FileLock
from torch import Tensor

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "build" / "notebooks"
LAUNCHER = re.compile(r"^void (gemm|transpose|add)_(\w+)\(const (?:Gemm|Transpose|Add)Problem", re.MULTILINE)


@dataclass(frozen=True)
class OwnKernels:
    """The compiled kernels of one file; ``names`` is what ``kernel=`` takes."""

    module: ModuleType
    names: tuple[str, ...]

    @contextmanager
    def simulate(self) -> Iterator[None]:
        """Does what ``fastgemm.simulate()`` does, with only these kernels. A fault raises RuntimeError."""
        with kernels_of(self.module), fastgemm.simulate():
            yield

    def matmul(self, a: Tensor, b: Tensor, kernel: str | None = None) -> Tensor:
        """The product by one of them."""
        with self.simulate():
            return fastgemm.matmul(a, b, kernel=kernel or self.names[0])

    def check(self, problem: Problem, kernel: str | None = None) -> str:
        """Runs a problem, and says whether its result is right by the bound of fastgemm.bench, or where it is
        wrong, or what the fault was."""
        instance = instantiate(problem)
        with self.simulate():
            try:
                outcome = check(instance.ours(kernel=kernel or self.names[0]), Reference(instance))
            except RuntimeError as fault:
                return str(fault)
        return f"right, {outcome.worst:.2f} of the bound" if outcome.right else f"wrong: {outcome.message}"

    def explain(self, op: str = "gemm", kernel: str | None = None, **problem: Any) -> fastgemm.Report:
        """``fastgemm.explain`` of one of them: counters for each line, and in ``problems`` what the checks
        found."""
        with kernels_of(self.module):
            return fastgemm.explain(op, kernel=kernel or self.names[0], **problem)


def _missing(name: str) -> RuntimeError:
    return RuntimeError(f"to compile kernels this notebook needs {name}: pip install cmake ninja nanobind")


def _tool(name: str) -> str:
    """The path of a tool of this environment, whether or not the environment is activated."""
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if path is None:
        raise _missing(name)
    return path


def _levels(op: str, launchers: list[str]) -> str:
    """A header that lists an op's launchers: the package's header, with these launchers in place of its own."""
    listed = "".join(f" DECLARE({launcher})" for launcher in launchers)
    problem = f"const {op.capitalize()}Problem&"
    declared = "".join(f"void {launcher}({problem}, Context&);\n" for launcher in launchers)
    return (
        f'#pragma once\n#include "{REPOSITORY}/csrc/cuda/{op}/levels.h"\n'
        f"#undef FASTGEMM_CUDA_{op.upper()}\n#define FASTGEMM_CUDA_{op.upper()}(DECLARE){listed}\n"
        f"namespace fastgemm::simt {{\n{declared}}}\n"
    )


def _rows(launchers: list[str]) -> str:
    """A rows.def that lists these kernels in place of the package's."""
    listed = "".join(f"FASTGEMM_ROW({launcher.removeprefix('gemm_')})\n" for launcher in launchers)
    return f"{listed}#undef FASTGEMM_ROW\n"


def _write(path: Path, text: str) -> None:
    """Does not write a file that would not change, so that it is not compiled again."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _run(failure: str, *command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()
        errors = [line for line in lines if "error" in line.lower()] or lines[-20:]
        raise RuntimeError(f"{failure}:\n" + "\n".join(errors))


def compile_kernels(file: str, source: str) -> OwnKernels:
    """Compiles a file of CUDA kernels for the simulator. Where the package was not built in this clone, the
    first time compiles the simulator's own code, too.

    Args:
        file: its name, such as ``level2_mine.cu``: what reports call it.
        source: its text, with one or more launchers ``void gemm_NAME(const GemmProblem&, Context&)``.

    Raises:
        RuntimeError: it does not compile, or a tool or the repository is missing.
    """
    if not (REPOSITORY / "csrc" / "simt").is_dir():
        raise RuntimeError(
            "kernels are compiled against csrc: run this notebook in a clone of the repository"
        )
    found = LAUNCHER.findall(source)
    if not found:
        raise RuntimeError(f"{file} has no launcher: void gemm_NAME(const GemmProblem&, Context&)")
    # A module that is loaded cannot be loaded again from the same path: so each source text has its own path.
    name = f"{Path(file).stem}_{hashlib.sha256(source.encode()).hexdigest()[:8]}"
    folder = BUILD / "kernels" / name / "csrc" / "cuda"
    _write(folder / found[0][0] / file, source)
    launchers = {
        op: [f"{op}_{kernel}" for of, kernel in found if of == op] for op in ("gemm", "transpose", "add")
    }
    _write(folder / "gemm" / "rows.def", _rows(launchers["gemm"]))
    for op in ("transpose", "add"):
        _write(folder / op / "levels.h", _levels(op, launchers[op]))
    _build(name)
    (path,) = (BUILD / "modules" / name).glob("_simt*.so")
    # The entry point is PyInit__simt whatever comes before the dot, and Python keeps one module for each name.
    spec = importlib.util.spec_from_file_location(f"{name}._simt", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    load_simulator().install()  # because loading the module installed its kernels
    return OwnKernels(module, tuple(kernel for _, kernel in found))


def _objects_of_package() -> Path | str:
    """The folder of the simulator's compiled files, if this clone was built and no source is newer."""
    built = REPOSITORY / "build" / f"cmake-{sys.implementation.cache_tag}" / "csrc" / "simt"
    library = built / "libfastgemm_simt.so"
    sources = (
        path for part in ("core", "cuda", "simt") for path in (REPOSITORY / "csrc" / part).rglob("*.*")
    )
    newest = max(path.stat().st_mtime for path in sources)
    return built / "CMakeFiles" if library.is_file() and library.stat().st_mtime > newest else ""


def _build(target: str) -> None:
    try:
        import nanobind
    except ModuleNotFoundError as error:
        raise _missing("nanobind") from error
    modules, library = BUILD / "modules", Path(fastgemm.__file__).parent / "libfastgemm.so"
    settings = {
        "CMAKE_MAKE_PROGRAM": _tool("ninja"),
        "OWN_KERNELS": BUILD / "kernels",
        "FASTGEMM_LIBRARY": library,
        "PACKAGE_OBJECTS": _objects_of_package(),
        "Python_EXECUTABLE": sys.executable,
        "nanobind_DIR": nanobind.cmake_dir(),
    }
    places = ("-S", str(Path(__file__).parent / "own"), "-B", str(modules), "-G", "Ninja")
    chosen = [f"-D{name}={value}" for name, value in settings.items()]
    BUILD.mkdir(parents=True, exist_ok=True)
    with FileLock(BUILD / "lock"):  # notebooks that run side by side share the folder
        _run("cmake cannot set up the simulator", _tool("cmake"), *places, *chosen)
        _run("the kernel does not compile", _tool("cmake"), "--build", str(modules), "--target", target)
