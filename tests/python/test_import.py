"""Tests the cost and the requirements of the import, and the package's metadata."""

import importlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import fastgemm
import pytest
import torch
from processes import run_forked, run_python

CODE = """
import sys, time
before, start = set(sys.modules), time.process_time()
import fastgemm
print(time.process_time() - start, *(set(sys.modules) - before))
"""


def test_import_adds_less_than_200_ms_to_torch_and_leaves_heavy_packages_alone(tmp_path):
    """Measures processor time. There are no cached files. A Zen 4 takes 102 to 110 ms, and 163 if other processes
    use its caches."""
    seconds, loaded = [], set()
    for _ in range(4):
        first, *names = run_forked(CODE, FASTGEMM_CACHE_DIR=str(tmp_path)).stdout.split()
        seconds.append(float(first))
        loaded |= {name.split(".")[0] for name in names}
    assert min(seconds) < 0.2 and "fastgemm" in loaded
    assert not loaded & {"matplotlib", "rich", "click", "filelock", "numpy", "statistics", "decimal"}


def test_import_reads_what_is_kept_only_where_there_is_any(tmp_path):
    modules = ("fastgemm._choice.autotuned", "fastgemm._choice.predictions")
    code = f"import sys, fastgemm; print(*(m in sys.modules for m in {modules}))"
    for kept, read in ((None, "False False\n"), ("autotune", "True True\n"), ("predictions", "True True\n")):
        if kept:
            (tmp_path / f"{kept}.json").write_text('{"format": 1, "sets": {}}')
        assert run_forked(code, FASTGEMM_CACHE_DIR=str(tmp_path)).stdout == read


def test_import_works_without_a_gpu_or_driver():
    code = "import torch, fastgemm; print(fastgemm.matmul(torch.ones(2, 3), torch.ones(3, 2)).sum().item())"
    done = run_python(["-c", code], CUDA_VISIBLE_DEVICES="", LD_LIBRARY_PATH="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "12.0\n", "")


# Imports the package, removes its modules as some test runners and notebooks do, and imports it from a folder.
TWICE = """
import sys, fastgemm
for name in [name for name in sys.modules if name.partition(".")[0] == "fastgemm"]:
    del sys.modules[name]
sys.path.insert(0, {folder!r})
for _ in range(2):
    try:
        import fastgemm
    except ImportError as error:
        print(error)
"""


def package_in(folder: Path) -> Path:
    """A copy of the package without compiled libraries."""
    here = Path(fastgemm.__file__).parent
    return shutil.copytree(here, folder / "fastgemm", ignore=shutil.ignore_patterns("*.so", "__pycache__"))


def test_a_second_import_says_that_a_process_loads_the_package_once(tmp_path):
    here, other = Path(fastgemm.__file__).parent, package_in(tmp_path)
    said = f"fastgemm was already loaded in this process, from {here}"
    for folder, more in ((here, ""), (other, f", and cannot be loaded from {other} besides")):
        done = run_forked(TWICE.format(folder=str(folder.parent)))
        assert (done.stdout, done.stderr) == (f"{said}{more}; restart the process\n" * 2, "")


def test_the_op_library_may_be_loaded_before_the_import(tmp_path):
    """As a program does that loads a TorchScript model (docs/pytorch.md)."""
    library = Path(fastgemm.__file__).parent / "libfastgemm.so"
    done = run_forked(
        f"import torch; torch.ops.load_library({str(library)!r}); import fastgemm; "
        "a = torch.ones(2, 2, requires_grad=True); fastgemm.matmul(a, a).sum().backward(); "
        "print(a.grad.sum().item())"
    )
    assert (done.stdout, done.stderr) == ("16.0\n", "")


def test_an_archive_is_not_told_to_be_built(tmp_path):
    package_in(tmp_path / "files")
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "files")
    done = run_forked(f"import sys; sys.path.insert(0, {archive!r}); import fastgemm")
    assert f"ImportError: fastgemm cannot run from the archive that has {archive}/fastgemm: " in done.stderr


OF_TORCH = "libtorch_cpu libtorch libc10 libfastgemm"
OF_THE_SYSTEM = "libstdc++ libgcc_s libc libm ld-linux-x86-64 libpthread libdl librt"


def test_libraries_need_no_cuda_and_bind_to_torch_only():
    for library in files("fastgemm").iterdir():
        if not library.name.endswith(".so"):
            continue
        read = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True)
        needed = set(re.findall(r"NEEDED.*\[(.*)\.so.*\]", read.stdout))
        allowed = {*OF_TORCH.split(), *OF_THE_SYSTEM.split()}
        if "override" in library.name:  # each is made for one torch
            allowed.add("libtorch_python")
        if library.name.startswith("_simt"):
            allowed.add("libfastgemm_simt")
        assert needed <= allowed, needed - allowed


def test_build_info():
    info = fastgemm.build_info()
    keys = "version compiler cuda_archs cpu_features torch_abi cuda_kernels override_library override_torches"
    assert set(keys.split()) <= set(info)
    assert info["version"] == fastgemm.__version__
    assert info["torch"] == torch.__version__
    assert re.fullmatch(r"[0-9a-f]{16}", info["table_hash"])
    assert info["cuda_kernels"] == bool(info["cuda_archs"])


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
    """Completion in a shell must not offer imported modules or names for typing."""
    module = importlib.import_module(f"fastgemm{name}")
    shown = {each for each in dir(module) if not each.startswith("__")}
    assert shown == {*module.__all__, *(() if name else ("distributed", "tuning"))}
    assert all(hasattr(module, each) for each in shown)
