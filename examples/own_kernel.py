"""A CUDA kernel of your own, own_kernel.cu: compiled for the simulator, checked, and counted, without a GPU.

    python examples/own_kernel.py      in a clone, with a C++ compiler; pip install '.[notebooks]' brings the rest

CONTRIBUTING.md says how a kernel becomes a row of the table.
"""

import sys
from pathlib import Path

import torch
from fastgemm.bench import Gemm

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "notebooks"))
from ladder_notes.own_kernels import compile_kernels  # noqa: E402

mine = compile_kernels("own_kernel.cu", (HERE / "own_kernel.cu").read_text(encoding="utf-8"))
for problem in (Gemm(33, 17, 40), Gemm(64, 64, 64, torch.bfloat16, "TN")):
    print(f"{problem.shape} {problem.dtype}: {mine.check(problem)}")

for site in mine.explain(shape=(64, 64, 64)).sites:
    place = f"{Path(site.file).name} line {site.line}"
    print(f"{place}, {site.what}: {site.sectors_per_request:.1f} sectors a request")
