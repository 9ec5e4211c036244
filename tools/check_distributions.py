"""Checks what an sdist and a wheel hold, and what they say about themselves.

    python tools/check_distributions.py [--release] dist/fastgemm-*.tar.gz dist/fastgemm-*.whl

The sdist holds every file of the repository (where there is a git history to tell) and nothing else; the wheel
holds the package, its libraries and the sources of its kernels, is tagged for this interpreter and platform,
and its metadata are those of pyproject.toml. Its libraries but the simulator take less than 60 MB. It has a
library of overrides for the torch installed here, with --release one for each version that
tools/torch_headers.py names. Exits with 1 and a line for each fault.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path, PurePosixPath

from torch_headers import TORCHES, minor

ROOT = Path(__file__).resolve().parent.parent
ONLY_IN_REPOSITORY = (".ci/*", ".gitignore")
ONLY_IN_SDIST = ("PKG-INFO", "setup.cfg", "*.egg-info/*")
LIBRARIES = ("fastgemm/libfastgemm.so", "fastgemm/_introspect.*.so", "fastgemm/_simt.*.so")
MOST_BYTES = 60_000_000  # of all libraries but the simulator, unpacked
AUTOLOAD = "_fastgemm_autoload.py"  # outside of the package, whose import is not for nothing
LITTER = ("*.o", "*.pyc", "*/__pycache__/*", "*/build/*", "*/tests/*", "*.ninja", "*.cmake")


def missing(wanted: set[str], there: set[str], excepted: tuple[str, ...]) -> list[str]:
    return sorted(name for name in wanted - there if not any(fnmatch(name, each) for each in excepted))


def sdist_faults(path: Path) -> Iterator[str]:
    with tarfile.open(path) as archive:
        members = [PurePosixPath(member.name) for member in archive.getmembers() if member.isfile()]
    there = {str(PurePosixPath(*member.parts[1:])) for member in members}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        yield "no git history here: cannot tell whether the sdist is complete"
        return
    tracked = set(listed.stdout.splitlines())
    for name in missing(tracked, there, ONLY_IN_REPOSITORY):
        yield f"the sdist lacks {name} (MANIFEST.in)"
    for name in missing(there, tracked, ONLY_IN_SDIST):
        yield f"the sdist holds {name}, which is no file of the repository"


def metadata_faults(metadata: Message) -> Iterator[str]:
    if metadata["License-Expression"] != "MIT" or metadata.get_all("License-File") != ["LICENSE"]:
        yield "the metadata do not name the license"
    if metadata["Description-Content-Type"] != "text/markdown" or "# fastgemm" not in metadata.get_payload():
        yield "the metadata lack README.md as description"
    if not any(each.startswith("torch>=") for each in metadata.get_all("Requires-Dist", [])):
        yield "the metadata do not require torch"
    for field in ("Version", "Summary", "Requires-Python", "Classifier"):
        if not metadata[field]:
            yield f"the metadata lack {field}"


def wheel_faults(path: Path, torches: set[str]) -> Iterator[str]:
    with zipfile.ZipFile(path) as archive:
        there = set(archive.namelist())
        unpacked = sum(
            each.file_size for each in archive.infolist() if fnmatch(each.filename, "fastgemm/lib*.so")
        )
        info = next(name for name in there if name.endswith(".dist-info/METADATA")).rpartition("/")[0]
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        tags = Parser().parsestr(archive.read(f"{info}/WHEEL").decode()).get_all("Tag", [])
    yield from metadata_faults(metadata)
    if unpacked >= MOST_BYTES:
        yield f"the libraries of the wheel take {unpacked / 1e6:.1f} MB"
    interpreter = f"cp{sys.version_info.major}{sys.version_info.minor}"
    expected = f"{interpreter}-{interpreter}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    if tags != [expected] or not path.stem.endswith(expected):
        yield f"the wheel is tagged {tags}, not {expected}"
    if f"{info}/licenses/LICENSE" not in there:
        yield "the wheel lacks LICENSE"
    package = {
        f"fastgemm/{file.relative_to(ROOT / 'python/fastgemm')}"
        for pattern in ("*.py", "py.typed", "_explain/*.json")
        for file in (ROOT / "python/fastgemm").rglob(pattern)
    }
    kernels = {
        f"fastgemm/{file.relative_to(ROOT)}"
        for folder in ("csrc/cpu", "csrc/cuda")
        for file in (ROOT / folder).rglob("*.c*")
        if file.suffix != ".cmake"
    }
    for name in missing(package | kernels | {AUTOLOAD}, there, ()):
        yield f"the wheel lacks {name}"
    overrides = [f"fastgemm/libfastgemm_override_{each.replace('.', '_')}.so" for each in sorted(torches)]
    for pattern in (*LIBRARIES, *overrides):
        if not any(fnmatch(name, pattern) for name in there):
            yield f"the wheel lacks {pattern}"
    for name in sorted(there):
        if any(fnmatch(name, pattern) for pattern in LITTER) or not name.startswith(
            ("fastgemm/", info, AUTOLOAD)
        ):
            yield f"the wheel holds {name}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--release", action="store_true", help="the wheel serves every supported torch")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="sdists and wheels")
    arguments = parser.parse_args()
    torches = {minor(each) for each in (TORCHES if arguments.release else (version("torch"),))}
    faults = []
    for path in arguments.files:
        faults += wheel_faults(path, torches) if path.suffix == ".whl" else sdist_faults(path)
    for fault in faults:
        print(f"check_distributions: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
