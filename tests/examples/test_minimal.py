"""The shortest example of each use runs, from any folder, and says what it is there to say."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from pages import ROOT

SAYS = {
    "drop_in.py": ["'mm'", "largest difference to torch"],
    "levels.py": ["level 1:", "level 7:", "one of them by name: (512, 512)"],
    "autotune.py": ["kept in"],
    "explain_a_kernel.py": ["shared: ", "32 passes over the banks", "padded: ", "1 passes over"],
    "own_kernel.py": ["(33, 17, 40) torch.float32: right", "sectors a request"],
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SAYS)
def test_example_runs(name, tmp_path):
    environment = {**os.environ, "FASTGEMM_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / name],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in SAYS[name]:
        assert text in done.stdout


def test_every_example_is_named():
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    files = [path.name for path in (ROOT / "examples").glob("*.py")]
    assert not [name for name in files if f"({name})" not in listed and name not in HELPERS]


HELPERS = ("comparing.py", "repository.py", "rounding.py")  # which examples import
