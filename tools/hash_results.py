"""Hashes the results of the CUDA kernels of a build, so that two builds can be compared bit for bit.

    python tools/hash_results.py OUT.json                 every row, on simulated GPUs
    python tools/hash_results.py OUT.json --device cuda   on the GPU
    python tools/hash_results.py --compare OLD.json NEW.json

Operands depend only on the problem. Each hash is stored with the kernels that were launched; the bits must
agree only if both builds launched the same ones. Problems that a row rejects are left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import fastgemm
import torch

# (batch, m, n, k), trans_a, trans_b, offset of the operands' first elements, beta.
SHAPES = [
    (1, 64, 64, 64),
    (1, 100, 72, 130),
    (1, 129, 257, 96),
    (1, 8, 200, 320),
    (1, 300, 3, 67),
    (3, 33, 65, 40),
]
SHAPES += [(20, 32, 32, 32), (1, 160, 144, 520), (1, 1, 1, 1), (2, 260, 130, 85)]
LARGE = [(1, 1024, 1024, 1024), (1, 1000, 777, 3001), (1, 256, 256, 16384), (1, 16, 8192, 4096)]
LARGE += [(64, 128, 128, 128), (1, 513, 1025, 2049), (1, 2048, 2048, 512)]
LAYOUTS = [(False, False), (False, True), (True, False), (True, True)]
Case = tuple[tuple[int, int, int, int], bool, bool, int, float]


def cases(device: str) -> Iterator[Case]:
    for i, shape in enumerate(SHAPES + (LARGE if device == "cuda" else [])):
        for j, (trans_a, trans_b) in enumerate(LAYOUTS):
            yield shape, trans_a, trans_b, (i + j) % 3 % 2, (0.0, 0.5, 0.0)[(i + j) % 3]


@cache
def operand(batch: int, rows: int, columns: int, dtype: torch.dtype, offset: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = (batch * rows * columns + offset,)
    if dtype.is_floating_point:
        flat = torch.randn(size, generator=generator).to(dtype)
    else:
        flat = torch.randint(-100, 100, size, generator=generator).to(dtype)
    return flat[offset:].view(batch, rows, columns)


def launched(device: str, call) -> tuple[torch.Tensor, list[str]]:
    if device == "cuda":
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            out = call()
            torch.cuda.synchronize()
        names = [e.name for e in profile.events() if "fastgemm" in e.name]
        return out, sorted({re.search(r"(\w+)_kernel\b", name)[1] for name in names})
    simulator = sys.modules["fastgemm._simt"]
    simulator.begin(count=False, raise_problems=False, max_blocks=0, multiprocessors=3, capability=90)
    try:
        out = call()
    finally:
        launches = simulator.end()
    return out, [launch["kernel"] for launch in launches]


def result(row: fastgemm.KernelInfo, name: str, case: Case, device: str) -> dict[str, object] | None:
    (batch, m, n, k), trans_a, trans_b, offset, beta = case
    dtype = getattr(torch, name)
    a = operand(batch, *((k, m) if trans_a else (m, k)), dtype, offset, 1).to(device)
    b = operand(batch, *((n, k) if trans_b else (k, n)), dtype, offset, 2).to(device)
    a, b = (a.mT if trans_a else a), (b.mT if trans_b else b)
    wider = {torch.int8: torch.int32, torch.uint8: torch.int32, torch.int16: torch.int64}
    out_dtype = wider.get(dtype, dtype)
    c = operand(batch, m, n, out_dtype, 0, 3).to(device) if beta else None
    options = {"kernel": row.name, "precision": row.precision if name == "float32" else None}
    if c is not None:
        options |= {"beta": beta if dtype.is_floating_point else 2}
    try:
        out, names = launched(device, lambda: fastgemm.gemm(a, b, c, **options))
    except RuntimeError as refusal:
        if "cannot run" in str(refusal):
            return None
        raise
    digest = hashlib.sha256(out.cpu().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]
    return {"bits": digest, "launches": names}


def measure(device: str, only: list[str]) -> dict[str, dict[str, object]]:
    from fastgemm._explain.run import load_simulator

    if device == "cpu":
        load_simulator()
    found = {}
    for row in fastgemm.kernels("gemm", "cuda"):
        if row.level == 7 or (only and row.name not in only) or (device == "cuda" and row.unavailable):
            continue
        for name in row.dtypes:
            for case in cases(device):
                one = result(row, name, case, device)
                if one is not None:
                    found[f"{row.name} {name} {case}"] = one
    return found


def compare(old: Path, new: Path) -> int:
    before, after = json.loads(old.read_text()), json.loads(new.read_text())
    counts: Counter[str] = Counter()
    rows = {case.split()[0] for case in after}
    for case in sorted(case for case in before.keys() | after.keys() if case.split()[0] in rows):
        if case not in before or case not in after:
            counts["in one build only"] += 1
        elif before[case]["launches"] != after[case]["launches"]:
            counts["other launches"] += 1
        elif before[case]["bits"] != after[case]["bits"]:
            counts["other bits"] += 1
            print("other bits:", case)
        else:
            counts["the same bits"] += 1
    print(", ".join(f"{kind}: {count}" for kind, count in sorted(counts.items())))
    return 1 if counts["other bits"] else 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--kernel", action="append", default=[], help="only this row; may be repeated")
    parser.add_argument("--compare", action="store_true")
    args = parser.parse_args()
    if args.compare:
        sys.exit(compare(*args.files))
    args.files[0].write_text(json.dumps(measure(args.device, args.kernel), indent=0))


if __name__ == "__main__":
    main()
