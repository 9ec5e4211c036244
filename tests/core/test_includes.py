"""Checks that the includes between the folders of csrc point in one direction."""

import re
from graphlib import TopologicalSorter

import pytest
from pages import ROOT

CSRC = ROOT / "csrc"
if not CSRC.is_dir():
    pytest.skip("the sources are not here", allow_module_level=True)

SOURCES = [path for path in CSRC.rglob("*") if path.suffix in (".h", ".cpp", ".cu", ".cuh", ".def")]
OWN = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
FOREIGN = re.compile(r"^\s*#\s*include\s*<((?:torch|ATen|c10|nanobind)/[^>]+|Python\.h)>", re.MULTILINE)
INCLUDES = {str(path.relative_to(CSRC)): OWN.findall(path.read_text(encoding="utf-8")) for path in SOURCES}

# Each folder, and the folders that it may include. core and strategies use kernels only through the table.
MAY_INCLUDE = {
    "core": set(),
    "strategies": {"core"},
    "cpu": {"core"},
    "cuda": {"core"},
    "library": {"core", "cpu", "cuda"},
    "simt": {"core", "cpu", "cuda"},
    "torch": {"core", "cuda", "library", "strategies"},
    "python": {"core", "cpu", "cuda", "library", "simt", "torch"},
}
# cuda/device includes CUDA's headers on the device, and the simulator's headers on the host.
HOST_SIDE = {"simt/matrix.h", "simt/platform.h", "simt/wgmma.h"}


def folder(path: str) -> str:
    return path.partition("/")[0]


def test_folders_include_only_what_lies_below_them():
    list(TopologicalSorter(MAY_INCLUDE).static_order())  # raises CycleError
    wrong = {
        (source, header)
        for source, headers in INCLUDES.items()
        for header in headers
        if folder(header) not in MAY_INCLUDE[folder(source)] | {folder(source)}
        and not (source.startswith("cuda/device/") and header in HOST_SIDE)
    }
    assert not wrong


def test_every_included_file_exists_and_none_includes_itself():
    assert not {header for headers in INCLUDES.values() for header in headers} - INCLUDES.keys()
    list(TopologicalSorter(INCLUDES).static_order())  # raises CycleError


def test_only_torch_and_python_know_torch_and_python():
    foreign = {str(path.relative_to(CSRC)) for path in SOURCES if FOREIGN.search(path.read_text())}
    assert {folder(path) for path in foreign} == {"torch", "python"}
