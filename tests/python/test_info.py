"""What `fastgemm info` and a failing import say of an environment that lacks something, each cause provoked."""

from __future__ import annotations

import ast
import json
import platform
from pathlib import Path

import fastgemm
import pytest
import torch
from fastgemm import _compatibility, _overrides
from processes import copy_of_package, run_python

INFO = "from fastgemm.cli import main; main(['info', '--json'])"
OTHER_TORCH = """
import torch
torch.__version__ = {version!r}
import fastgemm
"""


def info(**environment: str) -> dict:
    done = run_python(["-c", INFO], **environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("version", ["2.10.1", "2.9.0+cu128"])
def test_an_older_torch_is_named(version):
    done = run_python(["-c", OTHER_TORCH.format(version=version)])
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        f"ImportError: fastgemm needs torch 2.11 or later, and this is torch {version} in "
    )


def test_later_torch_is_accepted():
    assert run_python(["-c", OTHER_TORCH.format(version="3.0.0a0+git1234")]).returncode == 0


def import_from(folder: Path) -> str:
    """The last line of what an import of the package in this folder prints."""
    done = run_python(["-c", f"import sys; sys.path.insert(0, {str(folder)!r}); import fastgemm"])
    assert done.returncode != 0, "it was imported"
    return done.stderr.strip().splitlines()[-1]


def test_a_package_without_libraries_says_how_to_build_them(tmp_path):
    last = import_from(copy_of_package(tmp_path))
    assert last.startswith("ImportError: fastgemm in ") and str(tmp_path) in last
    assert "no compiled libraries for Python" in last and "pip install ." in last


def test_a_library_that_does_not_load_is_named(tmp_path):
    last = import_from(copy_of_package(tmp_path, "_introspect*.so"))  # without libfastgemm.so, which it needs
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


def test_build_info_says_whether_cuda_kernels_were_built():
    built = fastgemm.build_info()
    assert built["cuda_kernels"] == bool(built["cuda_archs"])


def test_info_names_the_override_library_or_why_there_is_none():
    built = info()["build"]
    torches = built["override_torches"].split()
    assert built["override_library"] == (
        f"libfastgemm_override_{_overrides.TORCH.replace('.', '_')}.so"
        if _overrides.TORCH in torches
        else f"none: this build of fastgemm has no library for torch {_overrides.TORCH}"
        f" (but for: {', '.join(torches) or 'none'})"
    )


def test_a_torch_newer_than_every_override_library_is_named():
    done = run_python(["-c", OTHER_TORCH.format(version="3.0.0") + "print(fastgemm.build_info())"])
    built = ast.literal_eval(done.stdout)
    there = built["override_torches"].replace(" ", ", ") or "none"
    why = f"none: this build of fastgemm has no library for torch 3.0 (but for: {there})"
    assert built["override_library"] == why


@pytest.mark.parametrize(("cap", "unit"), [("avx512", "AVX512-BF16"), ("avx2", "AVX512-VNNI")])
def test_a_kernel_names_the_missing_instruction_set_or_the_variable(cap, unit):
    kernel = {"AVX512-BF16": "dot_bf16", "AVX512-VNNI": "dot_int8"}[unit]

    def reason(**environment: str) -> str | None:
        rows = info(**environment)["kernels"]
        return next(row["unavailable"] for row in rows if (row["device"], row["name"]) == ("cpu", kernel))

    native = reason(FASTGEMM_CPU_ISA="native")
    if native is None:
        assert reason(FASTGEMM_CPU_ISA=cap) == f"FASTGEMM_CPU_ISA leaves out this processor's {unit}"
    else:
        assert native == reason(FASTGEMM_CPU_ISA=cap) == f"this processor has no {unit}"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="aarch64 may have them")
def test_units_of_aarch64_are_named_where_there_are_none():
    found = {row["name"]: row["unavailable"] for row in info()["kernels"] if row["device"] == "cpu"}
    assert found["mmla_bf16"] == "this processor has no bfmmla (FEAT_BF16)"
    assert found["mmla_int8"] == "this processor has no smmla (FEAT_I8MM)"
