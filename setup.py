"""Builds the C++ libraries with CMake and ninja. All other settings are in pyproject.toml.

Environment:
    FASTGEMM_CUDA        auto (default), 0 or 1: whether to build the CUDA kernels. auto builds them if nvcc is
                         installed, and if the torch found is a CUDA build or a GPU is visible.
    FASTGEMM_CUDA_ARCHS  as CMAKE_CUDA_ARCHITECTURES, or release: 80;90a-real;100-real;120-real, which serve
                         every GPU since 8.0. Default: those of the GPUs found, else release. On a GPU of 9.0,
                         90-real gives the code that all other GPUs run (csrc/cuda/architectures.cmake).
    FASTGEMM_SIMT        0 leaves out the simulator of the CUDA kernels (default 1).
    FASTGEMM_NATIVE      1 compiles the kernels for CPUs only for the instruction set of this processor. On another
                         processor this build raises an error.
    FASTGEMM_OVERRIDE    0 leaves out the override library, for a torch whose C++ interface it does not support.
    FASTGEMM_OVERRIDE_TORCHES
                         folders of further versions of torch, or of their headers, separated by ';'. An override
                         library (csrc/torch/override) is built for each of them and for the torch found.
                         tools/torch_headers.py prints the folders for a release.
    FASTGEMM_PYTHONS     further interpreters to build the Python modules for, separated by ';'. A wheel for every
                         Python needs 3.10, 3.11 and one from 3.12 on, together with this one.
    FASTGEMM_TORCH_DIR   folder of the torch to build against instead of the installed one. It has version.py,
                         include/ and lib/libtorch_cpu.so. Builds for another architecture need it (ARCH of
                         tools/build_wheels.sh).
    FASTGEMM_LABEL       a local version, such as cpu in 0.1.0+cpu. It distinguishes two wheels of one version.
    MAX_JOBS             parallel compile jobs.

pip shows the progress of the compilation only with -v. `python setup.py build_ext --inplace` always shows it, and
an editable install after it has nothing left to compile. --quiet before build_ext leaves out ninja's lines.

This file finds torch without importing it, because the stable ABI needs only torch's headers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()
sys.path.insert(0, str(ROOT / "tools"))
from long_description import long_description, repository  # noqa: E402

# Machine code of 8.0 runs on 8.6 and 8.9, that of 10.0 on 10.3, and that of 12.0 on 12.1. All others (8.7, 11.0
# and future ones) use the PTX of 8.0. csrc/cuda/architectures.h has the rules.
RELEASE = ("80", "90a-real", "100-real", "120-real")
# Of csrc, what is no source of a kernel: build files and predictions.
NOT_SHOWN = shutil.ignore_patterns("*.cmake", "predict")


def torch_dir() -> Path:
    if named := os.environ.get("FASTGEMM_TORCH_DIR"):
        return Path(named).resolve()
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("fastgemm: torch is not installed in this environment; install torch>=2.11 first")
    return Path(next(iter(spec.submodule_search_locations)))


def find_nvcc() -> str | None:
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")] + ["/usr/local/cuda"]
    candidates = [Path(home) / "bin" / "nvcc" for home in homes if home]
    return next((str(c) for c in candidates if c.is_file()), None) or shutil.which("nvcc")


def known_architectures(nvcc: str) -> set[int]:
    """Compute capabilities since 8.0 that this nvcc compiles for."""
    done = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=False)
    return {int(code) for code in re.findall(r"sm_(\d+)\s", done.stdout) if int(code) >= 80}


def gpu_capabilities() -> list[int]:
    """Compute capabilities since 8.0 of the GPUs here, as nvidia-smi names them; [] without a driver."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return []
    query = [smi, "--query-gpu=compute_cap", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    found = {int(line.replace(".", "")) for line in done.stdout.split() if re.fullmatch(r"\d+\.\d", line)}
    return sorted(capability for capability in found if capability >= 80) if done.returncode == 0 else []


def architecture_for(capability: int, known: set[int]) -> str:
    """The entry of FASTGEMM_CUDA_ARCHS that serves a GPU. A GPU newer than nvcc runs the machine code of an
    earlier member of its family, or PTX."""
    if capability == 90:
        return "90a-real"
    family = [code for code in known if code // 10 == capability // 10 and code <= capability]
    return f"{max(family)}-real" if family else "80-virtual"


def architectures(nvcc: str) -> str:
    """The architectures that FASTGEMM_CUDA_ARCHS requests, in CMake's form."""
    asked = os.environ.get("FASTGEMM_CUDA_ARCHS", "")
    if asked not in ("", "release"):
        return asked
    known = known_architectures(nvcc)
    gpus = [] if asked else [architecture_for(capability, known) for capability in gpu_capabilities()]
    release = [entry for entry in RELEASE if int(re.match(r"\d+", entry)[0]) in known]
    return ";".join(dict.fromkeys(gpus or release))


def torch_has_cuda(torch: Path) -> bool:
    return any((torch / "lib").glob("libtorch_cuda*"))


def cuda_options(torch: Path) -> list[str]:
    wanted = os.environ.get("FASTGEMM_CUDA", "auto")
    if wanted not in ("auto", "0", "1"):
        raise SystemExit(f"fastgemm: FASTGEMM_CUDA={wanted!r}: expected auto, 0 or 1")
    nvcc = find_nvcc()
    if wanted == "1" and nvcc is None:
        raise SystemExit(
            "fastgemm: FASTGEMM_CUDA=1, but no nvcc was found; install the CUDA toolkit or set CUDA_HOME"
        )
    useful = torch_has_cuda(torch) or bool(gpu_capabilities())
    if wanted == "0" or (wanted == "auto" and (nvcc is None or not useful)):
        return ["-DFASTGEMM_CUDA=OFF"]
    archs = architectures(nvcc)
    return ["-DFASTGEMM_CUDA=ON", f"-DCMAKE_CUDA_COMPILER={nvcc}", f"-DFASTGEMM_CUDA_ARCHS={archs}"]


def further_pythons() -> list[str]:
    return [each for each in os.environ.get("FASTGEMM_PYTHONS", "").split(";") if each]


def version_of(python: str) -> tuple[int, int]:
    said = subprocess.run(
        [python, "-c", "import sys; print(*sys.version_info[:2])"], check=True, capture_output=True
    )
    major, minor = map(int, said.stdout.split())
    return major, minor


# The time of one core, with gcc 12 and nvcc 13, for a C++ file and for one architecture of a CUDA file.
CXX_SECONDS, CUDA_SECONDS = 3, 6


def what_is_compiled(build: Path, jobs: int) -> str:
    """The number of files without an object, and about how long they take. Ninja finds the other changes."""
    stored = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    commands = [each["command"] for each in stored]
    new = [command for command in commands if not (build / re.search(r" -o (\S+)", command)[1]).exists()]
    cuda = [command for command in new if "-gencode" in command]

    def several(count: int, what: str) -> str:
        return f"{count} {what}{'s' * (count != 1)}"

    counts = [several(len(new) - len(cuda), "C++ file")] * (len(new) > len(cuda))
    counts += [several(len(cuda), "CUDA file")] * bool(cuda)
    seconds = CXX_SECONDS * (len(new) - len(cuda))
    seconds += CUDA_SECONDS * sum(command.count("-gencode") for command in cuda)
    minutes = max(1, round(seconds / 60 / jobs))
    counts += [f"about {several(minutes, 'minute')} by {several(jobs, 'compiler')}; once"]
    return f"fastgemm: compiling {', '.join(counts) if new else 'what has changed'}"


def run(command: list[str], environment: dict[str, str]) -> None:
    if subprocess.run(command, env=environment, check=False).returncode:
        raise SystemExit(f"fastgemm: {Path(command[0]).name} failed; its output above says why")


class CMakeBuild(build_ext):
    """Runs CMake once for all libraries and puts them into the package."""

    def run(self) -> None:
        import nanobind

        torch = torch_dir()
        editable = self.editable_mode or self.inplace
        package = (ROOT / "python" if editable else Path(self.build_lib).resolve()) / "fastgemm"
        # Python's variable for a wheel for another architecture. Such a build has its own folder.
        other = os.environ.get("_PYTHON_HOST_PLATFORM", "")
        build = ROOT / "build" / "-".join(filter(None, ("cmake", sys.implementation.cache_tag, other)))
        configure = [
            "cmake",
            "-S",
            str(ROOT),
            "-B",
            str(build),
            "-G",
            "Ninja",
            "--log-level=NOTICE",
            "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
            f"-DCMAKE_INSTALL_PREFIX={package}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dnanobind_DIR={nanobind.cmake_dir()}",
            f"-DFASTGEMM_TORCH_DIR={torch}",
            f"-DFASTGEMM_VERSION={self.distribution.get_version()}",
            f"-DFASTGEMM_OVERRIDE={'OFF' if os.environ.get('FASTGEMM_OVERRIDE') == '0' else 'ON'}",
            f"-DFASTGEMM_SIMT={'OFF' if os.environ.get('FASTGEMM_SIMT') == '0' else 'ON'}",
            f"-DFASTGEMM_NATIVE={'ON' if os.environ.get('FASTGEMM_NATIVE') == '1' else 'OFF'}",
            f"-DFASTGEMM_OVERRIDE_TORCHES={os.environ.get('FASTGEMM_OVERRIDE_TORCHES', '')}",
            *cuda_options(torch),
        ]
        # This environment's cmake and ninja come first, even if it is not activated: CMake before 3.25.2 does not
        # support C++20 in CUDA.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        environment = {**os.environ, "PATH": path}
        # The cache may hold paths of another environment: pip's build isolation makes new environments.
        (build / "CMakeCache.txt").unlink(missing_ok=True)
        cmake = configure[0] = shutil.which("cmake", path=path) or "cmake"
        run(configure, environment)
        jobs = os.environ.get("MAX_JOBS") or str(os.cpu_count() or 1)
        print(what_is_compiled(build, int(jobs)), flush=True)
        compile_all = [cmake, "--build", str(build), "--parallel", jobs]
        compile_all += [] if self.distribution.verbose else ["--", "--quiet"]
        run(compile_all, environment)
        # Another torch or Python would otherwise load an old library together with the new libfastgemm.
        for stale in package.glob("*.so"):
            stale.unlink()
        run([cmake, "--install", str(build)], environment)
        for python in further_pythons():
            modules = build / "modules-{}.{}".format(*version_of(python))
            (modules / "CMakeCache.txt").unlink(missing_ok=True)
            places = [cmake, "-S", str(ROOT / "csrc/python"), "-B", str(modules), "-G", "Ninja"]
            chosen = [f"-DCMAKE_INSTALL_PREFIX={package}", f"-DFASTGEMM_LIBRARIES={package}"]
            chosen += [f"-DPython_EXECUTABLE={python}", f"-Dnanobind_DIR={nanobind.cmake_dir()}"]
            run([*places, *chosen], environment)
            run([cmake, "--build", str(modules), "--parallel", jobs], environment)
            run([cmake, "--install", str(modules)], environment)
        if not editable:  # `fastgemm explain` and the notebooks show the kernels' source
            for device in ("cpu", "cuda"):
                source, target = (folder / "csrc" / device for folder in (ROOT, package))
                shutil.copytree(source, target, ignore=NOT_SHOWN, dirs_exist_ok=True)

    def get_source_files(self) -> list[str]:
        return []


class Wheel(bdist_wheel):
    """Tags a wheel by the interpreters of its modules. The rest does not depend on the interpreter."""

    def run(self) -> None:
        if os.environ.get("FASTGEMM_NATIVE") == "1":
            raise SystemExit("fastgemm: a wheel with FASTGEMM_NATIVE=1 would run on this processor only")
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        served = {sys.version_info[:2], *map(version_of, further_pythons())}
        if not further_pythons() and sys.version_info < (3, 12):
            return (*super().get_tag()[:2], platform)
        if max(served) < (3, 12) or (further_pythons() and not served >= {(3, 10), (3, 11)}):
            there = ", ".join("{}.{}".format(*each) for each in sorted(served))
            raise SystemExit(
                "fastgemm: a wheel for every Python needs 3.10, 3.11 and one from 3.12 on; with "
                f"FASTGEMM_PYTHONS there are {there}"
            )
        # pip installs an abi3 wheel for this Python and all later ones, except for free-threaded ones.
        return ("cp310" if further_pythons() else "cp312"), "abi3", platform


def version() -> str:
    return re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]


label = os.environ.get("FASTGEMM_LABEL")
setup(
    long_description=long_description(
        (ROOT / "README.md").read_text(encoding="utf-8"), repository(), version()
    ),
    long_description_content_type="text/markdown",
    options={"egg_info": {"tag_build": f"+{label}"}} if label else {},
    ext_modules=[Extension("fastgemm._introspect", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "bdist_wheel": Wheel},
)
