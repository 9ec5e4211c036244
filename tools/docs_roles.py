"""An extension of Griffe (mkdocs.yml) that understands the cross-references of Python's docstrings.

Docstrings say :func:`matmul` and :class:`torch.Tensor`, as those of torch and of the standard library do, which
editors and notebooks show well. The site is Markdown: a name of this package becomes a link to where the API
reference describes it (a name that it lacks fails the strict build), any other name becomes code.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:py:)?(?:func|class|meth|mod|attr|obj|data|exc):`~?(?P<name>[\w.]+)`")
PACKAGE = "fastgemm"


def _link(found: re.Match[str], known: set[str]) -> str:
    name = found["name"]
    full = f"{PACKAGE}.{name}" if name.partition(".")[0] in known else name
    return f"[`{full}`][{full}]" if full.startswith(f"{PACKAGE}.") else f"`{name}`"


class Roles(griffe.Extension):
    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        if pkg.name == PACKAGE:
            imported = {name for name, each in pkg.members.items() if each.is_alias}
            own = {name for name in imported if pkg.members[name].target_path.startswith(f"{PACKAGE}.")}
            self._rewrite(pkg, set(pkg.members) - imported | own)

    def _rewrite(self, obj: griffe.Object, known: set[str]) -> None:
        if obj.docstring is not None:
            obj.docstring.value = ROLE.sub(lambda found: _link(found, known), obj.docstring.value)
        for member in obj.members.values():
            if not member.is_alias:
                self._rewrite(member, known)
