"""What is fastest for one problem on this machine, measured once: calls without a level take it from then on.

python examples/autotune.py
"""

import fastgemm
import torch

device = "cuda" if any(row.available for row in fastgemm.kernels("gemm", "cuda")) else "cpu"
a, b = torch.randn(333, 777, device=device), torch.randn(777, 555, device=device)

tuned = fastgemm.autotune(a, b)
for timing in tuned.timings:  # of every kernel that takes the problem, the fastest first
    time = f"{1e3 * timing.seconds:7.3f} ms" if timing.runs else "stopped: ten times slower"
    print(f"{timing.kernel:12} level {timing.level}: {time}")
c = fastgemm.matmul(a, b)  # the fastest of them; it is kept for later processes, too
print("kept in", fastgemm.tuning.cache_file())
