"""Downloads the headers of the versions of torch for which a wheel has override libraries
(csrc/torch/override).

    python tools/torch_headers.py                 # of all that a release supports
    python tools/torch_headers.py 2.12            # of one, 2.12.0
    python tools/torch_headers.py --machine aarch64    # for another architecture, with the library to link

Prints their folders, separated by ';', for FASTGEMM_OVERRIDE_TORCHES. If the installed torch has the version,
its folder is used. Otherwise it is <folder>/<version>, with version.py and include/. For another architecture
it is always <folder>/<machine>/<version>, which also has lib/libtorch_cpu.so. pip downloads the whole wheel
from its configured index: 530 MB, of which 39 MB of headers are kept. Existing folders are not downloaded
again.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path

# The first release of each supported minor version; 2.12.1 has the same headers as 2.12.0.
TORCHES = ("2.11.0", "2.12.0", "2.13.0", "2.14.0", "2.15.0")
FOLDER = Path(__file__).resolve().parent.parent / "build" / "torch-headers"


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def release(given: str) -> str:
    """The full version: 2.11.0 for 2.11, which pip treats as equal."""
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", given):
        raise argparse.ArgumentTypeError(f"{given!r} is no version of torch such as {TORCHES[0]}")
    return given if given.count(".") == 2 else f"{given}.0"


def version_in(folder: Path) -> str | None:
    """The version of the torch in this package folder, without the local part: 2.13.0 for 2.13.0+cpu."""
    with contextlib.suppress(OSError):
        found = re.search(r"^__version__ = '([^'+]+)", (folder / "version.py").read_text(), re.MULTILINE)
        return found and found.group(1)


def installed() -> Path | None:
    spec = find_spec("torch")
    folders = (spec and spec.submodule_search_locations) or []
    return next(map(Path, folders), None)


def download(version: str, to: Path, machine: str | None) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-cache-dir", "--no-deps"]
    # Since 2.6 torch's wheels are manylinux_2_28.
    platform = ["--platform", f"manylinux_2_28_{machine}"] if machine else []
    command = [*pip, *platform, "--only-binary", ":all:", "--dest", str(to), f"torch=={version}"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        why = "\n".join(said) or done.stderr.strip() or f"exit status {done.returncode}"
        raise SystemExit(
            f"torch_headers: pip cannot download torch {version}; can it reach its package index?\n{why}"
        )
    return next(to.glob("torch-*.whl"))


def fetch(version: str, folder: Path, machine: str | None = None) -> Path:
    """Downloads the headers of a version; for another machine also the library to link. Never leaves a part
    of them."""
    folder = folder / (machine or "")
    target = folder / version
    wanted = ("torch/version.py", "torch/include/", *(["torch/lib/libtorch_cpu.so"] if machine else []))
    if version_in(target) == version:
        return target
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        wheel = download(version, Path(temporary), machine)
        with zipfile.ZipFile(wheel) as archive:
            kept = [n for n in archive.namelist() if n.startswith(wanted)]
            archive.extractall(temporary, kept)
        size = wheel.stat().st_size
        shutil.rmtree(target, ignore_errors=True)
        (Path(temporary) / "torch").rename(target)
    if version_in(target) != version:
        raise SystemExit(f"torch_headers: {target} holds torch {version_in(target)} instead of {version}")
    seconds = time.monotonic() - started
    print(f"torch {version}: {size / 1e6:.0f} MB downloaded, {seconds:.1f} s", file=sys.stderr)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="*", type=release, default=TORCHES, metavar="VERSION")
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="where to keep them (default: %(default)s)"
    )
    parser.add_argument("--machine", help="another architecture, such as aarch64 (default: this one)")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    here = None if arguments.machine else installed()
    available = version_in(here) if here else None
    folders = [here if v == available else fetch(v, folder, arguments.machine) for v in arguments.versions]
    print(";".join(map(str, folders)))


if __name__ == "__main__":
    main()
