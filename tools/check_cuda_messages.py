"""Checks the messages of a CUDA build on machines without a usable GPU. A fake driver simulates each machine.

    PYTHONPATH=build/cuda/package python tools/check_cuda_messages.py

tools/compile_cuda.sh runs it. It needs a package with CUDA kernels and a C compiler, but neither a GPU nor a
driver.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

FAKE_DRIVER = Path(__file__).resolve().parent.parent / "tests" / "cuda" / "fake_driver.c"
PROGRAM = """
import torch, fastgemm
reasons = {row.unavailable for row in fastgemm.kernels(device="cuda")}
print(fastgemm.build_info()["cuda_device"], *reasons, sep=chr(10))
"""
# The machine, its environment (None: no driver), and the message that every CUDA kernel must give.
MACHINES: list[tuple[str, dict[str, str] | None, str]] = [
    ("no driver", None, "no NVIDIA driver is installed (libcuda.so.1 was not found)"),
    (
        "an old driver",
        {"FAKE_VERSION": "11040"},
        "the NVIDIA driver is for CUDA 11.4, older than this build's",
    ),
    ("no GPU", {"FAKE_INIT": "100"}, "the NVIDIA driver finds no GPU"),
    (
        "no visible GPU",
        {"FAKE_INIT": "100", "CUDA_VISIBLE_DEVICES": "7"},
        'CUDA_VISIBLE_DEVICES="7" hides every GPU',
    ),
    ("a broken driver", {"FAKE_INIT": "999"}, "cudaGetDeviceCount: cudaErrorUnknown"),
]


def said(environment: dict[str, str] | None, driver: Path) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    added = {} if environment is None else {"LD_LIBRARY_PATH": str(driver), **environment}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(
        command, env={**inherited, **added}, capture_output=True, text=True, check=True
    ).stdout


def main() -> int:
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "libcuda.so.1"
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(FAKE_DRIVER)], check=True)
        for machine, environment, expected in MACHINES:
            device, *reasons = said(environment, library.parent).splitlines()
            if expected not in device or not reasons or not all(expected in reason for reason in reasons):
                print(
                    f"{machine}: expected {expected!r}, got:", device, *reasons, sep="\n  ", file=sys.stderr
                )
                wrong += 1
    print(f"messages on {len(MACHINES)} machines without a usable GPU, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
