"""Compares the times of two builds of this library on one GPU. For each problem the builds take turns.

    python tools/compare_builds.py OLD NEW --json OUT.json [--preset tensor_cores] [--rounds 3]

OLD and NEW are folders that hold a built package ``fastgemm`` (python/ of a checkout). Each is loaded in its
own process, which times a call as `fastgemm bench` does: CUDA events, cold L2. A ratio is old / new: above 1
the new build is faster. Problems that one of them cannot run are left out and listed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

PRESETS = ("tensor_cores", "weak_spots", "reference")
FIELDS = ("m", "n", "k", "layout", "batch", "precision")
REPEATS = 5  # calls per turn


def worker() -> None:
    """For each line of JSON, prepares a problem or times it, and answers with a line of JSON."""
    import torch
    from fastgemm.bench.cuda_timing import CudaTimer
    from fastgemm.bench.problems import Gemm, instantiate

    timer, call = CudaTimer(), None
    for line in sys.stdin:
        asked = json.loads(line)
        if not asked:
            print(json.dumps([timer.sample(call, 1) for _ in range(REPEATS)]), flush=True)
            continue
        call = instance = None
        torch.cuda.empty_cache()
        torch.manual_seed(0)
        try:
            problem = Gemm(dtype=getattr(torch, asked.pop("dtype")), **asked.pop("sizes"))
            instance = instantiate(problem, device="cuda")
            call = instance.ours(**asked)
            for _ in range(2):
                call()
            torch.cuda.synchronize()
            answer = asked.get("kernel") or instance.chosen(asked.get("level"))
        except (RuntimeError, ValueError, NotImplementedError) as why:
            answer = f"! {why}"
        print(json.dumps(answer), flush=True)


class Build:
    def __init__(self, folder: Path):
        environment = os.environ | {"PYTHONPATH": str(folder.resolve())}
        command = [sys.executable, __file__, "--worker"]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **what: Any) -> Any:
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def cases(presets: list[str]) -> dict[str, dict[str, Any]]:
    """The problems for both builds, by label."""
    from fastgemm.bench.problems import Gemm, dtype_name, label
    from studies.presets import cases_of

    found = {}
    for preset in presets:
        for case in cases_of(preset, "cuda", seed=0):
            if not isinstance(case.problem, Gemm) or getattr(case, "sustained", False):
                continue
            for choice in map(dict, case.choices):
                sizes = {name: getattr(case.problem, name) for name in FIELDS}
                name = f"{preset}: {label(case.problem)} {choice or ''}".strip()
                found[name] = {"sizes": sizes, "dtype": dtype_name(case.problem.dtype), **choice}
    return found


def compare(old: Build, new: Build, asked: dict[str, Any], rounds: int) -> dict[str, Any]:
    ran = [build.ask(**asked) for build in (old, new)]
    if any(answer.startswith("! ") for answer in ran):
        return {"left_out": ran}
    samples: tuple[list, list] = ([], [])
    for turn in range(rounds):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            samples[which].extend((old, new)[which].ask())
    seconds = [statistics.median(times) for times in samples]
    return {"kernels": ran, "seconds": seconds, "ratio": seconds[0] / seconds[1]}


def summarize(found: dict[str, Any]) -> None:
    ratios = {name: row["ratio"] for name, row in found.items() if "ratio" in row}
    for name in sorted(ratios, key=ratios.__getitem__):
        if ratios[name] < 0.97 or ratios[name] > 1.03:
            print(f"{ratios[name]:.3f}  {found[name]['kernels']}  {name}")
    for name in (name for name, row in found.items() if "left_out" in row):
        print("left out:", name, found[name]["left_out"])
    mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
    print(f"{len(ratios)} problems: geometric mean of old / new {mean:.4f}, least {min(ratios.values()):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--preset", action="append", choices=PRESETS)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))
    from studies.environment import describe

    old, new = Build(args.old), Build(args.new)
    found = {
        name: compare(old, new, asked, args.rounds) for name, asked in cases(args.preset or PRESETS).items()
    }
    # Problems that look slower are timed again with more calls: the times of a few calls vary more than the
    # differences between builds.
    asked = cases(args.preset or PRESETS)
    for name, row in found.items():
        if row.get("ratio", 1) < 0.985:
            found[name] = compare(old, new, asked[name], 5 * args.rounds)
    summarize(found)
    if args.json:
        args.json.write_text(
            json.dumps({"environment": describe("cuda"), "problems": found}, indent=1) + "\n"
        )


if __name__ == "__main__":
    worker() if sys.argv[1:] == ["--worker"] else main()
