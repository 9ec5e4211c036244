"""Builds the C++ libraries with CMake and ninja; everything else stands in pyproject.toml.

Environment:
    FASTGEMM_CUDA        auto (default), 0 or 1: whether to build the CUDA kernels. auto builds them where nvcc
                         is installed and the torch found is a CUDA build or a GPU is visible.
    FASTGEMM_CUDA_ARCHS  as CMAKE_CUDA_ARCHITECTURES; default: the GPUs found, else 80-real;90a-real;90-virtual.
    FASTGEMM_SIMT        0 leaves out the simulator of the CUDA kernels (default 1).
    FASTGEMM_OVERRIDE    0 leaves out the library of overrides: for a torch whose C++ interface it does not know.
    FASTGEMM_OVERRIDE_TORCHES
                         folders of further versions of torch, or of their headers, separated by ';': a library of
                         overrides (csrc/torch/override) is built for each, besides that for the torch found.
                         tools/torch_headers.py prints those of a release.
    MAX_JOBS             parallel compile jobs.

torch is found without importing it: its headers are all that the stable ABI needs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()


def torch_dir() -> Path:
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("fastgemm: torch is not installed in this environment; install torch>=2.11 first")
    return Path(next(iter(spec.submodule_search_locations)))


def find_nvcc() -> str | None:
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")] + ["/usr/local/cuda"]
    candidates = [Path(home) / "bin" / "nvcc" for home in homes if home]
    return next((str(c) for c in candidates if c.is_file()), None) or shutil.which("nvcc")


def gpu_architectures() -> list[str]:
    """Compute capabilities of the GPUs in this machine, as nvidia-smi names them; [] without a driver."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return []
    query = [smi, "--query-gpu=compute_cap", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    found = sorted({line.strip().replace(".", "") for line in done.stdout.splitlines() if "." in line})
    return [f"{cc}a-real" if int(cc) >= 90 else f"{cc}-real" for cc in found] if done.returncode == 0 else []


def torch_has_cuda(torch: Path) -> bool:
    return any((torch / "lib").glob("libtorch_cuda*"))


def cuda_options(torch: Path) -> list[str]:
    wanted = os.environ.get("FASTGEMM_CUDA", "auto")
    if wanted not in ("auto", "0", "1"):
        raise SystemExit(f"fastgemm: FASTGEMM_CUDA={wanted!r}: expected auto, 0 or 1")
    nvcc, gpus = find_nvcc(), gpu_architectures()
    if wanted == "1" and nvcc is None:
        raise SystemExit(
            "fastgemm: FASTGEMM_CUDA=1, but no nvcc was found; install the CUDA toolkit or set CUDA_HOME"
        )
    build = wanted == "1" or (wanted == "auto" and nvcc is not None and (bool(gpus) or torch_has_cuda(torch)))
    if not build:
        return ["-DFASTGEMM_CUDA=OFF"]
    archs = os.environ.get("FASTGEMM_CUDA_ARCHS") or ";".join(gpus) or "80-real;90a-real;90-virtual"
    return ["-DFASTGEMM_CUDA=ON", f"-DCMAKE_CUDA_COMPILER={nvcc}", f"-DFASTGEMM_CUDA_ARCHS={archs}"]


class CMakeBuild(build_ext):
    """Runs CMake once for all libraries and puts them into the package."""

    def run(self) -> None:
        import pybind11

        torch = torch_dir()
        package = (ROOT / "python" if self.editable_mode else Path(self.build_lib).resolve()) / "fastgemm"
        build = ROOT / "build" / f"cmake-{sys.implementation.cache_tag}"
        configure = [
            "cmake",
            "-S",
            str(ROOT),
            "-B",
            str(build),
            "-G",
            "Ninja",
            f"-DCMAKE_INSTALL_PREFIX={package}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
            f"-DFASTGEMM_TORCH_DIR={torch}",
            f"-DFASTGEMM_VERSION={self.distribution.get_version()}",
            f"-DFASTGEMM_OVERRIDE={'OFF' if os.environ.get('FASTGEMM_OVERRIDE') == '0' else 'ON'}",
            f"-DFASTGEMM_SIMT={'OFF' if os.environ.get('FASTGEMM_SIMT') == '0' else 'ON'}",
            f"-DFASTGEMM_OVERRIDE_TORCHES={os.environ.get('FASTGEMM_OVERRIDE_TORCHES', '')}",
            *cuda_options(torch),
        ]
        # cmake and ninja of this environment come first, whether or not it is activated: older ones than CMake
        # 3.25.2 do not know C++20 in CUDA.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        environment = {**os.environ, "PATH": path}
        # A tree configured by another environment (pip's build isolation makes new ones) remembers its paths.
        (build / "CMakeCache.txt").unlink(missing_ok=True)
        cmake = configure[0] = shutil.which("cmake", path=path) or "cmake"
        subprocess.run(configure, check=True, env=environment)
        jobs = os.environ.get("MAX_JOBS") or str(os.cpu_count() or 1)
        subprocess.run([cmake, "--build", str(build), "--parallel", jobs], check=True, env=environment)
        # One for a torch that this build is not for would be loaded under that torch, into another libfastgemm.
        for stale in package.glob("libfastgemm_override_*.so"):
            stale.unlink()
        subprocess.run([cmake, "--install", str(build)], check=True, env=environment)
        if not self.editable_mode:  # `fastgemm explain` and the notebooks show the kernels' source
            for device in ("cpu", "cuda"):
                source, target = (folder / "csrc" / device for folder in (ROOT, package))
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.cmake"), dirs_exist_ok=True)

    def get_source_files(self) -> list[str]:
        return []


setup(ext_modules=[Extension("fastgemm._introspect", sources=[])], cmdclass={"build_ext": CMakeBuild})
