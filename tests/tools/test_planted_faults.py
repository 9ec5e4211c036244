"""Tests that the planted faults still fit the sources. tools/planted_faults.py runs them."""

import shutil
import subprocess

import pytest
from scripts import tool

faults = tool("planted_faults")
PATCHES = sorted(faults.PATCHES.glob("*.patch"))


@pytest.mark.skipif(not (shutil.which("git") and PATCHES), reason="needs git and a clone")
def test_every_patch_applies():
    for path in PATCHES:
        fault = faults.read_fault(path)
        command = ["git", "apply", "--check", str(path)]
        done = subprocess.run(command, cwd=faults.ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{fault.name}: {done.stderr}"
