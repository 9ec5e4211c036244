"""Sums up a stage of tools/gpu_check.sh as JSON, and prints the gist of it.

gpu_report.py build OUT.json
gpu_report.py test OUT.json JUNIT.xml
gpu_report.py sanitize OUT.json TOOL=EXIT_CODE=LOG ...
gpu_report.py bench OUT.json REPORT.json ...
"""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

import fastgemm
from fastgemm.bench import describe
from fastgemm.bench.accuracy import COMMAND, read_accuracy
from fastgemm.bench.records import Report, read_report, select
from fastgemm.table import build_info
from render.peers import section as peers_section
from render.tensor_cores import squares_section
from render.weak_spots import problems_section, sustained_section

KEPT = 4000  # characters of a failure's message


def build() -> dict[str, Any]:
    rows = fastgemm.kernels(device="cuda")
    missing = {f"{row.op} {row.name}": row.unavailable for row in rows if not row.available}
    print(f"{len(rows)} CUDA rows, {len(rows) - len(missing)} can run here")
    for name, why in missing.items():
        print(f"  {name}: {why}")
    return {"build": build_info(), "rows": len(rows), "unavailable": missing}


def tests(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"finished": False}
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    counts: Counter[str] = Counter()
    failures = []
    for case in cases:
        wrong = [child for child in case if child.tag in ("failure", "error")]
        skipped = case.find("skipped") is not None
        counts["failed" if wrong else "skipped" if skipped else "passed"] += 1
        for child in wrong:
            name = f"{case.get('classname')}::{case.get('name')}"
            failures.append({"test": name, "text": (child.text or child.get("message") or "")[-KEPT:]})
    slowest = sorted(cases, key=lambda case: -float(case.get("time", 0)))[:20]
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return {
        "finished": True,
        "counts": counts,
        "failures": failures,
        "slowest": {f"{c.get('classname')}::{c.get('name')}": float(c.get("time", 0)) for c in slowest},
    }


def sanitize(runs: list[str]) -> dict[str, Any]:
    found = {}
    for run in runs:
        tool, code, log = run.split("=", 2)
        text = Path(log).read_text(encoding="utf-8", errors="replace")
        errors = re.findall(
            r"^========= .*(?:SUMMARY|Error|error|hazard|Invalid|Uninitialized).*$", text, re.M
        )
        cases = re.findall(r"^(\d+) cases$", text, re.M)
        found[tool] = {
            "exit_code": int(code),
            "cases": int(cases[-1]) if cases else None,  # None: the run did not reach its end
            "errors": errors[:40],
            "tail": text[-KEPT:],
        }
        summary = next((line for line in errors if "SUMMARY" in line), "no summary")
        print(f"{tool}: exit code {code}, {cases[-1] if cases else 'unfinished'} cases, {summary}")
    return {"tools": found}


def print_means(report: Report) -> None:
    """Geometric mean and least of every group, and the slowest problems."""
    for what, means in report.summary.items():
        print(what)
        for name, mean in means.items():
            value = mean.get("speedup", mean.get("share"))
            print(f"  {name:44} {value:6.3f}  least {mean['least']:6.3f}  of {mean['problems']}")
    timed = [row for row in report.results if row.speedup]
    print("slowest of level 6 and of level=None against the baseline")
    for choice in ("level 6", "fastest"):
        for row in sorted(select(timed, choice=choice), key=lambda row: row.speedup.median)[:8]:
            what = f"{row.type_name} {row.label}, {row.choice}"
            ran = f"{row.kernel} against {row.baseline}"
            print(f"  {what:44} {row.speedup.median:6.3f}  {row.rate:7.1f} {row.unit}  {ran}")
    for row in report.results:
        if row.message:
            print(f"  {row.type_name} {row.label}, {row.choice}: {row.message}")


def bench(paths: list[Path]) -> dict[str, Any]:
    """Which benchmarks ran; their figures stay in their own files."""
    found = {}
    for path in paths:
        if not path.exists():
            continue
        report = read_accuracy(path) if path.stem == COMMAND else read_report(path)
        found[path.stem] = {"rows": len(report.results), "right": report.right, "summary": report.summary}
        if path.stem == "tensor_cores":
            print(squares_section(report))
            print_means(report)
        if path.stem == "peers":
            print(peers_section(report))
        if path.stem == "weak_spots":
            print(f"{problems_section(report)}\n\n{sustained_section(report)}")
            print_means(report)
    print("benchmarks: " + (", ".join(found) or "none"))
    return {"benchmarks": found}


def main(stage: str, out: str, *arguments: str) -> None:
    parts = {
        "build": build,
        "test": lambda: tests(Path(arguments[0])),
        "sanitize": lambda: sanitize(list(arguments)),
        "bench": lambda: bench([Path(a) for a in arguments]),
    }
    found = {"stage": stage, "environment": describe(), **parts[stage]()}
    Path(out).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
