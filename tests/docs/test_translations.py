"""Tests that translated pages have the same headings, lists, tables, generated blocks, code and links."""

import io
import re
import tokenize
from collections import Counter
from pathlib import Path

import pytest
from pages import ROOT

TRANSLATED = {
    ROOT / "README.md": ROOT / "README.zh-CN.md",
    ROOT / "docs" / "ladder.md": ROOT / "docs" / "ladder.zh.md",
}
BLOCK = re.compile(r"<!-- (\w+):begin -->\n(.*?)<!-- \1:end -->", re.S)
FIGURE = re.compile(r"\d+(?:\.\d+)?|\|")  # the number of lines and of cells in a generated block
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def code_of(language: str, text: str) -> str:
    """Code without comments, because comments are translated."""
    if language != "python":
        return "\n".join(re.sub(r"\s*#.*", "", line) for line in text.splitlines())
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return " ".join(token.string for token in tokens if token.type != tokenize.COMMENT)


def names_in(text: str) -> Counter[str]:
    """Code in the text, without numbers and words that a translation may change."""
    return Counter(re.findall(r"`([^`\n]+)`", text))


def outline(page: str) -> dict[str, object]:
    """The parts that a translation must keep, by their names in messages."""
    blocks = dict(BLOCK.findall(page))
    generated = {name: Counter(FIGURE.findall(body)) for name, body in blocks.items()}
    text = BLOCK.sub("", page)
    fences = FENCE.findall(text)
    prose = FENCE.sub("", text)
    links = Counter(
        re.sub(r"(?:\.zh(?:-CN)?)?\.md", ".md", link) for link in re.findall(r"\]\(([^)\s#][^)\s]*)\)", prose)
    )
    return {
        "blocks": list(blocks),
        "generated tables and pictures": generated,
        "levels of headings": [len(marks) for marks in re.findall(r"^(#+) ", prose, re.M)],
        "list items": re.findall(r"^(-|\d+\.) ", prose, re.M),
        "rows of tables": [line.count("|") for line in prose.splitlines() if line.startswith("|")],
        "code": [code_of(*fence) for fence in fences],
        "links": links,
        "names in the text": names_in(prose),
    }


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.stem)
def test_a_translation_says_what_the_page_says(page: Path):
    original, translation = (outline(path.read_text("utf-8")) for path in (page, TRANSLATED[page]))
    for what, found in original.items():
        assert translation[what] == found, f"{TRANSLATED[page].name} differs from {page.name}: {what}"


DRIFT = {
    "a heading": (r"^## .*\n", "", "levels of headings"),
    "a list item": (r"^- .*\n", "", "list items"),
    "a row": (r"^\| 1 \|.*\n|^\| float64 \|.*\n", "", "rows of tables"),
    "a figure": (
        r"(<!-- (?:gains|gpu_rungs):begin -->\n[^<]*?\d)\.(\d)",
        r"\1.9\2",
        "generated tables and pictures",
    ),
    "a block": (r"<!-- (\w+):begin -->.*?<!-- \1:end -->", "", "blocks"),
    "an option": (r"`level=None` never|`level=None`, the", "`level=3`, the", "names in the text"),
    "a command": (r"^fastgemm ladder", "fastgemm bench", "code"),
    "a link": (r"\(docs/install\.md\)|\(pitfalls\.md\)", "(docs/index.md)", "links"),
}


@pytest.mark.parametrize("change", DRIFT)
@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.stem)
def test_drift_is_noticed(page: Path, change: str):
    """Each change is made only in the original, as by an edit that forgets the translation."""
    pattern, instead, what = DRIFT[change]
    text = page.read_text("utf-8")
    changed = re.sub(pattern, instead, text, count=1, flags=re.M | re.S if "begin" in pattern else re.M)
    if changed == text:
        pytest.skip("the page has none")
    assert outline(changed)[what] != outline(text)[what]
