"""An extension of Griffe (mkdocs.yml) that converts the cross-references in Python's docstrings.

Docstrings say :func:`matmul` and :class:`torch.Tensor`, like those of torch and of the standard library,
because editors and notebooks show these well. The site is Markdown. A name of this package becomes a link to
its place in the API reference; an unknown name fails the strict build. Any other name becomes code, and a
page of docs/ becomes a link with the page's title.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

ROLE = re.compile(r":(?:py:)?(?:func|class|meth|mod|attr|obj|data|exc):`~?(?P<name>[\w.]+)`")
PAGE = re.compile(r"\bdocs/(?P<page>\w+\.md)(?P<anchor>#[\w-]+)?")
PACKAGE = "fastgemm"
DOCS = Path(__file__).resolve().parent.parent / "docs"


def _link(found: re.Match[str], known: set[str]) -> str:
    name = found["name"]
    full = f"{PACKAGE}.{name}" if name.partition(".")[0] in known else name
    return f"[`{full}`][{full}]" if full.startswith(f"{PACKAGE}.") else f"`{name}`"


def _page(found: re.Match[str]) -> str:
    title = re.search(r"^# (.*)", (DOCS / found["page"]).read_text(encoding="utf-8"), re.M)[1]
    return f"[{title}]({found['page']}{found['anchor'] or ''})"


class Roles(griffe.Extension):
    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        if pkg.name == PACKAGE:
            imported = {name for name, each in pkg.members.items() if each.is_alias}
            own = {name for name in imported if pkg.members[name].target_path.startswith(f"{PACKAGE}.")}
            self._rewrite(pkg, set(pkg.members) - imported | own)

    def _rewrite(self, obj: griffe.Object, known: set[str]) -> None:
        if obj.docstring is not None:
            linked = ROLE.sub(lambda found: _link(found, known), obj.docstring.value)
            obj.docstring.value = PAGE.sub(_page, linked)
        for member in obj.members.values():
            if not member.is_alias:
                self._rewrite(member, known)
