"""Tests that the shortest examples run from any folder and print the expected text."""

import sys

import pytest
from pages import ROOT
from processes import run_forked

SAYS = {
    "drop_in.py": ["'mm'", "largest difference to torch"],
    "levels.py": ["level 1:", "level 7:", "one of them by name: (512, 512)"],
    "autotune.py": ["kept in"],
    "explain_a_kernel.py": ["shared: ", "32 passes over the banks", "padded: ", "1 passes over"],
    "own_kernel.py": ["(33, 17, 40) torch.float32: right", "sectors a request"],
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SAYS)
def test_example_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = f"import runpy; runpy.run_path({str(ROOT / 'examples' / name)!r}, run_name='__main__')"
    done = run_forked(program, FASTGEMM_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert all(text in done.stdout for text in SAYS[name]), done.stdout


def test_a_kernel_without_nanobind(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "notebooks"))
    from ladder_notes import own_kernels

    monkeypatch.setitem(sys.modules, "nanobind", None)
    with pytest.raises(RuntimeError, match="needs nanobind: pip install cmake ninja nanobind"):
        own_kernels._build("any")


def test_every_example_is_named():
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    helpers = ("comparing.py", "repository.py", "rounding.py")  # a module that examples import
    files = [path.name for path in (ROOT / "examples").glob("*.py")]
    assert not [name for name in files if f"({name})" not in listed and name not in helpers]
