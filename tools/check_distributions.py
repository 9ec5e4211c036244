"""Checks the contents and the metadata of an sdist and a wheel.

    python tools/check_distributions.py [--torches release] dist/fastgemm-*.tar.gz dist/fastgemm-*.whl

The sdist must hold every file of the repository (if there is a git history) and nothing else. The wheel must
hold the package, its libraries and the sources of its kernels. Its tag must name the interpreters that its
modules support. Its metadata must be those of pyproject.toml, without broken links. All its libraries, with
the simulator, must take less than 60 MB. It must have override libraries for the torch installed here
(--torches here), for the named versions, or for each version in tools/torch_headers.py (--torches release).
Prints the sizes. On errors, prints a line for each and exits with 1.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path, PurePosixPath

from long_description import relative_links
from torch_headers import TORCHES, minor

ROOT = Path(__file__).resolve().parent.parent
ONLY_IN_REPOSITORY = (".ci/*", ".gitignore")
ONLY_IN_SDIST = ("PKG-INFO", "setup.cfg", "*.egg-info/*")
LIBRARIES = ("fastgemm/libfastgemm.so", "fastgemm/libfastgemm_simt.so")
MODULES = ("_introspect", "_simt")
MOST_BYTES = 60_000_000  # of all libraries together, unpacked
NEEDED = {"torch", "filelock"}  # for products; torch itself requires filelock
AUTOLOAD = "_fastgemm_autoload.py"  # outside of the package, because importing the package costs time
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
    needed = {
        re.match(r"[\w-]+", each)[0] for each in metadata.get_all("Requires-Dist", []) if "extra" not in each
    }
    if needed != NEEDED:
        yield f"the metadata require {sorted(needed)}, and a product needs {sorted(NEEDED)}"
    for extra in {"cli", "notebooks", "test"} - set(metadata.get_all("Provides-Extra", [])):
        yield f"the metadata lack the extra {extra}"
    for link in relative_links(metadata.get_payload()):
        yield f"the description links to {link}, which is no address"
    for field in ("Version", "Summary", "Requires-Python", "Classifier"):
        if not metadata[field]:
            yield f"the metadata lack {field}"


def tag_faults(path: Path, tags: list[str], there: set[str]) -> Iterator[str]:
    served = {}
    for module in MODULES:
        names = [name for name in there if fnmatch(name, f"fastgemm/{module}.*.so")]
        served[module] = {name.split(".")[1] for name in names}
    if len(set(map(frozenset, served.values()))) != 1:
        yield f"the modules of the wheel are for different interpreters: {served}"
    versions = {re.sub(r"cpython-(\d+)-.*", r"cp\1", each) for each in served["_introspect"]}
    if versions == {"cp310", "cp311", "abi3"}:
        expected = "cp310-abi3"
    elif versions == {"abi3"}:
        expected = "cp312-abi3"
    else:
        expected = "-".join(sorted(versions) * 2)
    pattern = re.compile(rf"{expected}-(linux|manylinux_\d+_\d+)_(x86_64|aarch64)")
    if not all(pattern.fullmatch(tag) for tag in tags) or not any(map(path.stem.endswith, tags)):
        yield f"the wheel is tagged {tags}, and its modules are for {sorted(versions)}"


def wheel_faults(path: Path, torches: set[str]) -> Iterator[str]:
    with zipfile.ZipFile(path) as archive:
        there = set(archive.namelist())
        sizes = {e.filename: e.file_size for e in archive.infolist() if fnmatch(e.filename, "fastgemm/*.so")}
        info = next(name for name in there if name.endswith(".dist-info/METADATA")).rpartition("/")[0]
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        tags = Parser().parsestr(archive.read(f"{info}/WHEEL").decode()).get_all("Tag", [])
    yield from metadata_faults(metadata)
    print(
        f"{path.name}: {path.stat().st_size / 1e6:.1f} MB; its libraries {sum(sizes.values()) / 1e6:.1f} MB"
    )
    for name, size in sorted(sizes.items(), key=lambda each: -each[1]):
        print(f"  {size / 1e6:7.2f} MB  {name}")
    if sum(sizes.values()) >= MOST_BYTES:
        yield f"the libraries of the wheel take {sum(sizes.values()) / 1e6:.1f} MB"
    yield from tag_faults(path, tags, there)
    if f"{info}/licenses/LICENSE" not in there:
        yield "the wheel lacks LICENSE"
    package = {
        f"fastgemm/{file.relative_to(ROOT / 'python/fastgemm')}"
        for pattern in ("*.py", "*.pyi", "py.typed")
        for file in (ROOT / "python/fastgemm").rglob(pattern)
    }
    kernels = {
        f"fastgemm/{file.relative_to(ROOT)}"
        for folder in ("csrc/cpu", "csrc/cuda")
        for file in (ROOT / folder).rglob("*.c*")
        if file.suffix != ".cmake" and "predict" not in file.parts
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
    parser.add_argument(
        "--torches", default="here", help="release, here, or versions in one word (default: %(default)s)"
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="sdists and wheels")
    arguments = parser.parse_args()
    named = {"release": TORCHES, "here": (version("torch"),)}
    torches = {minor(each) for each in named.get(arguments.torches, arguments.torches.split())}
    faults = []
    for path in arguments.files:
        faults += wheel_faults(path, torches) if path.suffix == ".whl" else sdist_faults(path)
    for fault in faults:
        print(f"check_distributions: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
