"""Times the import and the first products of a process, and prints the milliseconds as JSON.
presets/first_product.py runs it repeatedly.

python benchmarks/first_calls.py cpu|cuda
"""

from __future__ import annotations

import json
import sys
import time

import torch

SIZE = 1024
PRODUCTS = ("float32", "bfloat16", "float64", "int8")


def main(device: str) -> dict[str, float]:
    found: dict[str, float] = {}

    def timed(name: str, call) -> None:
        start = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        found[name] = time.perf_counter() - start

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


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
