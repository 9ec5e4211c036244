"""Tests the messages of `fastgemm info` and of a failing import. Each cause of an error is simulated."""

import ast
import json
import platform
from pathlib import Path

import fastgemm
import pytest
import torch
from fastgemm import _compatibility
from processes import copy_of_package, run_forked

INFO = "from fastgemm.cli import main; main(['info', '--json'])"
OTHER_TORCH = """
import torch
torch.__version__ = {version!r}
import fastgemm
print(fastgemm.build_info())
"""


def info(**environment: str) -> dict:
    done = run_forked(INFO, **environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("version", ["2.10.1", "2.9.0+cu128"])
def test_an_older_torch_is_named(version):
    done = run_forked(OTHER_TORCH.format(version=version))
    assert done.returncode != 0
    said = f"ImportError: fastgemm needs torch 2.11 or later, and this is torch {version} in "
    assert done.stderr.strip().splitlines()[-1].startswith(said)


def test_an_unknown_instruction_set_is_named():
    done = run_forked("import fastgemm", FASTGEMM_CPU_ISA="avx3")
    said = "ImportError: fastgemm: FASTGEMM_CPU_ISA=avx3: expected baseline, avx2, avx512 or native"
    assert done.returncode != 0 and done.stderr.strip().splitlines()[-1] == said


def library_named(torches: str, torch_version: str) -> str:
    """The message about the override library, for given versions of torch that have one."""
    if torch_version in torches.split():
        return f"libfastgemm_override_{torch_version.replace('.', '_')}.so"
    there = ", ".join(torches.split()) or "none"
    return f"none: this build of fastgemm has no library for torch {torch_version} (but for: {there})"


@pytest.mark.parametrize("version", ["3.0.0a0+git1234", torch.__version__])
def test_the_override_library_is_named_or_why_there_is_none(version):
    built = ast.literal_eval(run_forked(OTHER_TORCH.format(version=version)).stdout)
    short = ".".join(version.split(".")[:2])
    assert built["override_library"] == library_named(built["override_torches"], short)


def import_from(folder: Path) -> str:
    """The last line that an import of the package in this folder prints."""
    done = run_forked(f"import sys; sys.path.insert(0, {str(folder)!r}); import fastgemm")
    assert done.returncode != 0, "it was imported"
    return done.stderr.strip().splitlines()[-1]


def test_a_package_without_libraries_says_how_to_build_them(tmp_path):
    last = import_from(copy_of_package(tmp_path))
    assert last.startswith("ImportError: fastgemm in ") and str(tmp_path) in last
    assert "no compiled libraries for Python" in last and "pip install ." in last


def test_a_library_that_does_not_load_is_named(tmp_path):
    last = import_from(copy_of_package(tmp_path, "_introspect*.so"))  # lacks libfastgemm.so
    assert last.startswith("ImportError: fastgemm's compiled libraries cannot be loaded: libfastgemm.so")


def test_info_lists_what_keeps_cuda_from_being_used():
    obstacles = " | ".join(info(CUDA_VISIBLE_DEVICES="")["cuda_obstacles"])
    if fastgemm.build_info()["cuda_kernels"]:
        assert "no CUDA device" in obstacles
    else:
        assert "this build has no CUDA kernels" in obstacles and "FASTGEMM_CUDA=1" in obstacles
    assert ("build without CUDA" in obstacles) == (torch.version.cuda is None)
    assert ("no NVIDIA driver is installed" in obstacles) == (not _compatibility._has_driver())


def test_info_lists_nothing_where_cuda_works(monkeypatch):
    row = next(row for row in fastgemm.kernels("gemm", "cpu"))
    monkeypatch.setattr("fastgemm.table.kernels", lambda *_: [row])
    monkeypatch.setattr("fastgemm.table.build_info", lambda: {"cuda_kernels": True})
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert _compatibility.cuda_obstacles() == []
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert "ROCm" in _compatibility.cuda_obstacles()[0]


def unavailable(**environment: str) -> dict[str, str | None]:
    """Why a kernel of the CPU cannot run, by its name."""
    rows = info(**environment)["kernels"]
    return {row["name"]: row["unavailable"] for row in rows if row["device"] == "cpu"}


def test_a_kernel_names_the_missing_instruction_set_or_the_variable():
    native = unavailable(FASTGEMM_CPU_ISA="native")
    for cap, unit, kernel in (
        ("avx512", "AVX512-BF16", "dot_bf16"),
        ("avx2", "AVX512-VNNI", "dot_int8"),
    ):
        capped = unavailable(FASTGEMM_CPU_ISA=cap)[kernel]
        if native[kernel] is None:
            assert capped == f"FASTGEMM_CPU_ISA leaves out this processor's {unit}"
        else:
            assert native[kernel] == capped == f"this processor has no {unit}"
    if platform.machine() == "x86_64":  # aarch64 may have these units
        assert native["mmla_bf16"] == "this processor has no bfmmla (FEAT_BF16)"
        assert native["mmla_int8"] == "this processor has no smmla (FEAT_I8MM)"
