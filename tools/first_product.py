"""What a program waits for once: importing fastgemm, and its first product after torch's first one on a device.

    python tools/first_product.py --json benchmarks/results/h200/first_product.json

Every row is the median of fresh processes, in which torch had been imported and had made its context.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

SIZE = 1024
PRODUCTS = ("float32", "bfloat16", "float64", "int8")


def child(device: str) -> dict[str, float]:
    """Milliseconds of each step, in this process."""
    found: dict[str, float] = {}

    def timed(name: str, call) -> None:
        start = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        found[name] = (time.perf_counter() - start) * 1e3

    operands = {
        name: torch.randint(-9, 9, (SIZE, SIZE), device=device).to(getattr(torch, name)) for name in PRODUCTS
    }
    for name in ("float32", "bfloat16"):
        x = operands[name]
        timed(f"torch's first product of {name}", lambda x=x: x @ x)
    timed("import fastgemm", lambda: __import__("fastgemm"))
    import fastgemm

    for name, x in operands.items():
        timed(f"first product of {name}", lambda x=x: fastgemm.matmul(x, x))
        timed(f"second product of {name}", lambda x=x: fastgemm.matmul(x, x))
    timed("first transpose", lambda: fastgemm.transpose(operands["float32"]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--processes", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.device)))
        return
    command = [sys.executable, __file__, "--child", "--device", options.device]
    runs = []
    with tempfile.TemporaryDirectory() as cache:  # compiled modules, as pip leaves them
        compiled = {"PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        for _ in range(options.processes + 1):  # the first one fills the caches
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, env=os.environ | compiled
            )
            runs.append(json.loads(done.stdout.splitlines()[-1]))
    rows = {name: statistics.median(run[name] for run in runs[1:]) for name in runs[0]}
    for name, value in rows.items():
        print(f"{value:10.3f} ms  {name}")
    if options.json:
        from fastgemm.bench import describe

        head = {"environment": describe(options.device), "unit": "ms", "size": SIZE}
        options.json.write_text(json.dumps(head | {"processes": options.processes, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
