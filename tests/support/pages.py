"""README and the pages of docs/, as tests read them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
PAGES = [*READMES, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def snippets(text: str, language: str = "python") -> list[str]:
    """The fenced blocks of a language, which is a regular expression. All blocks are matched, so that the end
    of a block is not mistaken for the start of one without a language."""
    blocks = re.findall(r"^ *```(\S*)[^\n]*\n(.*?)^ *```", text, re.M | re.S)
    return [body for found, body in blocks if re.fullmatch(language, found)]
