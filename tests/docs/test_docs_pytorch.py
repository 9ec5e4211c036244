"""Tests docs/pytorch.md: every snippet runs unchanged in its own process, and every named file exists."""

import re

import pytest
from pages import ROOT, snippets
from processes import run_forked

PAGE = ROOT / "docs" / "pytorch.md"
TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = re.findall(r"^## (.+?)$(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
SNIPPETS = {title: code for title, body in SECTIONS for code in snippets(body)}


@pytest.mark.parametrize("title", SNIPPETS)
def test_snippet(title):
    done = run_forked(SNIPPETS[title])
    assert done.returncode == 0, done.stderr[-2000:]


def test_each_feature_has_a_snippet_and_a_test():
    for title, body in SECTIONS:
        assert title in SNIPPETS or title == "Memory"
        files = re.findall(r"\((\.\./tests/[\w/]+\.py)\)", body)
        assert files, title
        assert all((PAGE.parent / file).is_file() for file in files)
