"""Tests for which GPUs the CUDA kernels are built, and the messages about it: setup.py with a fake nvidia-smi and
nvcc, and CMake."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import setuptools
from pages import ROOT

if not (ROOT / "setup.py").is_file():
    pytest.skip("the sources are not here", allow_module_level=True)

CUDA_12_4 = (75, 80, 86, 87, 89, 90)
CUDA_13_0 = (*CUDA_12_4, 88, 100, 103, 110, 120, 121)


@pytest.fixture
def script(monkeypatch):
    """setup.py as a module, without its call of setup()."""
    monkeypatch.setattr(setuptools, "setup", lambda **_: None)
    spec = importlib.util.spec_from_file_location("fastgemm_setup", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Simulates a machine with these GPUs and an nvcc for these architectures. Returns the path of this nvcc."""

    def program(name: str, says: str) -> Path:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho '{says}'\n")
        path.chmod(0o755)
        return path

    def make(gpus: tuple[str, ...], known: tuple[int, ...] = CUDA_13_0) -> str:
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        monkeypatch.delenv("FASTGEMM_CUDA_ARCHS", raising=False)
        if gpus:
            program("nvidia-smi", "\n".join(gpus))
        return str(program("nvcc", "\n".join(f"sm_{each}" for each in known)))

    return make


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (("8.0",), "80-real"),
        (("8.6",), "86-real"),
        (("8.7",), "87-real"),
        (("9.0", "9.0"), "90a-real"),
        (("10.3",), "103-real"),
        (("11.0",), "110-real"),
        (("12.0",), "120-real"),
        (("8.9", "12.1"), "89-real;121-real"),
        (("7.5", "8.0"), "80-real"),
        (("7.5",), "80;90a-real;100-real;120-real"),
        ((), "80;90a-real;100-real;120-real"),
        (("[N/A]",), "80;90a-real;100-real;120-real"),
    ],
)
def test_the_gpus_found_decide_else_every_gpu_is_served(script, machine, gpus, expected):
    if not gpus and shutil.which("nvidia-smi", path="/usr/bin:/bin"):
        pytest.skip("this machine's nvidia-smi cannot be hidden")
    assert script.architectures(machine(gpus)) == expected


@pytest.mark.parametrize(
    ("gpu", "known", "expected"),
    [
        ("10.0", CUDA_12_4, "80-virtual"),
        ("12.1", (*CUDA_12_4, 100, 120), "120-real"),
        ("13.0", CUDA_13_0, "80-virtual"),
        ("8.9", (80, 86, 90), "86-real"),
    ],
)
def test_a_gpu_newer_than_nvcc_gets_its_family_s_code_or_ptx(script, machine, gpu, known, expected):
    assert script.architectures(machine((gpu,), known)) == expected


def test_a_release_serves_every_gpu_wherever_it_is_built(script, machine, monkeypatch):
    nvcc = machine(("9.0",))
    monkeypatch.setenv("FASTGEMM_CUDA_ARCHS", "release")
    assert script.architectures(nvcc) == "80;90a-real;100-real;120-real"


def test_an_old_nvcc_builds_what_it_knows(script, machine):
    assert script.architectures(machine(("7.5",), CUDA_12_4)) == "80;90a-real"


def test_the_variable_decides_and_a_gpu_too_old_is_no_reason_to_build(script, machine, monkeypatch, tmp_path):
    nvcc = machine(("7.5",))
    monkeypatch.setenv("FASTGEMM_CUDA", "auto")
    monkeypatch.setattr(script, "find_nvcc", lambda: nvcc)
    assert script.cuda_options(tmp_path) == ["-DFASTGEMM_CUDA=OFF"]
    monkeypatch.setenv("FASTGEMM_CUDA", "1")
    monkeypatch.setenv("FASTGEMM_CUDA_ARCHS", "90-real")
    assert script.cuda_options(tmp_path)[-1] == "-DFASTGEMM_CUDA_ARCHS=90-real"


def test_what_is_compiled_is_counted_and_how_long_it_takes(script, tmp_path):
    """One of 200 C++ files is already compiled. A CUDA file is compiled once for each architecture."""
    cuda = "nvcc -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=sm_86 -o k.o -c k.cu"
    commands = [f"g++ -o lib.dir/{i}.o -c {i}.cpp" for i in range(200)] + [cuda] * 10
    (tmp_path / "lib.dir").mkdir()
    (tmp_path / "lib.dir/0.o").touch()

    def said(of: list[str], jobs: int) -> str:
        stored = [{"directory": str(tmp_path), "command": each} for each in of]
        (tmp_path / "compile_commands.json").write_text(json.dumps(stored))
        return script.what_is_compiled(tmp_path, jobs)

    both = "fastgemm: compiling 199 C++ files, 10 CUDA files, about 6 minutes by 2 compilers; once"
    assert said(commands, 2) == both
    assert said(commands[:3], 1) == "fastgemm: compiling 2 C++ files, about 1 minute by 1 compiler; once"
    assert said(commands[:1], 1) == "fastgemm: compiling what has changed"


def test_a_step_that_fails_ends_without_a_traceback(script):
    with pytest.raises(SystemExit, match="fastgemm: false failed; its output above says why"):
        script.run(["false"], {})


def test_cmake_s_default_is_the_release_s(script):
    assert f'set(FASTGEMM_CUDA_ARCHS "{";".join(script.RELEASE)}"' in (ROOT / "CMakeLists.txt").read_text()


def flags(architectures: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The architectures that architectures.cmake derives from FASTGEMM_CUDA_ARCHS."""
    cmake = shutil.which("cmake", path=str(Path(sys.executable).parent)) or shutil.which("cmake")
    if cmake is None:
        pytest.skip("there is no cmake")
    script = folder / "flags.cmake"
    script.write_text(
        f"include({ROOT}/csrc/cuda/architectures.cmake)\n"
        f'fastgemm_architecture_flags("{architectures}" flags)\nmessage("${{flags}}")\n'
    )
    return subprocess.run([cmake, "-P", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("architectures", "expected"),
    [
        ("86-real", ["compute_80,code=sm_86"]),
        ("90-real", ["compute_80,code=sm_90"]),  # the portable path on Hopper
        ("90a-real;80-virtual", ["compute_90a,code=sm_90a", "compute_80,code=compute_80"]),
        ("90a", ["compute_90a,code=sm_90a"]),  # no PTX, because it would serve only this GPU
        ("90a-virtual", ["compute_90a,code=compute_90a"]),
        ("80;120-real", ["compute_80,code=sm_80", "compute_80,code=compute_80", "compute_80,code=sm_120"]),
        ("120f-real", ["compute_120f,code=sm_120f"]),
    ],
)
def test_one_source_path_serves_every_gpu_but_hopper(architectures, expected, tmp_path):
    found = flags(architectures, tmp_path)
    assert found.stderr.strip().split(";") == [f"-gencode=arch={each}" for each in expected]


@pytest.mark.parametrize(
    ("architectures", "reason"),
    [
        ("native", "FASTGEMM_CUDA_ARCHS has 'native'"),
        ("75-real", "the kernels need 80 or later"),
        ("80;90;90a-real", "has 90 and 90a-real"),
        ("", "FASTGEMM_CUDA_ARCHS is empty"),
    ],
)
def test_cmake_refuses_what_no_gpu_could_run(architectures, reason, tmp_path):
    found = flags(architectures, tmp_path)
    assert found.returncode and reason in " ".join(found.stderr.split())
