"""tools/build_wheels.sh, with an interpreter that only pretends to build."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "build_wheels.sh"
# pip wheel leaves a file; auditwheel has the fate of the test; all else succeeds in silence.
PRETENDS = """#!/usr/bin/env bash
case "$*" in
  *"pip wheel"*) while [ "$1" != --wheel-dir ]; do shift; done; touch "$2/fastgemm-0-py3-none-any.whl" ;;
  *"auditwheel repair"*) echo "cannot repair: no such policy"; exit 3 ;;
esac
"""


def test_a_failure_of_auditwheel_is_told_and_ends_the_build(tmp_path):
    python = tmp_path / "python"
    python.write_text(PRETENDS)
    python.chmod(0o755)
    out = tmp_path / "dist"
    environment = {
        **os.environ,
        "PYTHON": str(python),
        "OUT": str(out),
        "TORCHES": "here",
        "TMPDIR": str(tmp_path),
    }
    done = subprocess.run(
        ["bash", SCRIPT, "cpu"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout
    assert "cannot repair: no such policy" in done.stderr
    assert "build_wheels: auditwheel cannot repair the wheel" in done.stderr
    assert not list(out.iterdir())
