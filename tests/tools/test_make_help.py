"""Tests that `make` lists its targets and variables with descriptions, and shows progress on a terminal."""

import os
import pty
import re
import shutil
import subprocess

import pytest
from pages import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def make(*words: str) -> str:
    done = subprocess.run(["make", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_plain_make_is_make_help():
    assert make() == make("help")


def test_every_target_is_listed_in_words():
    targets = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.M).group(1).split()
    shown = dict(re.findall(r"^  ([a-z-]+) +(\S.*)$", make(), re.M))
    assert sorted(shown) == sorted(targets) and "ladder" in targets


def test_every_variable_that_a_user_sets_is_listed():
    shown = set(re.findall(r"^  ([A-Z_]+)=", make(), re.M))
    settable = set(re.findall(r"^([A-Z]+) +\?=", MAKEFILE, re.M))
    assert settable - shown <= {"OP", "SHAPE"} and "OP=" in make() and "SHAPE=" in make()


def build(stdout: int) -> None:
    """The commands of a build, none of which runs."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "-n", "-W", "setup.py", ".venv/.installed"]
    subprocess.run(command, cwd=ROOT, env=environment, stdout=stdout, check=True)


def read_some(terminal):
    """The output on a terminal, empty at its end. A single read may return only the first line."""
    try:
        return os.read(terminal, 1 << 16).decode()
    except OSError:  # EIO: the other side is closed
        return ""


def test_a_build_s_progress_is_for_terminals(tmp_path):
    terminal, slave = pty.openpty()
    build(slave)
    os.close(slave)
    on_terminal = "".join(iter(lambda: read_some(terminal), ""))
    os.close(terminal)
    with open(tmp_path / "log", "w+") as log:
        build(log.fileno())
        log.seek(0)
        in_file = log.read()
    assert "setup.py  build_ext --inplace" in on_terminal
    assert "setup.py --quiet build_ext --inplace" in in_file
