"""fastgemm.patch where there is no library of overrides for this torch: a mode, which routes and counts alike."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from processes import copy_of_package, run_python

HERE = Path(__file__).parent
TORCH = ".".join(torch.__version__.split(".")[:2])
RUN = """
import runpy, sys
sys.path.insert(0, {folder!r})
sys.argv = [{worker!r}]
runpy.run_path({worker!r}, run_name="__main__")
"""


def run_worker(folder: Path) -> dict:
    """What patch_worker.py prints, run with the package in this folder."""
    done = run_python(["-c", RUN.format(folder=str(folder), worker=str(HERE / "patch_worker.py"))])
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert Path(found["file"]).is_relative_to(folder)
    return found


def overrides(version: str) -> str:
    return f"libfastgemm_override_{version.replace('.', '_')}.so"


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """A copy without a library of overrides for this torch, but with one for a torch of the future."""
    folder = copy_of_package(tmp_path_factory.mktemp("package"), "_introspect*.so", "libfastgemm.so")
    (folder / "fastgemm" / overrides("99.0")).touch()
    return folder


@pytest.fixture(scope="module")
def without(package) -> dict:
    return run_worker(package)


def test_one_warning_says_why(without):
    ((message, file),) = without["warnings"]
    assert message.startswith("fastgemm.patch: ")
    assert f"this build of fastgemm has no library for torch {TORCH} (but for: 99.0)" in message
    assert file == str(HERE / "patch_worker.py"), "it names the line that enters the patch"


def test_info_says_why(without):
    assert without["library"].startswith(f"none: this build of fastgemm has no library for torch {TORCH}")


def test_products_are_routed_and_counted(without):
    counts = without["counts"]
    ops = {name: found["ops"] for name, found in counts.items()}
    assert ops == {
        "mm": {"mm": 1},
        "batch": {"mm": 1, "bmm": 1},
        "addmm": {"addmm": 1},
        "in place": {"addmm_": 1},
        "mm out": {"mm": 1},
        "addmm out": {"addmm": 1},
        "gradients": {"mm": 3},
        "complex": {"mm": 1},
        "nothing": {"addmm": 1},
        "vector": {},
    }
    assert all(set(found["kernels"]) <= {"microkernel"} for found in counts.values())
    assert counts["nothing"]["passed_on"] == {}


def test_patches_nest(without):
    assert without["nested"] == [{"mm": 2, "bmm": 1}, {"naive": 3}, 0, 2]


def test_a_patch_holds_in_its_thread(without):
    assert without["thread"] == {"mm": 1}


def test_the_library_does_the_same_and_does_not_warn(without):
    """Which calls of what no patch takes are counted as passed on is left to either."""
    import fastgemm

    if not (Path(fastgemm.__file__).parent / overrides(TORCH)).exists():
        pytest.skip(f"this build has no library for torch {TORCH}")
    found = run_worker(Path(fastgemm.__file__).parent.parent)
    assert found["warnings"] == []
    assert found["library"] == overrides(TORCH)
    for name in ("nested", "thread"):
        assert found[name] == without[name]
    for name, counts in without["counts"].items():
        assert [found["counts"][name][key] for key in ("ops", "kernels")] == [
            counts["ops"],
            counts["kernels"],
        ]


def test_a_library_that_does_not_load_is_named(package):
    broken = package / "fastgemm" / overrides(TORCH)
    broken.write_text("")
    try:
        found = run_worker(package)
    finally:
        broken.unlink()
    ((message, _),) = found["warnings"]
    assert re.search(rf"{broken.name} cannot be loaded: .*{broken.name}", message), message
    assert found["counts"]["mm"]["ops"] == {"mm": 1}
