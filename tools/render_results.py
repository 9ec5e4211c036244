"""Writes the tables and pictures in README.md and docs/*.md from benchmarks/results.

    python tools/render_results.py           rewrite what lies between the markers, and docs/img/
    python tools/render_results.py --check   write nothing; fail if anything would change

The text between <!-- NAME:begin --> and <!-- NAME:end --> is block NAME of a module of tools/render. The
BLOCKS of the module say which file it is made from, and which tables, sentences and pictures it has. A block
without a file is left empty.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from render.pages import Site

ROOT = Path(__file__).resolve().parent.parent


def draw(path: Path, save: Callable[[Path], object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / path.name
        save(made)
        # matplotlib ends lines of SVG paths with a space
        lines = made.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if anything would change")
    check = parser.parse_args(arguments).check
    site = Site(root)
    pages = {path: site.rendered(path) for path in site.documents()}
    stale = {path: text for path, text in pages.items() if text != path.read_text(encoding="utf-8")}
    pictures, left_over = site.stale_pictures(), site.left_over()
    changed = [path.relative_to(root) for path in [*stale, *pictures, *left_over]]
    if check:
        for path in changed:
            print(f"{path} is out of date: run python tools/render_results.py", file=sys.stderr)
        return 1 if changed else 0
    for path, text in stale.items():
        path.write_text(text, encoding="utf-8")
    for path, save in pictures.items():
        draw(path, save)
    for path in left_over:
        path.unlink()
    for path in changed:
        print(f"written: {path}" if (root / path).exists() else f"deleted: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
