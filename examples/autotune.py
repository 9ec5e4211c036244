"""Measures once which kernel is the fastest for a problem on this machine. Later calls without a level use it.

python examples/autotune.py
"""

import fastgemm
import torch

device = "cuda" if any(row.available for row in fastgemm.kernels("gemm", "cuda")) else "cpu"
a, b = torch.randn(333, 777, device=device), torch.randn(777, 555, device=device)

tuned = fastgemm.autotune(a, b)
for timing in tuned.timings:  # one for each kernel that takes the problem, the fastest first
    time = f"{1e3 * timing.seconds:7.3f} ms" if timing.runs else "stopped: ten times slower"
    print(f"{timing.kernel:12} level {timing.level}: {time}")
c = fastgemm.matmul(a, b)  # the fastest kernel; later processes use it, too
print("kept in", fastgemm.tuning.cache_file())
