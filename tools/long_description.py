"""Makes README.md the description of the package on a package index, where relative links do not work.

With the repository's address (``[project.urls] Repository`` in pyproject.toml), links and pictures become
absolute and lead to the tag of the version. Without it, only the text of links stays, and pictures are
removed. Code stays unchanged.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCED = re.compile(r"(^```.*?^```[^\n]*$)", re.MULTILINE | re.DOTALL)
RELATIVE = r"(?!https?:|mailto:|#)([^)\s]+)"
PICTURE = re.compile(rf"!\[([^\]]*)\]\({RELATIVE}\)")
LINK = re.compile(rf"(?<!!)\[((?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*)\]\({RELATIVE}\)")
TAG = re.compile(r"""<(img|source)\b[^>]*?\b(?:src|srcset)="(?!https?:)([^"]+)"[^>]*>""")
ANCHOR = re.compile(r"""\bhref="(?!https?:|mailto:|#)([^"]+)\"""")
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)


def repository() -> str | None:
    """The address of the repository, if pyproject.toml names one."""
    found = re.search(r'^Repository = "([^"]+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    return found and found.group(1).rstrip("/")


def _text(text: str, address: str | None, tag: str) -> str:
    text = COMMENT.sub("", text)  # the markers of generated tables
    if address is None:
        return LINK.sub(r"\1", PICTURE.sub("", TAG.sub("", text)))
    text = PICTURE.sub(rf"![\1]({address}/raw/{tag}/\2)", text)
    text = TAG.sub(lambda m: m.group(0).replace(m.group(2), f"{address}/raw/{tag}/{m.group(2)}"), text)
    text = ANCHOR.sub(rf'href="{address}/blob/{tag}/\1"', text)
    return LINK.sub(rf"[\1]({address}/blob/{tag}/\2)", text)


def long_description(readme: str, address: str | None, version: str) -> str:
    """The text of README.md for a release."""
    parts = FENCED.split(readme)
    return "".join(p if p.startswith("```") else _text(p, address, f"v{version}") for p in parts)


def relative_links(text: str) -> list[str]:
    """The relative links, which would not work."""
    rest = FENCED.sub("", text)
    found = [m.group(2) for pattern in (PICTURE, LINK, TAG) for m in pattern.finditer(rest)]
    return found + [m.group(1) for m in ANCHOR.finditer(rest)]
