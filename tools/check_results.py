"""Which results were measured with other kernels than those of today: `make lint` runs it.

    python tools/check_results.py                 fail if a results file is older than its kernels' sources
    python tools/check_results.py --add REASON    write those that are into benchmarks/stale.json, for this reason

A file of benchmarks/results names the commit that it was measured at and, in its rows, kernels; where it names
none it is of all, since a call may have taken any. It is stale if a source of one of these (the file that defines
it, and what that includes of its op and of csrc/cuda/device) reads otherwise today than at that commit, but for
comments and blanks. benchmarks/stale.json lists those that are known, with a reason; an entry for a file that is
not stale fails, so that the list shrinks as results are measured again.
Without git, or with a history that ends before, nothing can be said, and nothing is.
"""

# ruff: noqa: B019  (what is kept lives as long as the check)

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import fastgemm

ROOT = Path(__file__).resolve().parent.parent
# What names kernels for others: a choice can change by it, as by predictions, but no kernel.
TABLES = ("rows.def",)
LIBRARIES = ("torch", "cublas")  # what the names of rows begin with that have no source here
SHOWN = 4  # kernels of a file
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def git(root: Path, *words: str) -> str | None:
    """What git says; None where it fails, or is not there."""
    try:
        done = subprocess.run(["git", "-C", root, *words], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.decode("utf-8", "replace")


def code(text: str) -> str:
    """Without comments and blanks."""
    return re.sub(r"\s+", " ", COMMENT.sub("", text)).strip()


Named = tuple[str, str]  # op and kernel


def kernels_in(data: Any, known: dict[Named, str], op: str = "gemm") -> Iterator[Named]:
    """Kernels that any row or key of a file names; a row's op is its own, or that of what it lies in."""
    if isinstance(data, dict):
        op = data["op"] if isinstance(data.get("op"), str) else op
        for key, value in data.items():
            yield from kernels_in(key, known, op)
            yield from kernels_in(value, known, op)
    elif isinstance(data, list):
        for value in data:
            yield from kernels_in(value, known, op)
    elif isinstance(data, str) and (op, data) in known:
        yield op, data


class Sources:
    """Which files of a working tree define a kernel."""

    def __init__(self, root: Path):
        self.root = root

    @cache
    def folder(self, device: str, op: str) -> dict[Path, str]:
        base = self.root / "csrc" / device / op
        files = [path for path in sorted(base.rglob("*")) if path.suffix in (".cu", ".cpp")]
        return {path: path.read_text(encoding="utf-8") for path in files if path.stem != "table"}

    @cache
    def definition(self, device: str, op: str, name: str) -> tuple[Path, ...]:
        """The file of the kernel's name; else those that define or, failing that, mention it."""
        files = self.folder(device, op)
        named = [path for path in files if re.fullmatch(rf"(\w+?_)?{name}", path.stem)]
        called = [path for path, text in files.items() if re.search(rf"\b{op}_{name}\(", text)]
        mentioned = [path for path, text in files.items() if re.search(rf"\b{name}\b", text)]
        return tuple(named or called or mentioned)

    @cache
    def of(self, device: str, op: str, name: str) -> frozenset[str]:
        """Paths below the root, as git has them."""
        waiting, found = list(self.definition(device, op, name)), set()
        folders = (self.root / "csrc" / device / op, self.root / "csrc" / "cuda" / "device")
        while waiting:
            path = waiting.pop()
            if path in found or not path.is_file() or path.name in TABLES:
                continue
            if not any(f in path.parents for f in folders):
                continue
            found.add(path)
            waiting += [self.root / "csrc" / name for name in INCLUDE.findall(path.read_text("utf-8"))]
            waiting += [path.with_suffix(".cu")]  # what a header declares
        return frozenset(path.relative_to(self.root).as_posix() for path in found)


class History:
    """Whether a file reads as it did at a commit."""

    def __init__(self, root: Path):
        self.root = root

    @cache
    def tree(self, commit: str) -> dict[str, str]:
        """Blobs by path."""
        listed = git(self.root, "ls-tree", "-r", commit, "csrc") or ""
        found = (re.match(r"\d+ blob (\w+)\t(.*)", line) for line in listed.splitlines())
        return {match[2]: match[1] for match in found if match}

    def knows(self, commit: str) -> bool:
        return git(self.root, "cat-file", "-e", f"{commit}^{{commit}}") is not None

    @cache
    def blob(self, name: str) -> str:
        return code(git(self.root, "cat-file", "blob", name) or "")

    @cache
    def today(self, path: str) -> str:
        return code((self.root / path).read_text(encoding="utf-8"))

    @cache
    def same(self, commit: str, path: str) -> bool:
        blob = self.tree(commit).get(path)
        return blob is not None and self.blob(blob) == self.today(path)


def stale_files(root: Path) -> dict[str, str]:
    """Results files that are stale, by their path below benchmarks/results, each with what changed."""
    sources, history = Sources(root), History(root)
    results = root / "benchmarks" / "results"
    rows = [row for row in fastgemm.kernels() if not row.name.startswith(LIBRARIES)]
    known = {
        device: {(row.op, row.name): row.name for row in rows if row.device == device}
        for device in ("cpu", "cuda")
    }
    found = {}
    for path in sorted(results.rglob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        environment = data.get("environment") or {}
        device = "cpu" if path.parent.name == "cpu" else "cuda"
        named = sorted(set(kernels_in({k: v for k, v in data.items() if k != "environment"}, known[device])))
        named = named or sorted(known[device])
        text = f"{environment.get('commit')} {environment.get('portable_commit', '')}"
        commits = re.findall(r"\b[0-9a-f]{7,40}\b\+?", text)
        name = path.relative_to(results).as_posix()
        if not commits:
            found[name] = "it names no commit"
        elif unknown := [c for c in commits if c.endswith("+") or not history.knows(c)]:
            found[name] = f"{unknown[0]} is no commit of this history"
        else:
            changed = [
                kernel
                for op, kernel in named
                if not all(
                    history.same(commit, file)
                    for commit in commits
                    for file in sources.of(device, op, kernel)
                )
            ]
            if changed:
                more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
                found[name] = f"since {commits[0][:12]} changed: {', '.join(changed[:SHOWN])}{more}"
    return found


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--add", metavar="REASON", help="list what is stale, for this reason")
    reason = parser.parse_args(arguments).add
    if (
        git(root, "rev-parse", "--git-dir") is None
        or (git(root, "rev-parse", "--is-shallow-repository") or "").strip() == "true"
    ):
        print("no history: how old results are cannot be said")
        return 0
    listed = root / "benchmarks" / "stale.json"
    known = json.loads(listed.read_text(encoding="utf-8")) if listed.exists() else {}
    stale = stale_files(root)
    if reason:
        kept = {name: known.get(name, reason) for name in stale}
        listed.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{len(kept)} files in {listed.name}, {len(set(kept) - set(known))} of them new")
        return 0
    for name in sorted(set(stale) & set(known)):
        print(f"known to be stale: {name}: {stale[name]} ({known[name]})")
    wrong = [
        f"{name} is stale: {stale[name]}; measure it again, or list it with --add"
        for name in sorted(set(stale) - set(known))
    ]
    wrong += [
        f"{name} is not stale any more: take it out of benchmarks/stale.json (--add does)"
        for name in sorted(set(known) - set(stale))
    ]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
