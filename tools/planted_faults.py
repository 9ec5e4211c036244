"""Plants faults, one after the other, and says whether the intended check finds each of them.

    tools/planted_faults.py list
    tools/planted_faults.py run cpu_packed_rows sharded_c    these
    tools/planted_faults.py run --all                        all of tests/planted

A fault is tests/planted/NAME.patch: a sentence about what is wrong, `found by: COMMAND`, and a diff of a few
lines. HEAD is checked out and built once, in build/planted/tree. Every command must pass there first. Then
each patch is applied, the changed parts are built again, and its command must fail: by a failing test, not
because no test ran.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATCHES = ROOT / "tests/planted"
PLACE = ROOT / "build/planted"
TREE = PLACE / "tree"
LONGEST = 1200  # seconds for one command
NOBODY = "nothing"  # for a fault that no check finds
CTEST_FAILS, PYTEST_FAILS = 8, 1  # their exit statuses if a test fails; other statuses mean that no test ran


def needs_package(finder: str) -> bool:
    return any(word in finder for word in ("pytest", "fastgemm", "tools/render"))


@dataclass
class Fault:
    name: str
    wrong: str
    finder: str
    areas: list[str]

    @property
    def path(self) -> Path:
        return PATCHES / f"{self.name}.patch"


@dataclass
class Outcome:
    fault: Fault
    found: bool | None
    seconds: float = 0
    why: str = ""


def read_fault(path: Path) -> Fault:
    header, _, diff = path.read_text(encoding="utf-8").partition("\n--- a/")
    wrong, _, finder = header.partition("found by: ")
    if not (wrong.strip() and finder.strip() and diff):
        raise SystemExit(f"{path}: expected a sentence, a line 'found by: COMMAND' and a diff")
    files = [line[len("+++ b/") :] for line in diff.splitlines() if line.startswith("+++ b/")]
    areas = sorted({str(Path(file).parent) for file in files})
    return Fault(path.stem, " ".join(wrong.split()), finder.strip(), areas)


def environment() -> dict[str, str]:
    """The environment of make test, with this Python's programs and the tree's package first."""
    put_first = {"PATH": Path(sys.executable).parent, "PYTHONPATH": TREE / "python"}
    changed = {name: f"{value}{os.pathsep}{os.environ.get(name, '')}" for name, value in put_first.items()}
    changed["FASTGEMM_CACHE_DIR"] = str(PLACE / "cache")
    return {**os.environ, **changed, "OMP_WAIT_POLICY": "PASSIVE", "PYTEST_ADDOPTS": "-x -q"}


def shell(command: str, log: Path) -> int:
    with log.open("a", encoding="utf-8") as out:
        print(f"$ {command}", file=out, flush=True)
        arguments = ["timeout", str(LONGEST), "bash", "-c", command]
        done = subprocess.run(arguments, cwd=TREE, env=environment(), stdout=out, stderr=out, check=False)
    return done.returncode


def git(*arguments: str, folder: Path = TREE) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def prepare_tree() -> None:
    head = git("rev-parse", "HEAD", folder=ROOT)
    if TREE.exists():
        git("reset", "--quiet", "--hard")
        git("checkout", "--quiet", "--detach", head)
    else:
        PLACE.mkdir(parents=True, exist_ok=True)
        git("worktree", "prune", folder=ROOT)
        git("worktree", "add", "--quiet", "--detach", str(TREE), head, folder=ROOT)


def build(log: Path) -> bool:
    """Builds the package. A finder that runs ctest builds its own programs."""
    built = f"build/cmake-{sys.implementation.cache_tag}"
    again = f"cmake --build {built} -- --quiet && cmake --install {built}"
    first = "python setup.py --quiet build_ext --inplace"
    return shell(again if list(TREE.glob("python/fastgemm/*.so")) else first, log) == 0


def configure(finders: set[str], log: Path) -> None:
    for folder, option in ("build/tests", "OFF"), ("build/sanitize", "ON"):
        setup = f"cmake -S . -B {folder} -G Ninja -DFASTGEMM_TORCH=OFF -DFASTGEMM_SANITIZE={option}"
        if any(folder in finder for finder in finders) and shell(setup, log):
            raise SystemExit(f"cmake failed: {log}")


def passes_without_fault(finders: set[str], log: Path) -> bool:
    passed = True
    for finder in sorted(finders):
        passes = shell(finder, log) == 0
        print(f"without a fault {'passes' if passes else 'FAILS'}: {finder}", flush=True)
        passed &= passes
    return passed


def plant(fault: Fault) -> Outcome:
    if fault.finder == NOBODY:
        return Outcome(fault, None)
    log = PLACE / f"{fault.name}.log"
    log.unlink(missing_ok=True)
    start = time.monotonic()
    git("apply", str(fault.path))
    try:
        if needs_package(fault.finder) and not build(log):  # this also removes the previous fault
            return Outcome(fault, False, time.monotonic() - start, "does not build")
        status = shell(fault.finder, log)
    finally:
        git("apply", "--reverse", str(fault.path))
    expected = CTEST_FAILS if "ctest" in fault.finder else PYTEST_FAILS
    why = "" if status == expected else f"exit status {status}"
    return Outcome(fault, status == expected, time.monotonic() - start, why)


def table(outcomes: list[Outcome]) -> str:
    words = {True: "yes", False: "NO", None: "-"}
    rows = [
        (o.fault.name, ", ".join(o.fault.areas), o.fault.finder, words[o.found], f"{o.seconds:.0f}", o.why)
        for o in outcomes
    ]
    rows.insert(0, ("fault", "area", "finder", "found", "seconds", ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def run(faults: list[Fault], checks_first: bool) -> int:
    prepare_tree()
    for fault in faults:
        git("apply", "--check", str(fault.path))  # if a patch does not apply, the program ends and names it
    log = PLACE / "without_fault.log"
    log.unlink(missing_ok=True)
    finders = {fault.finder for fault in faults} - {NOBODY}
    configure(finders, log)
    if any(map(needs_package, finders)) and not build(log):
        raise SystemExit(f"the tree does not build: {log}")
    if checks_first and not passes_without_fault(finders, log):
        print(f"the log: {log}")
        return 1
    outcomes = []
    for fault in faults:
        outcomes.append(plant(fault))
        print(table(outcomes[-1:]).splitlines()[1], flush=True)
    print(f"\n{table(outcomes)}")
    return int(any(outcome.found is False for outcome in outcomes))


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name, what is wrong and what finds it")
    runs = commands.add_parser("run", help="plant faults; exit with 1 if one is not found")
    runs.add_argument("names", nargs="*", metavar="NAME")
    runs.add_argument("--all", action="store_true")
    runs.add_argument("--unchecked", action="store_true", help="do not run the finders without a fault first")
    given = parser.parse_args()
    faults = {path.stem: read_fault(path) for path in sorted(PATCHES.glob("*.patch"))}
    if given.command == "list":
        print("\n".join(f"{f.name}: {f.wrong}\n    {f.finder}" for f in faults.values()))
        return 0
    if unknown := set(given.names) - set(faults):
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    if bool(given.names) == given.all:
        parser.error("name faults, or pass --all")
    return run([f for f in faults.values() if given.all or f.name in given.names], not given.unchecked)


if __name__ == "__main__":
    sys.exit(main())
