"""The pages, their blocks, and the pictures in these blocks."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

from fastgemm.bench import plots

from . import (
    accuracy,
    chinese,
    choosing,
    counters,
    explain,
    fp8,
    grouped,
    groups,
    levels,
    models,
    packed,
    peers,
    products,
    results,
    support,
)
from .spec import Block

BLOCK = re.compile(r"(<!-- (\w+):begin -->\n)(.*?)(<!-- \2:end -->)", re.DOTALL)
MARKER = re.compile(r"<!-- (\w+):(?:begin|end) -->")
OF_FILES: dict[str, Block] = {
    name: block
    for module in (levels, groups, models, products, packed, grouped, fp8, accuracy, peers)
    for name, block in module.BLOCKS.items()
} | choosing.OF_FILES
OF_THE_BUILD = {**support.BLOCKS, **explain.BLOCKS, **choosing.BLOCKS, **packed.OF_THE_BUILD}


class Site:
    """README, docs, and the results that they show. Rendering a page adds its pictures to ``pictures``: the
    function that draws each, and an identifier of its data."""

    def __init__(self, root: Path):
        self.root = root
        self.results = root / "benchmarks" / "results"
        self.images = root / "docs" / "img"
        self.reports = cache(partial(results.reports, self.results))
        self.pictures: dict[Path, tuple[str, Callable[[Path], object]]] = {}

    def documents(self) -> list[Path]:
        readmes = [self.root / name for name in ("README.md", "README.zh-CN.md")]
        return [path for path in [*readmes, *sorted((self.root / "docs").glob("*.md"))] if path.exists()]

    def rendered(self, document: Path) -> str:
        text = document.read_text(encoding="utf-8")
        blocks = [found.group(2) for found in BLOCK.finditer(text)]
        if len(MARKER.findall(text)) != 2 * len(blocks):
            raise SystemExit(f"{document}: a marker has no partner")
        translated = chinese.translated if ".zh" in document.suffixes[0] else str
        return BLOCK.sub(
            lambda m: m.group(1) + translated(self.block(m.group(2), document)) + m.group(4), text
        )

    def block(self, name: str, document: Path) -> str:
        """The text of a block; empty if the results have no file for it."""
        if name in OF_FILES:
            text = "\n\n".join(self._of_file(OF_FILES[name], document))
        elif name in groups.HEADLINES:
            text = self._of_the_first_gpu(groups.HEADLINES[name])
        elif name == "counters":
            text = counters.sections(self.results)
        elif name in OF_THE_BUILD:
            text = OF_THE_BUILD[name]()
        else:
            raise SystemExit(f"{document}: unknown block {name!r}")
        if name == "explain":
            path = self.images / explain.PICTURE
            text += f"\n\n{self._shown(path, explain.ALT, explain.fingerprint(), explain.draw, document)}"
        return f"{text}\n" if text else ""

    def _of_file(self, block: Block, document: Path) -> Iterator[str]:
        for device, report in self.reports(block.file, block.device).items():
            if block.picture:
                path = self.images / f"{block.picture.name}_{device}.svg"
                alt = f"{block.picture.alt} {report.environment['device']}"
                save = partial(plots.save, report, make=block.picture.draw)
                yield self._shown(path, alt, plots.fingerprint(report), save, document)
            if text := block.text(report):
                yield text

    def _shown(
        self, path: Path, alt: str, fingerprint: str, save: Callable[[Path], object], document: Path
    ) -> str:
        self.pictures[path] = fingerprint, save
        return f"![{alt}]({os.path.relpath(path, document.parent)})"

    def _of_the_first_gpu(self, make: Callable[..., str]) -> str:
        found = {name: self.reports(name, "cuda") for name in groups.FILES}
        if not all(found.values()):
            return ""
        first = {name: next(iter(each.values())) for name, each in found.items()}
        return make(first, self.reports("reference", "cpu"), self.reports("grid", "cuda"))

    def stale_pictures(self) -> dict[Path, Callable[[Path], object]]:
        """The functions that draw outdated pictures. Call it after rendering all pages."""
        return {
            path: save
            for path, (fingerprint, save) in self.pictures.items()
            if not path.exists() or fingerprint not in path.read_text(encoding="utf-8")
        }

    def left_over(self) -> list[Path]:
        """The pictures that no page shows."""
        return [path for path in sorted(self.images.glob("*.svg")) if path not in self.pictures]
