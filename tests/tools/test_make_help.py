"""`make` lists its targets and variables, each in words."""

from __future__ import annotations

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
