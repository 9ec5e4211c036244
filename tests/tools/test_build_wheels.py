"""Tests tools/build_wheels.sh with an interpreter that only pretends to build."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "build_wheels.sh"
# "pip wheel" creates a file and prints the versions of torch with overrides. auditwheel fails. torch_headers.py
# really runs. All other commands succeed without output.
PRETENDS = """#!/usr/bin/env bash
case "$*" in
  *torch_headers.py*) exec "$REAL_PYTHON" "$@" ;;
  *"pip wheel"*)
    echo "overrides: $FASTGEMM_OVERRIDE_TORCHES"
    while [ "$1" != --wheel-dir ]; do shift; done
    touch "$2/fastgemm-0-py3-none-any.whl" ;;
  *"auditwheel repair"*) echo "cannot repair: no such policy"; exit 3 ;;
esac
"""


def build(tmp_path: Path, *kinds: str, **environment: str) -> subprocess.CompletedProcess[str]:
    python = tmp_path / "python"
    python.write_text(PRETENDS)
    python.chmod(0o755)
    given = {
        "PYTHON": str(python),
        "REAL_PYTHON": sys.executable,
        "OUT": str(tmp_path / "dist"),
        "TMPDIR": str(tmp_path),
        **environment,
    }
    return subprocess.run(
        ["bash", SCRIPT, *kinds], env=os.environ | given, capture_output=True, text=True, check=False
    )


def test_a_failure_of_auditwheel_is_told_and_ends_the_build(tmp_path):
    done = build(tmp_path, "cpu", TORCHES="here")
    assert done.returncode == 1, done.stdout
    assert "cannot repair: no such policy" in done.stderr
    assert "build_wheels: auditwheel cannot repair the wheel" in done.stderr
    assert not list((tmp_path / "dist").iterdir())


@pytest.mark.skipif(not torch.__version__.partition("+")[0].endswith(".0"), reason="would download a torch")
def test_a_torch_is_named_by_its_minor_version(tmp_path):
    done = build(tmp_path, "cpu", TORCHES=".".join(torch.__version__.split(".")[:2]))
    assert f"overrides: {Path(torch.__file__).parent}" in done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize(
    ("arch", "kinds"), [("riscv64", ["cpu"]), ("aarch64", ["cuda"]), ("aarch64", ["cpu", "cuda"])]
)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="there aarch64 is no other architecture")
def test_what_is_not_made_for_another_architecture_is_refused(tmp_path, arch, kinds):
    done = build(tmp_path, *kinds, ARCH=arch)
    said = f"build_wheels: on x86_64 there is 'cpu' for aarch64, and no '{' '.join(kinds)}' for {arch}"
    assert (done.returncode, done.stderr.strip()) == (2, said)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="there aarch64 is no other architecture")
def test_what_a_build_for_aarch64_lacks_is_named(tmp_path):
    done = build(tmp_path, ARCH="aarch64", ROOT=str(tmp_path / "nothing"))
    assert done.returncode == 1
    assert f"in {tmp_path}/nothing (tools/aarch64_root.sh)" in done.stderr
