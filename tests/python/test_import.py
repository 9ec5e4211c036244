"""What importing costs and needs, and what the package says about itself."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import subprocess
import sys
from importlib.resources import files

import fastgemm
import pytest
import torch
from processes import run_python

TIMED_IMPORT = """
import time, torch
start = time.process_time()
import fastgemm
print(time.process_time() - start)
"""


def test_import_adds_less_than_100_ms_to_torch(tmp_path):
    """Of processor time: what else the machine does is no cost of the import."""
    here = str(tmp_path)  # with nothing kept, which an import would read
    best = min(float(run_python(["-c", TIMED_IMPORT], FASTGEMM_CACHE_DIR=here).stdout) for _ in range(4))
    assert best < 0.1


def test_import_leaves_the_heavy_dependencies_alone(tmp_path):
    code = (
        "import torch, sys; before = set(sys.modules); import fastgemm; print(*(set(sys.modules) - before))"
    )
    # Without what autotune of another test may have kept, which an import reads.
    done = run_python(["-c", code], FASTGEMM_CACHE_DIR=str(tmp_path))
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "fastgemm" in loaded
    assert not loaded & {"matplotlib", "rich", "click", "filelock", "numpy", "statistics", "decimal"}


def test_import_reads_what_is_kept_only_where_there_is_any(tmp_path):
    code = "import sys, fastgemm; print('fastgemm.tuning' in sys.modules, 'fastgemm._predictions' in sys.modules)"
    assert run_python(["-c", code], FASTGEMM_CACHE_DIR=str(tmp_path)).stdout == "False False\n"
    (tmp_path / "autotune.json").write_text('{"format": 1, "sets": {}}')
    assert run_python(["-c", code], FASTGEMM_CACHE_DIR=str(tmp_path)).stdout == "True False\n"
    (tmp_path / "predictions.json").write_text('{"format": 1, "sets": {}}')
    assert run_python(["-c", code], FASTGEMM_CACHE_DIR=str(tmp_path)).stdout == "True True\n"


def test_import_works_without_a_gpu_or_driver():
    code = "import torch, fastgemm; print(fastgemm.matmul(torch.ones(2, 3), torch.ones(3, 2)).sum().item())"
    done = run_python(["-c", code], CUDA_VISIBLE_DEVICES="", LD_LIBRARY_PATH="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "12.0\n", "")


def test_libraries_need_no_cuda_and_bind_to_torch_only():
    for library in files("fastgemm").iterdir():
        if not library.name.endswith(".so"):
            continue
        dynamic = subprocess.run(
            ["readelf", "-d", str(library)], capture_output=True, text=True, check=True
        ).stdout
        needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
        allowed = {
            "libtorch_cpu.so",
            "libtorch.so",
            "libc10.so",
            "libfastgemm.so",
            "libstdc++.so.6",
            "libgcc_s.so.1",
        }
        allowed |= {
            "libc.so.6",
            "libm.so.6",
            "ld-linux-x86-64.so.2",
            "libpthread.so.0",
            "libdl.so.2",
            "librt.so.1",
        }
        if "override" in library.name:  # made for one torch
            allowed.add("libtorch_python.so")
        if library.name.startswith("_simt"):
            allowed.add("libfastgemm_simt.so")
        assert needed <= allowed, needed - allowed


def test_build_info():
    info = fastgemm.build_info()
    assert {
        "version",
        "compiler",
        "cuda_archs",
        "cpu_features",
        "torch_abi",
        "cuda_kernels",
        "table_hash",
        "override_library",
        "override_torches",
    } <= set(info)
    assert info["version"] == fastgemm.__version__
    assert info["torch"] == torch.__version__
    assert re.fullmatch(r"[0-9a-f]{16}", info["table_hash"])
    assert isinstance(info["cuda_kernels"], bool)


def test_package_metadata():
    meta = importlib.metadata.metadata("fastgemm")
    assert meta["Version"] == fastgemm.__version__
    assert any(line.startswith("torch>=2.11") for line in meta.get_all("Requires-Dist"))
    assert files("fastgemm").joinpath("py.typed").is_file()
    assert "fastgemm" in {e.name for e in importlib.metadata.entry_points(group="console_scripts")}


def test_public_names_are_documented():
    for name in fastgemm.__all__:
        assert getattr(fastgemm, name).__doc__, name
        assert name in dir(fastgemm)
    assert sys.modules["fastgemm"].__doc__


@pytest.mark.parametrize("name", ["", ".distributed", ".nn", ".ops", ".tuning"])
def test_dir_has_public_names_alone(name):
    """What a shell offers after a dot: no module that the file imports, and nothing of its typing."""
    module = importlib.import_module(f"fastgemm{name}")
    shown = {each for each in dir(module) if not each.startswith("__")}
    assert shown == {*module.__all__, *(() if name else ("distributed", "tuning"))}
    assert all(hasattr(module, each) for each in shown)
