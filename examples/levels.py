"""One product on every level of the ladder, and by a kernel that is given by name.

python examples/levels.py
"""

import time

import fastgemm
import torch

device = "cuda" if any(row.available for row in fastgemm.kernels("gemm", "cuda")) else "cpu"
a, b = torch.randn(512, 512, device=device), torch.randn(512, 512, device=device)
exact = a.double() @ b.double()

for level in range(1, 8):
    fastgemm.matmul(a, b, level=level)  # a level runs or raises, and never runs another one
    start = time.perf_counter()
    c = fastgemm.matmul(a, b, level=level)
    if device == "cuda":
        torch.cuda.synchronize()
    milliseconds = 1e3 * (time.perf_counter() - start)
    print(f"level {level}: {milliseconds:8.2f} ms, largest error {(c - exact).abs().max():.1e}")

print(
    "kernels of level 1:", ", ".join(row.name for row in fastgemm.kernels("gemm", device) if row.level == 1)
)
print("one of them by name:", tuple(fastgemm.matmul(a, b, kernel="naive").shape))
